"""``strategist doctor``: problems of the machine or the installation, and how to fix them."""

import argparse
from collections import Counter
from pathlib import Path

from strategist import api
from strategist.cli import render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser
from strategist.contract.diagnostic import Level


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--folder", metavar="DIR", default=".", help="where checkpoints are to be written (default: here)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """One line for each finding; 1 where one is an error."""
    findings = api.doctor(Path(options.folder))
    failed = any(finding.level is Level.ERROR for finding in findings)
    if options.json:
        render.show_json(list(findings))
        return FAILED if failed else 0
    for finding in findings:
        render.line(str(finding))
    counts = Counter(finding.level for finding in findings)
    lines = [
        f"{counts[level]} {level.value}{'s' if counts[level] > 1 else ''}"
        for level in (Level.ERROR, Level.WARNING)
        if counts[level]
    ]
    render.line(", ".join(lines) if lines else "nothing is wrong")
    return FAILED if failed else 0
