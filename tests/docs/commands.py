"""Reference pages of all commands, generated from the parsers."""

import argparse
from collections.abc import Iterator
from functools import cache

from strategist.cli.exit_codes import EXIT_CODES
from strategist.cli.help_examples import EXAMPLES
from strategist.cli.main import COMMANDS, whole_parser
from strategist.report.reference.markdown import code, fence, page, prose, table


@cache
def pages() -> dict[str, str]:
    """One page per command, and the page that lists them."""
    parser = whole_parser(COMMANDS)
    below = _below(parser)
    made = {f"commands/{name}.md": page(*_command(below[name], EXAMPLES[name])) for name in COMMANDS}
    return {"commands/README.md": _home(parser), **made}


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands of a parser."""
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command for group in groups for name, command in group.choices.items()}


def _home(parser: argparse.ArgumentParser) -> str:
    return page(
        "# Commands",
        '`strategist COMMAND --help` says the same in a shell; `eval "$(strategist completion bash)"` completes all of it.',
        table(("command", "what it does"), ([f"[{name}]({name}.md)", prose(text)] for name, text in COMMANDS.items())),
        *_options(parser, "##"),
        "## Exit codes",
        table(("code", "says"), ([str(number), prose(text)] for number, text in EXIT_CODES.items())),
        "The line that says what is wrong goes to the standard error stream; what was asked for goes to the standard output.",
    )


def _command(parser: argparse.ArgumentParser, examples: tuple[str, ...] = (), level: str = "#") -> Iterator[str]:
    """A command with its options and subcommands."""
    yield f"{level} {parser.prog}"
    yield prose(parser.description)
    yield fence(_usage(parser), "text")
    if examples:
        yield fence("\n".join(examples), "sh")
    yield from _options(parser, level + "#")
    for command in _below(parser).values():
        yield from _command(command, level=level + "#")


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage line: required arguments, and a placeholder for options."""
    words = [parser.prog]
    if any(action.option_strings and not action.required for action in _arguments(parser)):
        words.append("[options]")
    for action in _arguments(parser):
        if not action.option_strings:
            name = str(action.metavar or action.dest)
            words.append({"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name))
        elif action.required:
            words.append(f"{action.option_strings[-1]} {action.metavar}")
    return " ".join([*words, "COMMAND"] if _below(parser) else words)


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Arguments and options, except help and subcommands."""
    left_out = (argparse._HelpAction, argparse._SubParsersAction)
    return [action for action in parser._actions if not isinstance(action, left_out)]


def _options(parser: argparse.ArgumentParser, level: str) -> Iterator[str]:
    """One table per group of options, the command's own first."""
    mine = set(map(id, _arguments(parser)))
    for group in parser._action_groups:
        if rows := [_row(action, parser) for action in group._group_actions if id(action) in mine]:
            if group.title not in ("positional arguments", "options"):
                yield f"{level} {parser.prog}: {group.title}"
            yield table(("argument" if group.title == "positional arguments" else "option", "what it does"), rows)


def _row(action: argparse.Action, parser: argparse.ArgumentParser) -> list[str]:
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    value = f" {action.metavar}" if action.option_strings and action.metavar else ""
    help_text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return [code(names + value), prose(help_text)]
