"""The options that say what starts the ranks, and where."""

import argparse
from typing import TYPE_CHECKING

from strategist.cli.parser import Parser
from strategist.errors import InputError

if TYPE_CHECKING:
    from strategist.executors.engine import Engine

ENGINES = ("torchrun", "slurm")


def add(parser: Parser) -> None:
    """The options."""
    group = parser.add_argument_group("where ranks run")
    group.add_argument("--engine", default="torchrun", metavar="NAME", help=f"{' or '.join(ENGINES)} (default torchrun, here)")
    group.add_argument(
        "--hosts", metavar="NAMES", help="equally many ranks on each of these, which share the folder; e.g. node1,node2=10.0.0.2"
    )
    group.add_argument(
        "--remote-shell", metavar="WORDS",
        help="how a command gets to a host, e.g. 'kubectl exec -i {host} -- sh -c {command}' (default: ssh)",
    )  # fmt: skip
    group.add_argument(
        "--slurm",
        metavar="OPTIONS",
        help="more options for srun, as in --slurm=--partition=gpu; nodes and GPUs are the plan's",
    )


def given(options: argparse.Namespace) -> "Engine | None":
    """What was asked for, None for torchrun on this machine.

    Raises:
        InputError: what was named is no engine, or belongs to another one.
    """
    if options.engine not in ENGINES:
        raise InputError(f"--engine {options.engine}", "is not known", f"choose {' or '.join(ENGINES)}")
    slurm = options.engine == "slurm"
    for name, belongs in (("hosts", not slurm), ("remote_shell", not slurm and options.hosts is not None), ("slurm", slurm)):
        if getattr(options, name) is not None and not belongs:
            law = "is for --engine slurm" if name == "slurm" else "is for --engine torchrun with --hosts"
            raise InputError(f"--{name.replace('_', '-')}", law, "leave it out")
    if not slurm and options.hosts is None:
        return None
    from strategist.executors import engine

    return engine.Slurm(options=options.slurm or "") if slurm else engine.hosts(options.hosts, options.remote_shell or engine.SSH)
