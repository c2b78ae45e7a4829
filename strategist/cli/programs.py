"""``strategist programs``: external trainers that can run and tune plans, and the settings of each."""

import argparse
import shlex

from strategist import api
from strategist.cli import plan_file, render
from strategist.cli.parser import Parser
from strategist.contract.listings import ListedProgram
from strategist.errors import InputError


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("program", nargs="?", metavar="NAME", help="a program's name or file (default: all shipped ones)")
    parser.add_argument("--plan", metavar="FILE", help="show the command for this plan")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the list, or one program."""
    if options.program is None:
        if options.plan:
            raise InputError(f"--plan {options.plan}", "is for one program", "name it: strategist programs NAME --plan FILE")
        return _list_programs(options.json)
    program = api.program(options.program)
    command = api.command(program, plan_file.read(options.plan)) if options.plan else ()
    if options.json:
        render.show_json(_listed_program(program, tuple(command)))
        return 0
    from strategist.report.programs import program_report

    render.show(program_report(program))
    if command:
        render.line(f"\nFor the plan\n{shlex.join(command)}")  # on one line, to be copied
    return 0


def _list_programs(as_json: bool) -> int:
    programs = [api.program(name) for name in api.programs()]
    if as_json:
        render.show_json([_listed_program(program) for program in programs])
        return 0
    from strategist.report.programs import programs_report

    render.show(programs_report(programs))
    return 0


def _listed_program(program: api.Program, command: tuple[str, ...] = ()) -> ListedProgram:
    return ListedProgram(
        program=program.name, title=program.title, source=program.source, sets=tuple(program.sets), needs=tuple(program.variables),
        command=command,
    )  # fmt: skip
