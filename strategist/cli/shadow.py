"""``strategist shadow``: runs one rank of a plan for any cluster on a device of this machine."""

import argparse
from dataclasses import replace
from pathlib import Path

from strategist import api
from strategist.cli import plan_file, render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, positive, whole
from strategist.contract.measurement import Outcome


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument(
        "--rank", type=whole("--rank"), default=0, metavar="R",
        help="the rank to run (default 0: it has the first stage, with the embedding and the most micro-batches in flight)",
    )  # fmt: skip
    parser.add_argument("--steps", type=positive("--steps"), metavar="N", help="steps to measure after 3 of warm-up (default 10)")
    parser.add_argument("--out", metavar="DIR", help="folder for measurement.json and log (default: <plan>-shadow)")
    parser.add_argument("--json", action="store_true", help="print the measurement as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Runs the rank; returns 1 if it failed."""
    path = Path(options.plan)
    plan = plan_file.read(path)
    folder = Path(options.out) if options.out else plan_file.default_output(path, "-shadow")
    settings = replace(api.DEFAULTS, steps=options.steps or api.DEFAULTS.steps)
    measurement = api.shadow(plan, folder, options.rank, settings)
    if options.json:
        render.show_json(measurement)
    else:
        from strategist.report.shadow import shadow_report

        render.show(shadow_report(plan, measurement, options.rank))
        render.line(f"\nwritten to {folder / 'measurement.json'}")
    return 0 if measurement.outcome is Outcome.OK else FAILED
