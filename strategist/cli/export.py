"""``strategist export``: a plan as another system's file, with the command that trains with it."""

import argparse
import shlex

from strategist import api
from strategist.cli import deck, render
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.plan import Plan


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(api.formats()))
    parser.add_argument("--job", default="", metavar="KIND", help=f"write the job of a scheduler as well: {', '.join(api.JOBS)}")
    parser.add_argument("--image", default="", metavar="NAME", help="the container's image, for jobs of Kubernetes")
    deck.add(parser)
    parser.add_argument("--json", action="store_true", help="print files, command and findings as JSON")
    parser.add_argument("-o", "--output", metavar="DIR", help="write the files here (default: print the first)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints or writes the files; what the format cannot say is told on standard error."""
    plan = codec.load(Plan, options.plan)
    written = api.export_plan(plan, options.to, job=options.job, image=options.image, cards=options.cards, without=options.without)
    for found in written.findings:
        render.remark(str(found))
    paths = api.write_files(written, options.output) if options.output else ()
    if options.json:
        render.show_json(written)
    elif options.output:
        for path in paths:
            render.line(str(path))
        render.remark(f"start it there with: {shlex.join(written.command)}")
    else:
        render.line(written.files[0].text.rstrip("\n"))
    return 0
