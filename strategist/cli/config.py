"""``strategist config``: default option values and where each is set."""

import argparse
import os

from strategist import api
from strategist.cli import config_sources, render
from strategist.cli.main import COMMANDS, whole_parser
from strategist.cli.parser import Parser
from strategist.contract.configuration import Configuration, ConfiguredOption


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the configuration; errors in a file are errors here, for any command."""
    configured = configuration()
    if options.json:
        render.show_json(configured)
        return 0
    from strategist.report.configuration import configuration_report

    render.show(configuration_report(configured))
    return 0


def configuration() -> Configuration:
    """Configured option values of all commands.

    Raises:
        InputError, FileError: a value is not an option, or has the wrong type.
    """
    option_sources = config_sources.sources(COMMANDS)
    commands: dict[config_sources.OptionDefault, list[str]] = {}
    for path, command in whole_parser(COMMANDS).subcommands():
        for default in config_sources.default_values(command, path, option_sources):
            commands.setdefault(default, []).append(" ".join(path))
    known_variables = {source for default in commands for source in (default.source, *default.overridden)} | {
        *config_sources.OTHER_VARIABLES
    }
    return Configuration(
        files={str(file): file.is_file() for file in config_sources.config_paths()},
        options=tuple(
            ConfiguredOption(
                words=tuple(map(api.redacted, default.words)),
                source=default.source,
                before=default.overridden,
                commands=tuple(names),
            )
            for default, names in sorted(commands.items(), key=lambda item: item[0].words)
        ),
        unknown_variables=tuple(
            sorted(name for name in os.environ if name.startswith(config_sources.PREFIX) and name not in known_variables)
        ),
    )
