"""Program: an external trainer: its command for a plan, its settings, and how its figures are read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from strategist.contract.knobs import show_value
from strategist.expr.check import Expression
from strategist.expr.evaluate import Facts, scalar
from strategist.programs.log_pattern import FIGURES, PEAK_MEMORY, PEAK_RESERVED
from strategist.programs.template import Template
from strategist.rules.backend import Backend

MEMORY = tuple(name for name, (figure, _) in FIGURES.items() if figure in (PEAK_MEMORY, PEAK_RESERVED))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Arguments by the value of a setting."""

    setting: str
    arguments: Mapping[str, tuple[Template, ...]]

    def of(self, facts: Facts) -> tuple[Template, ...]:
        """Those of the plan's value; none for one that the program does not take."""
        return self.arguments.get(show_value(facts[self.setting]), ())

    @property
    def templates(self) -> Iterator[Template]:
        return chain.from_iterable(self.arguments.values())


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """Arguments where a condition surely holds."""

    when: Expression
    arguments: tuple[Template, ...]

    def of(self, facts: Facts) -> tuple[Template, ...]:
        """All of them, or none."""
        return self.arguments if scalar(self.when, facts) is True else ()

    @property
    def templates(self) -> Iterator[Template]:
        return iter(self.arguments)


Entry = Template | Choice | Conditional
"""One entry of a command: an argument, or several that depend on the plan."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How figures are read: ``lines`` are patterns of the log, each step one of them at least; ``fields`` are figures by their
    places in a JSON file that is read at the end. ``warmup_steps`` are left out; None for those of the trial."""

    lines: tuple[str, ...] = ()
    json: Template | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    warmup_steps: int | None = None

    @property
    def tells_memory(self) -> bool:
        """Whether a memory is among the figures."""
        return any(f"{{{name}}}" in line for line in self.lines for name in MEMORY) or any(name in MEMORY for name in self.fields)


PER_NODE = "ranks_per_node"
"""The word with which a command says that it may be run on each of several machines."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """In seconds: until the first step, between steps, and for all of it; None for those of the trial."""

    start_seconds: float | None = None
    step_seconds: float | None = None
    total_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class OutOfMemory:
    """How a program shows that memory ran out, beside what torch says: words of its log, or exit codes."""

    says: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Program:
    """``backend`` is what it can set, as planning and running see it; ``sets`` says the same in words, by setting. ``passes`` names
    variables of the environment that it is given beside the usual ones. ``digest`` names the content of its file."""

    name: str
    title: str
    source: str
    here: str
    command: tuple[Entry, ...]
    environment: Mapping[str, Template]
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
        """All that a plan fills."""
        yield from templates(self.command)
        yield from self.environment.values()
        if self.metrics.json is not None:
            yield self.metrics.json

    @property
    def runs_on_each_node(self) -> bool:
        """Whether its command starts the ranks of one machine, and may be run on several."""
        return any(template.says(PER_NODE) for template in self.templates)

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the environment that it is made with."""
        return tuple(sorted(frozenset().union(*(template.variables for template in self.templates))))


def templates(command: tuple[Entry, ...]) -> Iterator[Template]:
    """All templates of a command."""
    for entry in command:
        if isinstance(entry, Template):
            yield entry
        else:
            yield from entry.templates
