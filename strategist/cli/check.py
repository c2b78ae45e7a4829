"""``strategist check``: whether another system's file fits, how fast it is, what is wrong with it and what would be better."""

import argparse

from strategist import api
from strategist.cli import config, render
from strategist.cli.parser import Parser
from strategist.diagnostic import Level
from strategist.errors import InputError

BAD = 1
OUTPUTS = ("text", "json", "github")


def add(parser: Parser) -> None:
    """The options of the command."""
    config.add(parser)
    parser.add_argument("--output", default="text", metavar="NAME", help=f"{', '.join(OUTPUTS)} (default: text)")
    parser.add_argument("--json", action="store_true", help="the same as --output json")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the review; 1 where it would run out of memory or cannot run at all."""
    output = "json" if options.json else options.output
    if output not in OUTPUTS:
        raise InputError(f"--output {output}", "is not known", f"choose one of {', '.join(OUTPUTS)}")
    review = api.check_config(options.file, config.given(options), **config.deciding(options))
    if output == "json":
        render.show_json(review)
    elif output == "github":
        from strategist.report.findings import github_lines

        for line in github_lines(review.findings):
            render.line(line)
    else:
        from strategist.report.reviewed import review_report

        render.show(review_report(review))
    return BAD if any(found.level is Level.ERROR for found in review.findings) else 0
