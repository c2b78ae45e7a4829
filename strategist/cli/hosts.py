"""The options that say on which hosts ranks run."""

import argparse
from typing import TYPE_CHECKING

from strategist.cli.parser import Parser
from strategist.errors import InputError

if TYPE_CHECKING:
    from strategist.executors.hosts import Hosts


def add(parser: Parser) -> None:
    """The options."""
    parser.add_argument(
        "--hosts",
        metavar="NAMES",
        help="run equally many ranks on each of these, which share the folder; e.g. node1,node2=10.0.0.2",
    )
    parser.add_argument(
        "--remote-shell", metavar="WORDS",
        help="how a command gets to a host, e.g. 'srun -N1 -n1 -w {host} sh -c {command}' (default: ssh)",
    )  # fmt: skip


def given(options: argparse.Namespace) -> "Hosts | None":
    """Those that were named, None where none were.

    Raises:
        InputError: what was named are no hosts, or no way to them.
    """
    if options.hosts is None:
        if options.remote_shell is not None:
            raise InputError("--remote-shell", "leads to hosts, and none are named", "name them with --hosts")
        return None
    from strategist.executors.hosts import SSH, parsed

    return parsed(options.hosts, options.remote_shell or SSH)
