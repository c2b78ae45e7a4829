"""External trainers and their settings, as tables."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from strategist.programs.program import Choice, Conditional, Entry, Program
from strategist.programs.template import Template
from strategist.report.text_blocks import bullets, grouped, heading, pairs, section


@grouped
def programs_report(programs: Sequence[Program]) -> Iterator[RenderableType]:
    """Each shipped program with its settings."""
    yield from (section(heading(program.name, program.title), pairs(_about(program))) for program in programs)
    yield Text("\nA program of your own is a file: see docs/programs.md.", "dim")


@grouped
def program_report(program: Program) -> Iterator[RenderableType]:
    """One program: its settings, its command and the figures that are read."""
    yield Text.assemble((program.name, "bold"), f"  {program.title}")
    yield section(heading("Can set"), bullets(program.sets))
    if program.backend.refuses:
        refused = (f"{' '.join(refusal.when.text.split())}: {refusal.because}" for refusal in program.backend.refuses)
        yield section(heading("Refuses"), bullets(refused))
    yield section(heading("Command"), bullets(map(entry_words, program.command)))
    fields = (f"{figure} at {path}" for figure, path in program.metrics.fields.items())
    yield section(heading("Reads"), bullets((*program.metrics.lines, *fields)))
    if about := list(_about(program))[1:]:
        yield section(heading("About"), pairs(about))


def _about(program: Program) -> Iterator[tuple[str, str]]:
    yield "sets", ", ".join(program.sets)
    if program.variables:
        yield "needs", ", ".join(program.variables)
    if program.source:
        yield "source", program.source


def entry_words(entry: Entry) -> str:
    """An entry of a command as one line."""
    if isinstance(entry, Template):
        return entry.text
    if isinstance(entry, Conditional):
        return f"{_joined_text(entry.arguments)} when {' '.join(entry.when.text.split())}"
    assert isinstance(entry, Choice)
    return f"by {entry.setting}: " + "; ".join(
        f"{value} {_joined_text(items) or 'nothing'}" for value, items in entry.arguments.items()
    )


def _joined_text(items: Sequence[Template]) -> str:
    return " ".join(item.text for item in items)
