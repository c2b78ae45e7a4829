"""``strategist plan``: ranked plans for a request, the best spelled out, and the ways around."""

import argparse
from dataclasses import replace

from strategist import api, outputs
from strategist.cli import deck, render
from strategist.cli import request as request_options
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, add_output, positive
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.units import parse_count


def add(parser: Parser) -> None:
    """The options of the command."""
    request_options.add(parser)
    kinds = "plans to show, which differ in a parallel degree, recomputation or offload (default 5)"
    parser.add_argument("--top", type=positive("--top"), default=5, metavar="N", help=kinds)
    parser.add_argument("--tokens", metavar="N", help="say what training on N tokens takes with each plan, e.g. 300B or 15T")
    parser.add_argument("--prove", action="store_true", help="simulate each plan shown, and rank by what its memory proves to be")
    deck.add_language(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    add_output(parser, "-o", "--output", help="write the best plan here, for strategist run; - prints it and nothing else")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the answer; 1 where a plan file is wanted and nothing fits."""
    if options.output:
        outputs.check(options.output, own=None if options.force else codec.own_mark(Plan))
    request = request_options.request(options)
    if options.tokens is not None:
        request = replace(request, tokens=parse_count(options.tokens, "--tokens"))
    answer = api.plan(request, cards=options.cards, without=options.without, calibration=options.calibration, top=options.top)
    if options.prove:
        answer = api.prove(answer, on_rank=render.rank_line)
    if options.output and answer.plans:
        codec.save(answer.plans[0], options.output, force=options.force)
    if options.json:
        render.show_json(answer)
    else:
        from strategist.report.answer import answer_report  # 50 ms of rich that --json does without

        render.show(answer_report(api.in_language(answer, options.lang, cards=options.cards)))
    if options.output and not answer.plans:
        render.remark(f"nothing fits, so {options.output} is not written; the answer says what would")
        return FAILED
    return 0
