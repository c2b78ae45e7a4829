"""Options that make a request, shared by the commands that take one."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from strategist import api
from strategist.cli import deck_options
from strategist.cli.parser import Parser, above_zero, share, whole
from strategist.contract.estimate import DEFAULT_CONFIDENCE
from strategist.contract.knobs import KnobValue
from strategist.contract.request import OBJECTIVES, Request
from strategist.contract.setting_parser import parse_allow, parse_fix
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES, Workload
from strategist.errors import InputError
from strategist.units import SECONDS, parse_memory_bytes, parse_quantity

WORKLOAD = ("seq_len", "global_batch", "document_tokens", "train", "lora_rank", "optimizer", "precision")
"""Options that are fields of the workload."""


def add(parser: Parser) -> None:
    """Adds the options of a request; given ones override the request file."""
    group = parser.add_argument_group("request")
    add_situation(group)
    group.add_argument("--objective", metavar="GOAL", help=_choices(OBJECTIVES, OBJECTIVES[0]))
    confidence_help = f"probability with which a plan must fit the memory, from 0.5 on (default {DEFAULT_CONFIDENCE})"
    group.add_argument("--confidence", type=share("--confidence"), metavar="P", help=confidence_help)
    group.add_argument(
        "--allow",
        action="append",
        metavar="KNOBS",
        help="settings that the search may use although they can change convergence, e.g. float8,comm_hook; may be repeated",
    )
    group.add_argument(
        "--node-failures", metavar="TIME", help="mean time until a node fails, or a spot instance is taken away, e.g. 6h"
    )
    group.add_argument(
        "--price", type=above_zero("--price"), metavar="DOLLARS", help="US dollars per device and hour, e.g. of a spot instance"
    )
    group.add_argument(
        "--backend", metavar="NAME", help="back end that runs the plan: any, native, a program's name or file, or a format"
    )
    group.add_argument("--request", metavar="FILE", help="a YAML file with these options, and with settings that have no option")
    deck_options.add(group)
    deck_options.add_calibration(group)


def add_situation(group: "argparse._ArgumentGroup") -> None:
    """Adds model, GPUs, workload, and fixed settings."""
    defaults = Workload()
    group.add_argument("--model", metavar="NAME", help="preset, size such as 32b, config.json or its folder, Hub id, or YAML shape")
    group.add_argument("--gpus", metavar="GPUS", help="8x24GB, 64xH100, 16x8xH100 (nodes x GPUs), local, or a cluster file")
    group.add_argument("--seq-len", type=whole("--seq-len"), metavar="N", help=f"tokens of a sequence (default {defaults.seq_len})")
    group.add_argument(
        "--global-batch", type=whole("--global-batch"), metavar="N", help=f"sequences of a step (default {defaults.global_batch})"
    )
    group.add_argument(
        "--document-tokens", type=whole("--document-tokens"), metavar="N",
        help="mean length of packed documents, to which attention is limited (default: a sequence is one document)",
    )  # fmt: skip
    group.add_argument("--train", metavar="MODE", help=_choices(TRAIN_MODES, defaults.train))
    group.add_argument(
        "--lora-rank", type=whole("--lora-rank"), metavar="N", help=f"rank of adapters (default {defaults.lora_rank})"
    )
    group.add_argument("--optimizer", metavar="NAME", help=_choices(OPTIMIZERS, defaults.optimizer))
    group.add_argument("--precision", metavar="TYPE", help=_choices(PRECISIONS, defaults.precision))
    group.add_argument("--host-memory", metavar="SIZE", help="host memory of a node, e.g. 512GiB")
    group.add_argument(
        "--fix",
        action="append",
        metavar="KNOB=VALUE",
        help="required settings, e.g. tp=2 or tp=2,recompute=full; may be repeated",
    )


def request(options: argparse.Namespace, backend: str = "any") -> Request:
    """The request that the options make, based on the request file if one is named; ``backend`` is the default.

    Raises:
        InputError, FileError: an option is invalid, or the file cannot be read.
    """
    fields = dict(_request_fields(options))
    workload = {name: fields.pop(name) for name in WORKLOAD if name in fields}
    if options.request:
        base = api.load_request(options.request)
        fields["fix"] = {**base.fix, **fields.get("fix", {})}
        fields["allow"] = tuple(dict.fromkeys((*base.allow, *fields.get("allow", ()))))
        return replace(base, workload=replace(base.workload, **workload), **fields)
    for name, example in (("model", "32b"), ("gpus", "8x24GB")):
        if name not in fields:
            raise InputError(f"--{name}", "is missing", f"write e.g. --{name} {example}, or name a request file with --request")
    return Request(workload=Workload(**workload), **{"backend": backend, **fields})


def any_given(options: argparse.Namespace) -> bool:
    """Whether any of the options is given."""
    return options.request is not None or any(True for _ in _request_fields(options))


def given_request_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Given options of :func:`add_situation`, by field of Request and Workload."""
    return dict(_situation_fields(options))


def _situation_fields(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    for name in ("model", "gpus", *WORKLOAD):
        if getattr(options, name) is not None:
            yield name, getattr(options, name)
    if options.host_memory is not None:
        yield "host_memory_bytes", parse_memory_bytes(options.host_memory, "--host-memory")
    if options.fix:
        yield "fix", _fixed(options.fix)


def _request_fields(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Given options, by field of Request and Workload."""
    yield from _situation_fields(options)
    for name in ("objective", "confidence", "backend"):
        if getattr(options, name) is not None:
            yield name, getattr(options, name)
    if options.node_failures is not None:
        yield "node_seconds_between_failures", parse_quantity(options.node_failures, SECONDS, "--node-failures")
    if options.price is not None:
        yield "price_per_hour", options.price
    if options.allow:
        yield "allow", tuple(name for text in options.allow for name in parse_allow(text))


def _fixed(texts: Sequence[str]) -> dict[str, KnobValue]:
    """Fixed settings; a setting fixed to two values is an error."""
    fixed: dict[str, KnobValue] = {}
    for text in (part for values in texts for part in values.split(",")):
        name, value = parse_fix(text)
        if fixed.setdefault(name, value) != value:
            raise InputError(f"--fix {text}", f"{name} is fixed to {fixed[name]} already", "keep one of the two")
    return fixed


def _choices(values: tuple[str, ...], default: str) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]} (default {default})"
