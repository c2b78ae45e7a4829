"""``strategist export``: a plan as another system's files, with the command or the job that starts the training."""

import argparse
import shlex
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import deck_options, job_options, plan_file, render
from strategist.cli.parser import Parser, add_output, typed_options
from strategist.contract.plan import Plan

if TYPE_CHECKING:
    from strategist.api import ExportedFiles


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("--to", required=True, metavar="FORMAT", help=f"format to write: {', '.join(api.formats())}")
    job_options.add(parser, ", ".join(api.JOBS))
    deck_options.add(parser)
    parser.add_argument("--json", action="store_true", help="print files, command and findings as JSON")
    add_output(parser, "-o", "--output", metavar="DIR", help="write the files here (default: print the first)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints or writes the files; what the format cannot express goes to standard error."""
    written = exported(plan_file.read(options.plan), options.to, options)
    if options.output:
        write_files(written, options.output, force=options.force, quiet=options.json)
    else:
        print_missing(written)
    if options.json:
        render.show_json(written)
    elif not options.output:
        render.line(written.files[0].text.rstrip("\n"))
    return 0


def exported(plan: Plan, format: str, options: argparse.Namespace) -> "ExportedFiles":
    """The exported plan, with the job that the options request.

    Raises:
        InputError, FileError: the format or the job cannot carry out the plan, or an option is invalid.
    """
    job, inputs = job_options.given(options), job_options.inputs(options)
    written = api.export_plan(
        plan, format, job=options.job, options=job, inputs=inputs, cards=options.cards, without=options.without
    )
    typed = typed_options(options.typed)
    for name in inputs.keys() - {item.input for item in written.placeholders}:
        if f"--{name}" in typed:
            render.print_note(f"--{name} is not used by --to {format}")
    return written


def print_missing(written: "ExportedFiles") -> None:
    """Prints what of the plan the files do not express, and what they lack."""
    for finding in written.findings:
        render.print_note(str(finding))
    for need in written.needs:
        render.print_note(f"missing: {need}")


def write_files(written: "ExportedFiles", folder: str, *, force: bool, quiet: bool = False) -> None:
    """Writes the files, and prints what they lack, their paths and the command that starts them."""
    paths = api.write_files(written, folder, force=force)
    print_missing(written)
    if not quiet:
        for path in paths:
            render.line(str(path))
        render.print_note(f"start it: cd {shlex.quote(folder)} && {shlex.join(written.command)}")
