"""``strategist import``: another system's file as a plan."""

import argparse

from strategist import api
from strategist.cli import config_file_options, render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, add_output
from strategist.contract import codec


def add(parser: Parser) -> None:
    """The options of the command."""
    config_file_options.add(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    add_output(parser, "-o", "--output", help="write the plan here, for other commands")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints or writes the plan; returns 1 if the settings break a law."""
    review = api.import_plan(options.file, config_file_options.given(options), **config_file_options.deciding(options))
    for finding in api.in_language(review.findings, options.lang, cards=options.cards):
        render.print_note(str(finding))
    if review.plan is None:
        return FAILED
    if options.output:
        codec.save(review.plan, options.output, force=options.force)
    if options.json:
        render.show_json(review.plan)
    elif not options.output:
        from strategist.report.plan import plan_report

        plan = api.in_language(review.plan, options.lang, cards=options.cards)
        render.show(plan_report(plan, f"The plan of {options.file}"))
    return 0
