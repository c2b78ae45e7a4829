"""``strategist scale``: measures a plan on increasing numbers of devices."""

import argparse
import re
from pathlib import Path

from strategist import api
from strategist.cli import plan_file, render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, positive
from strategist.contract import codec
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.scaling import ScalingPoint
from strategist.errors import InputError


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("--gpus", metavar="COUNTS", required=True, type=counts, help="devices to measure on, as in 1,2,4,8")
    parser.add_argument("--weak", action="store_true", help="let the global batch grow with the devices (default: constant)")
    parser.add_argument("--out", metavar="DIR", help="folder for scaling.json, scaling.svg and the trials (default: <plan>-scale)")
    parser.add_argument("--steps", type=positive("--steps"), metavar="N", help="steps to measure after warm-up (default 10)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(command=run)


def counts(text: str) -> tuple[int, ...]:
    """Type of an option: a list of counts."""
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text, re.ASCII) or 0 in map(int, text.split(",")):
        raise InputError(f"--gpus {text}", "counts of devices are needed", "write e.g. --gpus 1,2,4,8")
    return tuple(sorted({int(item) for item in text.split(",")}))


def run(options: argparse.Namespace) -> int:
    """Measures each count; returns 1 if a trial failed."""
    path = Path(options.plan)
    folder = Path(options.out) if options.out else plan_file.default_output(path, "-scale")
    settings = TrialSettings(steps=options.steps) if options.steps else TrialSettings()
    result = api.scale(codec.load(Plan, path), options.gpus, folder, settings, weak=options.weak, on_point=_print_point)
    if options.json:
        render.show_json(result)
    else:
        from strategist.report.scaling import scaling_report

        render.show(scaling_report(result))
        render.line(f"\nwritten to {folder / 'scaling.json'} and {folder / 'scaling.svg'}")
    return 0 if all(point.outcome is Outcome.OK for point in result.points) else FAILED


def _print_point(point: ScalingPoint) -> None:
    render.print_note(f"{point.devices} devices ({point.how}): {point.outcome.value}")
