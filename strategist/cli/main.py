"""The command ``strategist``: parses the command line, runs one command, turns errors into one line and an exit code."""

import argparse
import atexit
import codecs
import gc
import os
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module

from strategist.cli import config_sources, progress_bar, render, signal_handlers
from strategist.cli.exit_codes import EXIT_CODES, INTERRUPTED, PIPE_CLOSED, USER_ERROR
from strategist.cli.help_examples import EXAMPLES
from strategist.cli.parser import Parser, UnknownOptionError
from strategist.errors import StrategistError
from strategist.files import outputs

COMMANDS = {
    "init": "ask five questions, write a request file, and plan",
    "plan": "propose settings for a model on some GPUs, with reasons",
    "run": "run a plan on this machine and measure it",
    "tune": "run trials, learn from them, and plan again",
    "study": "list, show, plot, export, import, merge, repair and watch studies",
    "watch": "follow a running study, live",
    "explain": "why each setting of a plan has its value, and why not another",
    "compare": "compare two plans: their settings, and the effects on memory and time",
    "check": "check another framework's config file: whether it fits, its speed, what would be better",
    "import": "read another framework's config file as a plan",
    "export": "write a plan as another framework's config files, with a job",
    "simulate": "check a plan for any cluster without a GPU: memory and traffic of its ranks",
    "shadow": "run one rank of a plan for any cluster on a device of this machine",
    "report": "draw a plan, a run or a study, in the terminal or as an HTML page",
    "trace": "write the simulated step of a plan for Chrome's tracing and Perfetto",
    "cards": "list, show, create, lint and test strategy cards",
    "accuracy": "compare predictions with published measurements",
    "bench": "benchmark the search on published sweeps",
    "profile": "measure this machine and write a profile for plans",
    "topo": "draw the topology of this machine, and write a cluster file",
    "doctor": "find problems of this machine and of the installation",
    "scale": "measure a plan on increasing numbers of devices",
    "mcp": "serve plans, cards and trials to agents over the Model Context Protocol",
    "programs": "list external trainers that can run plans, and their settings",
    "schema": "list or print the JSON Schemas of the commands' output",
    "completion": "print the shell completion script of this command",
    "models": "list known models, or show the shape that a name resolves to",
    "hardware": "list known devices, or show one with its usual node and its sources",
    "profiles": "list known models, devices, back ends and formats",
    "config": "show default values of options, and where each is set",
}
"""Commands with their help. A command is the module of its name; only the called one is imported, to start fast."""

RENAMED = {"import": "imports"}
"""Modules of commands whose name is a Python keyword."""

LONG_COMMANDS = {"run", "shadow", "tune", "profile", "scale", "simulate", "bench", "study", "watch", "mcp"}
"""Commands that may take minutes."""

INTERACTIVE_COMMANDS = {"init", "tune", "study", "watch", "mcp"}
"""Commands with questions, a live display or a server."""

MOST_COMMANDS = 3
"""Number of commands that an error about an option of other commands names."""

HELP = {"-h", "--help", "--version"}

VERBATIM_HEADINGS = ("examples:", "exit codes:")
"""First words of help texts whose lines are not wrapped."""

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    _safe_output()
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:
        _drop_unwritable_output()
        return PIPE_CLOSED
    finally:
        gc.enable()


def _main(arguments: list[str]) -> int:
    """Runs a command and prints its error, if it ends in one."""
    try:
        progress = nullcontext() if INTERACTIVE_COMMANDS.intersection(arguments[:1]) else progress_bar.progress_line()
        with _interrupted_by_signals(), progress:
            code = _run(arguments)
            sys.stdout.flush()
        return code
    except StrategistError as error:
        from strategist.cli.corrected_command import corrected_command

        if command := corrected_command(error, arguments):
            error.add_note(f"(next: {command})")
        render.print_error(error)
        return USER_ERROR
    except BrokenPipeError:
        raise
    except OSError as error:  # a fault of the machine, such as a full disk; expected errors are FileErrors already
        render.print_error(f"{error.filename or 'output'}: {error.strerror or error}; correct that and repeat the command")
        _drop_unwritable_output()
        return USER_ERROR
    except KeyboardInterrupt:
        render.print_error("interrupted")
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if not LONG_COMMANDS.intersection(arguments[:1]):
        gc.disable()  # garbage collection would take a twentieth of a short command's time
        atexit.register(gc.freeze)  # nor does the interpreter look for it as it ends
    command_name = next((item for item in arguments if not item.startswith("-")), "")
    asks_for_help = HELP.intersection(arguments)
    parser = whole_parser([command_name], COMMANDS if asks_for_help or command_name not in COMMANDS else [command_name])
    all_arguments, configured = (
        (arguments, ())
        if asks_for_help
        else config_sources.with_default_values(parser, arguments, config_sources.sources(COMMANDS))
    )
    try:
        parsed = parser.parse_args(all_arguments, argparse.Namespace(arguments=all_arguments, typed=arguments))
        if "command" not in parsed:
            parser.print_help()
            return USER_ERROR if arguments else 0
        render.reserve_output(outputs.is_standard_output(getattr(parsed, getattr(parsed, "written", ""), None)))
        code: int = parsed.command(parsed)
    except SystemExit as exit_request:  # --help and --version
        return int(exit_request.code or 0)
    except UnknownOptionError as error:
        if other_commands := _commands_with(error.option):
            see = " or ".join(f"strategist {command}" for command in other_commands[:MOST_COMMANDS])
            raise UnknownOptionError(error.option, command_name, f"it is an option of {see}") from None
        raise
    except StrategistError as error:
        for value in configured:
            if value.option in str(error):
                error.add_note(f"({value.option} comes from {value.source})")
        raise
    return code


def _commands_with(option: str) -> list[str]:
    """Commands that have the option, in the order of the help."""
    return [" ".join(words) for words, command in whole_parser(COMMANDS).subcommands() if option in command.own_options()]


def whole_parser(complete: Collection[str], names: Collection[str] = tuple(COMMANDS)) -> Parser:
    """The parser of all commands, or of those in ``names``; those in ``complete`` are imported and have their options."""
    codes = "".join(f"\n  {code:<5}{text}" for code, text in EXIT_CODES.items())
    parser = Parser(
        prog="strategist", description="Strategy cards, a cost model and measured trials for distributed PyTorch training.",
        epilog=f"exit codes:{codes}", formatter_class=_Help,
    )  # fmt: skip
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name in names:
        text = COMMANDS[name]
        lines = "".join(f"\n  {line}" for line in EXAMPLES[name])
        command = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"examples:{lines}", formatter_class=_Help
        )
        if name in complete:
            import_module(f"strategist.cli.{RENAMED.get(name, name)}").add(command)
    return parser


class _Help(argparse.HelpFormatter):
    """Help with room for options; tables and examples are not wrapped."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(VERBATIM_HEADINGS) else super()._fill_text(text, width, indent)


class _Version(argparse.Action):
    """Prints the version; its lookup is imported only here, because it is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            render.line(f"strategist {version('torch-strategist')}")
        except PackageNotFoundError:
            render.line("strategist, not installed")
        parser.exit()


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Handles SIGTERM of a scheduler and SIGHUP of a closed terminal like Ctrl-C: the trial ends and its claim is released."""
    with signal_handlers.handled(dict.fromkeys(signal_handlers.not_ignored(*TERMINATION_SIGNALS), _interrupt)):
        yield


def _interrupt(number: int, frame: object) -> None:
    """Raises KeyboardInterrupt once; further signals do not disturb the cleanup."""
    for termination_signal in TERMINATION_SIGNALS:
        signal.signal(termination_signal, signal.SIG_IGN)
    raise KeyboardInterrupt


def _safe_output() -> None:
    """Replaces closed standard streams, and escapes characters that the terminal cannot show."""
    codecs.register_error("escape", render.escape)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):  # takes the lowest free descriptor, so that no file is opened as a standard stream
                os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="escape")


def _drop_unwritable_output() -> None:
    """Drops buffered output that cannot be written: the interpreter would try again at exit, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
