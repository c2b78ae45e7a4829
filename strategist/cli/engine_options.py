"""Options that select the launcher of the ranks, and its hosts."""

import argparse
import os
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli.parser import Parser, option_name
from strategist.errors import InputError, not_among

if TYPE_CHECKING:
    from strategist.api import Engine

ENGINES = ("torchrun", "slurm", "ray")


def add(parser: Parser) -> None:
    """The options."""
    group = parser.add_argument_group("launcher of the ranks")
    group.add_argument("--engine", default="torchrun", metavar="NAME", help=f"{', '.join(ENGINES)} (default torchrun, here)")
    group.add_argument(
        "--hosts", metavar="NAMES", help="hosts, with equally many ranks each and a shared folder, e.g. node1,node2=10.0.0.2"
    )
    group.add_argument(
        "--remote-shell", metavar="WORDS",
        help="command that runs a command on a host, e.g. 'kubectl exec -i {host} -- sh -c {command}' (default: ssh)",
    )  # fmt: skip
    group.add_argument(
        "--slurm",
        metavar="OPTIONS",
        help="more options for srun, as in --slurm=--partition=gpu; nodes and GPUs are the plan's",
    )
    group.add_argument(
        "--ray", metavar="ADDRESS", help="the Ray cluster that this machine is a node of (default: that of RAY_ADDRESS, else auto)"
    )


def given(options: argparse.Namespace) -> "Engine | None":
    """The requested engine; None for torchrun on this machine.

    Raises:
        InputError: the engine is unknown, or an option belongs to another one.
    """
    if options.engine not in ENGINES:
        raise not_among(f"--engine {options.engine}", options.engine, ENGINES)
    by_torchrun = options.engine == "torchrun"
    allowed = {
        "hosts": by_torchrun, "remote_shell": by_torchrun and options.hosts is not None, "slurm": options.engine == "slurm",
        "ray": options.engine == "ray",
    }  # fmt: skip
    for name, is_allowed in allowed.items():
        if getattr(options, name) is not None and not is_allowed:
            law = f"is for --engine {name}" if name in ENGINES else "is for --engine torchrun with --hosts"
            raise InputError(option_name(name), law, "leave it out")
    if by_torchrun and options.hosts is None:
        return None
    if options.engine == "slurm":
        return api.Slurm(options=options.slurm or "")
    if options.engine == "ray":
        return api.Ray(address=os.environ.get("RAY_ADDRESS", "auto") if options.ray is None else options.ray)
    return api.hosts(options.hosts, options.remote_shell or "")
