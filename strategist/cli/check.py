"""``strategist check``: verdict, predicted speed, findings and a better plan for another system's configuration file."""

import argparse
from collections.abc import Sequence

from strategist import api
from strategist.cli import config_file_options, render, sections
from strategist.cli.exit_codes import FAILED, UNDECIDED, verdict_code
from strategist.cli.parser import Parser, share
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Fit
from strategist.contract.review import Review
from strategist.errors import not_among

OUTPUTS = ("text", "json", "github")
SECTIONS = ("findings", "plan", "changes", "best")
"""Sections of a review (strategist/report/review.py)."""


def add(parser: Parser) -> None:
    """The options of the command."""
    config_file_options.add(parser, several=True)
    confidence_help = (
        f"probability from which a file fits; from one minus it down, it does not (from 0.5 on, default {DEFAULT_CONFIDENCE})"
    )
    parser.add_argument("--confidence", type=share("--confidence"), default=DEFAULT_CONFIDENCE, metavar="P", help=confidence_help)
    sections.add(parser, SECTIONS)
    parser.add_argument("--output", default="text", metavar="NAME", help=f"{', '.join(OUTPUTS)} (default: text)")
    parser.add_argument("--json", action="store_true", help="the same as --output json")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the review of each file. Returns 1 if a plan does not fit or cannot run, else 3 if one is tight or undecided, else
    0.
    """
    output = "json" if options.json else options.output
    if output not in OUTPUTS:
        raise not_among(f"--output {output}", output, OUTPUTS)
    names = sections.requested_sections(options, SECTIONS)
    given, deciding = config_file_options.given(options), config_file_options.deciding(options)
    reviews = [api.check_config(file, given, confidence=options.confidence, **deciding) for file in options.file]
    if output == "json":
        render.show_json(reviews[0] if len(reviews) == 1 else reviews)
    else:
        for file, review in zip(options.file, api.in_language(reviews, options.lang, cards=options.cards), strict=True):
            _show(file, review, output, names, named=len(reviews) > 1)
    return max(
        (verdict_code(Fit.TOO_LARGE if review.broken else review.fit) for review in reviews), key=(0, UNDECIDED, FAILED).index
    )


def _show(file: str, review: Review, output: str, names: Sequence[str], *, named: bool) -> None:
    """Prints one review as GitHub annotations, or as text with the sections ``names``."""
    if output == "github":
        from strategist.report.findings import github_lines

        for line in github_lines(review.findings):
            render.line(line)
        return
    from strategist.report.review import review_report

    if named:
        render.line(f"{file}:")
    render.show(review_report(review, names))
