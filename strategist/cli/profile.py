"""``strategist profile``: measures this machine, or reads what nccl-tests measured, and writes a cluster file."""

import argparse
from pathlib import Path

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, add_output, positive
from strategist.errors import InputError


def add(parser: Parser) -> None:
    """The options of the command."""
    add_output(parser, "-o", "--out", help="the cluster file (default: where --gpus local looks for it)")
    parser.add_argument("--ranks", type=positive("--ranks"), metavar="N", help="ranks that measure (default: one a GPU, or a core)")
    parser.add_argument("--cpu", action="store_true", help="measure the CPU where there are GPUs")
    parser.add_argument(
        "--nccl-tests", nargs="+", metavar="LOG",
        help="measure nothing here, but take links from outputs of nccl-tests: all_reduce_perf, all_gather_perf,"
        " reduce_scatter_perf, sendrecv_perf",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print all samples as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Measures, writes the cluster file and its samples, and shows the result."""
    if options.nccl_tests:
        return _links(options)
    path, record = api.profile_machine(options.out, ranks=options.ranks, cpu=options.cpu, force=options.force)
    if options.json:
        render.show_json(record)
        return 0
    from strategist.report.machine import machine_report

    render.show(machine_report(record))
    render.line(f"\nwritten to {path}, its samples to {Path(path).with_suffix('.json')}")
    gpus_option = "" if options.out is None else f" with --gpus {path}"
    render.line(f"plans use it{gpus_option or ' with --gpus local'}")
    return 0


def _links(options: argparse.Namespace) -> int:
    """Writes the links that logs of nccl-tests show, and prints them."""
    value = f"--nccl-tests {options.nccl_tests[0]}"
    if options.out is None:
        raise InputError(value, "is written to a file of its own, as it may be of other machines than this", "add -o cluster.yaml")
    if options.ranks or options.cpu:
        raise InputError(value, "measures nothing here", "leave out --ranks and --cpu")
    path, cluster = api.profile_links(options.nccl_tests, options.out, force=options.force)
    if options.json:
        render.show_json(cluster)
        return 0
    from strategist.report.machine import links_report

    render.show(links_report(cluster))
    render.line(f"\nwritten to {path}\nplans use it with --gpus {path}")
    return 0
