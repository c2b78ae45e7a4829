"""Program: an external trainer: the command for a plan, its settings, and how its figures are read."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import chain

from strategist.contract.knobs import show_value
from strategist.expr.check import Expression
from strategist.expr.evaluate import Facts, scalar
from strategist.frozen import frozen
from strategist.programs.log_pattern import FIGURES, PEAK_MEMORY, PEAK_RESERVED
from strategist.programs.template import Template
from strategist.rules.backend import Backend

MEMORY_FIGURES = tuple(name for name, (figure, _) in FIGURES.items() if figure in (PEAK_MEMORY, PEAK_RESERVED))


@frozen
class Choice:
    """Arguments that depend on the value of a setting."""

    setting: str
    arguments: Mapping[str, tuple[Template, ...]]

    def of(self, facts: Facts) -> tuple[Template, ...]:
        """The arguments for the value that the plan has; empty if the program does not support it."""
        return self.arguments.get(show_value(facts[self.setting]), ())

    def filled(self, facts: Facts, words: Mapping[str, str]) -> str:
        """The arguments for the plan's value as one text, such as the value of an environment variable."""
        return " ".join(item.filled(facts, words) for item in self.of(facts))

    @property
    def templates(self) -> Iterator[Template]:
        return chain.from_iterable(self.arguments.values())


@frozen
class Conditional:
    """Arguments that depend on a condition; an unknown condition gives none."""

    when: Expression
    arguments: tuple[Template, ...]

    def of(self, facts: Facts) -> tuple[Template, ...]:
        """All arguments if the condition holds, otherwise none."""
        return self.arguments if scalar(self.when, facts) is True else ()

    @property
    def templates(self) -> Iterator[Template]:
        return iter(self.arguments)


Entry = Template | Choice | Conditional
"""One entry of a command: an argument, or several that depend on the plan."""

Variable = Template | Choice
"""The value of an environment variable: the same for all plans, or by a setting's value."""


@frozen
class Metrics:
    """Sources of a program's figures: its log or a JSON file.

    lines: patterns of the log; each step has at least one matching line.
    json: path of a JSON file that is read at the end; ``fields`` are positions in it by figure.
    warmup_steps: steps that are left out; None for the trial's number.
    """

    lines: tuple[str, ...] = ()
    json: Template | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    warmup_steps: int | None = None

    @property
    def reports_memory(self) -> bool:
        """Whether the figures include memory."""
        return any(f"{{{name}}}" in line for line in self.lines for name in MEMORY_FIGURES) or any(
            name in MEMORY_FIGURES for name in self.fields
        )


PER_NODE = "ranks_per_node"
"""Placeholder with which a command shows that it can run on each of several nodes."""


@frozen
class Deadlines:
    """Time limits in seconds: until the first step, between steps, and in total; None for those of the trial."""

    start_seconds: float | None = None
    step_seconds: float | None = None
    total_seconds: float | None = None


@frozen
class OutOfMemory:
    """Signs that memory ran out, besides torch's own messages: texts in the program's log, or exit codes."""

    says: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()


@frozen
class Program:
    """An external trainer, as its file describes it.

    folder: folder of the file.
    passes: environment variables that the program inherits besides the usual ones.
    backend: the settings that it supports, for planning and running; ``sets`` lists them as text.
    digest: of the file's content.
    """

    name: str
    title: str
    source: str
    folder: str
    command: tuple[Entry, ...]
    environment: Mapping[str, Variable]
    passes: tuple[str, ...]
    metrics: Metrics
    out_of_memory: OutOfMemory
    deadlines: Deadlines
    backend: Backend
    sets: tuple[str, ...]
    digest: str

    def arguments(self, facts: Facts, words: Mapping[str, str]) -> tuple[str, ...]:
        """The command for one plan."""
        entries = ((entry,) if isinstance(entry, Template) else entry.of(facts) for entry in self.command)
        return tuple(template.filled(facts, words) for template in chain.from_iterable(entries))

    @property
    def templates(self) -> Iterator[Template]:
        """All templates that a plan fills in."""
        yield from templates((*self.command, *self.environment.values()))
        if self.metrics.json is not None:
            yield self.metrics.json

    @property
    def runs_on_each_node(self) -> bool:
        """Whether the command starts the ranks of one node, and can run on several nodes."""
        return any(template.has_word(PER_NODE) for template in self.templates)

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that occur in its templates."""
        return tuple(sorted(frozenset().union(*(template.variables for template in self.templates))))


def templates(command: tuple[Entry, ...]) -> Iterator[Template]:
    """All templates of a command."""
    for entry in command:
        if isinstance(entry, Template):
            yield entry
        else:
            yield from entry.templates
