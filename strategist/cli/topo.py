"""``strategist topo``: topology of this node as a drawing and as a cluster file."""

import argparse
from pathlib import Path

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, add_output, positive


def add(parser: Parser) -> None:
    """The options of the command."""
    add_output(parser, "-o", "--out", help="write a cluster file of such nodes, for --gpus FILE")
    parser.add_argument("--nodes", type=positive("--nodes"), default=1, metavar="N", help="number of such nodes (default 1)")
    parser.add_argument("--json", action="store_true", help="print the topology as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Reads the topology, draws it, and writes the file."""
    topology = api.topology(options.out and Path(options.out), nodes=options.nodes, force=options.force)
    if options.json:
        render.show_json(topology)
    else:
        from strategist.report.topology import topology_report

        render.show(topology_report(topology))
    if options.out:
        render.print_note(f"written to {options.out}: plan with --gpus {options.out}")
    return 0
