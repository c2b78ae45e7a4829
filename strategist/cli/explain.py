"""``strategist explain``: what decided each setting of a plan, and why not another value."""

import argparse

from strategist import api
from strategist.cli import deck_options, render
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.contract.setting_parser import parse_fix
from strategist.errors import InputError


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument(
        "--why-not", action="append", default=[], metavar="KNOB=VALUE", help="the obstacle to this value, e.g. recompute=none"
    )
    deck_options.add(parser)
    deck_options.add_calibration(parser)
    deck_options.add_language(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    settings = [_setting(text) for text in options.why_not]
    if len(settings) > 1:
        raise InputError(f"--why-not {' '.join(options.why_not)}", "one value is compared at a time", "ask for each by itself")
    plan = codec.load(Plan, options.plan)
    for name, value in settings:
        alternative = api.why_not(plan, name, value, **deck_options.arguments(options))
        if options.json:
            render.show_json(alternative)
            return 0
        from strategist.report.explanation import why_not_report

        render.show(why_not_report(*api.in_language((plan, alternative), options.lang, cards=options.cards)))
        return 0
    explanation = api.explain(plan, **deck_options.arguments(options))
    if options.json:
        render.show_json(explanation)
        return 0
    from strategist.report.explanation import explanation_report

    render.show(explanation_report(api.in_language(explanation, options.lang, cards=options.cards)))
    return 0


def _setting(text: str) -> tuple[str, KnobValue]:
    """A setting as --fix takes it; errors name the option that was used."""
    try:
        return parse_fix(text)
    except InputError as error:
        raise InputError(error.value.replace("--fix", "--why-not"), error.law, error.do) from None
