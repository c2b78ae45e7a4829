"""``strategist profile``: measures this machine and writes what it found as a cluster file."""

import argparse
from pathlib import Path

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, positive


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("-o", "--out", metavar="FILE", help="the cluster file (default: where --gpus local looks for it)")
    parser.add_argument("--ranks", type=positive("--ranks"), metavar="N", help="ranks that measure (default: one a GPU, or a core)")
    parser.add_argument("--cpu", action="store_true", help="measure the CPU where there are GPUs")
    parser.add_argument("--json", action="store_true", help="print all samples as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Measures, writes the file and its samples beside it, and shows what was found."""
    path, record = api.profile_machine(options.out, ranks=options.ranks, cpu=options.cpu)
    if options.json:
        render.show_json(record)
        return 0
    from strategist.report.machine import machine_report

    render.show(machine_report(record))
    render.line(f"\nwritten to {path}, its samples to {Path(path).with_suffix('.json')}")
    used = "" if options.out is None else f" with --gpus {path}"
    render.line(f"plans use it{used or ' with --gpus local'}")
    return 0
