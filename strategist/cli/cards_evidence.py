"""``strategist cards evidence``: trials that support or contradict each card."""

import argparse

from strategist import api
from strategist.cli import deck_options, render
from strategist.cli.parser import Parser
from strategist.contract.evidence import TrialEvidence


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """The command and its options."""
    command = commands.add_parser(
        "evidence",
        help="trials that confirm or contradict cards",
        description="How often each policy was applied, and which trials confirm or contradict it.",
    )
    command.add_argument("id", nargs="*", metavar="CARD-ID", help="such as FSDP-001 (default: all cards with trials)")
    command.add_argument("--study", action="append", default=[], metavar="DIR", help="folder of a study")
    command.add_argument(
        "--measurements", action="append", default=[], metavar="FILE", help="a file of measurements (default: all shipped ones)"
    )
    command.add_argument("--all", action="store_true", help="also list the cards without trials")
    deck_options.add_cards(command)
    deck_options.add_language(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=show_evidence)


def show_evidence(options: argparse.Namespace) -> int:
    """Prints the evidence of the named cards, or of all."""
    deck = api.in_language(api.load_cards(options.cards), options.lang)
    cards = [deck.card(name) for name in dict.fromkeys(options.id)] or list(deck.cards)
    result = api.evidence(options.id, cards=options.cards, studies=options.study, measurements=options.measurements)
    for finding in result.findings:
        render.print_note(str(finding))
    evidence = [item for item in result.evidence if options.all or item.known]
    if options.json:
        render.show_json(TrialEvidence(trials=dict(result.trials), evidence=tuple(evidence)))
        return 0
    from strategist.report.evidence import evidence_report

    render.show(evidence_report(cards, evidence, result.trials, silent=options.all))
    return 0
