"""``strategist cards test``: runs the cases and, on request, the examples of cards; examples are programs."""

import argparse
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import deck_options, render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, positive

if TYPE_CHECKING:
    from strategist.contract.card_example import CardTest


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """The command and its options."""
    test = commands.add_parser(
        "test",
        help="run the cases and examples of cards",
        description="Run the cases and the examples of cards; the examples are programs, run here on CPU processes.",
    )
    test.add_argument("target", nargs="*", metavar="PATH|ID", help="card files, folders, ids (default: all active cards)")
    deck_options.add_cards(test)
    test.add_argument(
        "--timeout", type=positive("--timeout"), default=60, metavar="SECONDS", help="limit of one example (default: 60)"
    )
    test.add_argument("--json", action="store_true", help="print JSON")
    test.set_defaults(command=run_tests)


def run_tests(options: argparse.Namespace) -> int:
    """Prints a line per card, then the failures; returns 1 if there are any."""
    on_card = None if options.json else _show
    tests = api.run_card_tests(options.target, cards=options.cards, timeout_seconds=options.timeout, on_card=on_card)
    failed = sum(len(test.failures) for test in tests)
    if options.json:
        render.show_json(list(tests))
        return FAILED if failed else 0
    for test in tests:
        for failure in test.failures:
            location = f", line {failure.script_line} of its script" if failure.script_line else ""
            render.line(f"{test.path}:{failure.line}: {test.card} {failure.part} {failure.number}{location}: {failure.message}")
    examples, refused = sum(test.examples for test in tests), sum(test.refused for test in tests)
    render.line(
        f"{len(tests)} cards, {sum(test.cases for test in tests)} cases, {examples} examples ({refused} refused as documented), "
        f"failures: {failed}"
    )
    return FAILED if failed else 0


def _show(test: "CardTest") -> None:
    verdict = "FAILED" if test.failures else "ok"
    render.line(f"{test.card:<10} {verdict:<6} {test.cases} cases, {test.examples} examples, {test.seconds:.1f} s")
