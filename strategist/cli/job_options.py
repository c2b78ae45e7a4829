"""Options of the job that starts an exported plan on its nodes."""

import argparse
from typing import TYPE_CHECKING, Any

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, option_name, typed_options
from strategist.errors import InputError

if TYPE_CHECKING:
    from strategist.api import JobOptions

INPUTS = ("weights", "data", "tokenizer")
TEXTS = ("image", "workdir", "hosts", "remote_shell", "slurm", "arguments")
PAIRS = {
    "volume": "volumes", "env": "environment", "secret": "secrets", "resource": "resources", "node_label": "node_labels",
}  # fmt: skip
"""Repeatable options, and the fields of a job that they fill."""


def add(parser: Parser, kinds: str) -> None:
    """Adds the options; ``kinds`` lists the kinds of jobs for the help."""
    _add_inputs(parser.add_argument_group("inputs of the training, in place of the placeholders in the files"))
    group = parser.add_argument_group("job")
    group.add_argument("--job", default="", metavar="KIND", help=f"kind of job to write: {kinds}")
    _add_container(group)
    _add_start(group)


def _add_inputs(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--weights", metavar="PLACE", help="initial weights: a folder, or a Hub id where the framework takes one")
    group.add_argument("--data", metavar="PLACE", help="training data, as the framework names it")
    group.add_argument("--tokenizer", metavar="PLACE", help="folder or Hub id of the tokenizer")


def _add_container(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--image", default="", metavar="NAME", help="the container's image, for jobs of Kubernetes")
    group.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="copy this file to the nodes as well, e.g. train.py; may be repeated",
    )
    group.add_argument(
        "--workdir",
        default="",
        metavar="PLACE",
        help="the folder on each node in which it runs; the files are copied into it",
    )
    group.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the job; may be repeated")
    group.add_argument(
        "--secret", action="append", default=[], metavar="NAME=SECRET/KEY",
        help="a variable from a Secret of Kubernetes, e.g. HF_TOKEN=hub/token; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--volume", action="append", default=[], metavar="CLAIM=PLACE", help="mount this claim in Kubernetes' pods; may be repeated"
    )
    group.add_argument(
        "--resource", action="append", default=[], metavar="NAME=COUNT",
        help="further resources of a node's container, e.g. memory=900Gi or vpc.amazonaws.com/efa=32; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--node-label", action="append", default=[], metavar="NAME=VALUE",
        help="run on nodes of Kubernetes with this label only, e.g. nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3; may be repeated",
    )  # fmt: skip


def _add_start(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--hosts", default="", metavar="NAMES", help="hosts of --job hosts, with addresses, e.g. node1,node2=10.0.0.2"
    )
    group.add_argument("--remote-shell", default="", metavar="WORDS", help="command that runs a command on a host (default: ssh)")
    group.add_argument("--slurm", default="", metavar="OPTIONS", help="more options of sbatch, as in --slurm=--partition=gpu")
    group.add_argument(
        "--arguments", default="", metavar="WORDS", help="arguments of the start script, as in --arguments='--steps 1000'"
    )
    group.add_argument(
        "--restarts", type=int, metavar="N",
        help="restart a failed training, at most N times, from its last checkpoint if it saves (default: the plan's)",
    )  # fmt: skip


def inputs(options: argparse.Namespace) -> dict[str, str]:
    """Weights, data and tokenizer, if named."""
    return {name: value for name in INPUTS if (value := getattr(options, name))}


def given(options: argparse.Namespace) -> "JobOptions":
    """Values of the options; those that the kind of job ignores are reported.

    Raises:
        InputError, FileError: an option is invalid, or a file cannot be shipped.
    """
    texts: dict[str, Any] = {name: value for name in TEXTS if (value := getattr(options, name))}
    pairs: dict[str, Any] = {field: _pairs(option_name(name), getattr(options, name)) for name, field in PAIRS.items()}
    job = api.JobOptions(files=tuple(map(api.job_file, options.file)), restarts=options.restarts, **texts, **pairs)
    typed = typed_options(options.typed)
    for field in api.unused_job_options(options.job, job) if options.job else ():
        if (name := _option(field)) in typed:  # values of a configuration file apply to any job
            render.print_note(f"{name} is not used by --job {options.job}")
    return job


def _option(field: str) -> str:
    """The option that fills a field of a job."""
    return option_name(next((name for name, field_name in PAIRS.items() if field_name == field), field))


def _pairs(name: str, texts: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign:
            raise InputError(f"{name} {text}", "has no = in it", f"write {name} NAME=VALUE")
        if pairs.setdefault(key, value) != value:
            raise InputError(f"{name} {text}", f"{key} is {pairs[key]} already", "keep one of the two")
    return pairs
