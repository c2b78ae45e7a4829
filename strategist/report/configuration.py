"""Default option values as a table."""

import shlex
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from strategist.contract.configuration import Configuration, ConfiguredOption
from strategist.report.text_blocks import bullets, grouped, heading, pairs, section

VARIABLES = "STRATEGIST_OPTION, STRATEGIST_COMMAND_OPTION"


@grouped
def configuration_report(configuration: Configuration) -> Iterator[RenderableType]:
    """Configured options with their origin, the files that were looked for, and environment variables without effect."""
    if configuration.options:
        yield pairs((shlex.join(option.words), _origin(option)) for option in configuration.options)
    else:
        yield Text("No file sets an option; options are those of the command line, or their defaults.")
    sources = [(VARIABLES, "read"), *((name, "read" if exists else "not found") for name, exists in configuration.files.items())]
    yield section(heading("Sources", "after the command line, in this order"), pairs(sources))
    if configuration.unknown_variables:
        yield section(heading("Variables that no command reads"), bullets(configuration.unknown_variables))


def _origin(option: ConfiguredOption) -> str:
    before = f", before {', '.join(option.before)}" if option.before else ""
    return f"{option.source}{before}; for {', '.join(option.commands)}"
