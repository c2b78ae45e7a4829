"""``strategist trace``: writes the simulated step of a plan for Chrome's tracing and Perfetto."""

import argparse
from pathlib import Path

from strategist import api
from strategist.cli import deck_options, plan_file, render
from strategist.cli.parser import Parser, add_output
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.units import show_seconds


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    add_output(parser, "-o", "--out", help="the trace (default: <plan>-trace.json in the plan's folder)")
    deck_options.add_calibration(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Writes the trace and prints a summary."""
    path = Path(options.plan)
    out = Path(options.out) if options.out else plan_file.default_output(path, "-trace.json")
    step_data = api.write_trace(codec.load(Plan, path), out, calibration=options.calibration, force=options.force)
    bubble_text = "" if step_data["schedule"] == "none" else f", {step_data['bubble_share']:.1%} of it bubble"
    render.line(
        f"{out}: a step of {show_seconds(step_data['step_seconds'])}{bubble_text}; open it in ui.perfetto.dev or chrome://tracing"
    )
    return 0
