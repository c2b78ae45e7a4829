"""``strategist simulate``: checks a plan for any cluster without a GPU."""

import argparse

from strategist import api
from strategist.cli import plan_file, render, sections
from strategist.cli.exit_codes import FAILED, UNDECIDED
from strategist.cli.parser import Parser
from strategist.contract.layout import Layout
from strategist.contract.simulation import Verdict
from strategist.errors import InputError

SECTIONS = ("ranks", "memory", "modules", "collectives", "notes")
"""The parts of the report."""


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    rank_options = parser.add_mutually_exclusive_group()
    rank_options.add_argument("--rank", type=int, metavar="R", help="the rank to simulate")
    rank_options.add_argument("--stage", metavar="S,S", help="a rank of each of these stages (default: first,last)")
    rank_options.add_argument("--all-stages", action="store_true", help="a rank of each stage of the pipeline")
    parser.add_argument(
        "--whole", action="store_true", help="trace every layer and micro-batch, instead of extrapolating from a few"
    )
    parser.add_argument(
        "--model-code", default="", metavar="MODULE:FUNCTION",
        help="a model of your own in the place of the plan's: a function that returns an nn.Module from token numbers to logits,"
        " or a tuple of it, its loss(output, targets) and its plan for parallelize_module",
    )  # fmt: skip
    sections.add(parser, SECTIONS)
    parser.add_argument("--json", action="store_true", help="print the simulation as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Simulates the ranks; returns 1 if their tensors do not fit, 3 if only the reserved bytes do not, or only an upper bound."""
    section_names = sections.requested_sections(options, SECTIONS)
    plan = plan_file.read(options.plan)
    ranks = _ranks(options, plan.candidate.layout)
    simulation = api.simulate(plan, ranks, whole=options.whole, model_code=options.model_code, on_rank=render.rank_line)
    if options.json:
        render.show_json(simulation)
    else:
        from strategist.report.simulation import simulation_report

        render.show(simulation_report(plan, simulation, section_names))
    return {Verdict.FITS: 0, Verdict.OPEN: UNDECIDED, Verdict.TOO_LARGE: FAILED}[simulation.proof.verdict]


def _ranks(options: argparse.Namespace, layout: Layout) -> list[int]:
    if options.rank is not None:
        return [options.rank]
    if options.all_stages:
        return [layout.first_rank(stage) for stage in range(layout.pp)]
    return [layout.first_rank(_stage(text, layout.pp)) for text in (options.stage or "first,last").split(",")]


def _stage(text: str, stages: int) -> int:
    indices = {"first": 0, "last": stages - 1, **{str(stage): stage for stage in range(stages)}}
    if text not in indices:
        law = f"the pipeline's ranks are 0 to {stages - 1}"
        raise InputError(f"--stage {text}", law, "write first, last or numbers, as in --stage first,last")
    return indices[text]
