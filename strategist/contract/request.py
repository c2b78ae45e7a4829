"""Request: the user's input, unchanged."""

from dataclasses import field
from math import inf

from strategist.contract.codec import added, shared
from strategist.contract.estimate import DEFAULT_CONFIDENCE
from strategist.contract.knobs import CONVERGENCE_KNOBS, KnobValue
from strategist.contract.options import CONVERGENCE_OPTIONS
from strategist.contract.settings import check_setting
from strategist.contract.workload import Workload
from strategist.errors import InputError, not_among
from strategist.frozen import frozen

OBJECTIVES = ("throughput", "memory", "cost", "energy")
"""Objectives of the ranking: tokens/s, free memory, tokens per dollar or per joule; plans for the last two may leave nodes idle."""

EXAMPLES = {"node-failures": "--node-failures 6h", "price": "--price 2.5"}

CONVERGENCE = (*CONVERGENCE_KNOBS, *CONVERGENCE_OPTIONS, "optimizer", "global_batch")
"""Settings that can change the result of training, and change only if allowed: knobs, options, optimizer (8-bit states), global
batch.
"""

_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "model": (str, "'8b'"),
    "gpus": (str, "'8xH100'"),
    "workload": (Workload, "Workload(seq_len=4096)"),
    "objective": (str, "'throughput'"),
    "backend": (str, "'native'"),
    "fix": (dict, "{'tp': 2}"),
    "allow": ((tuple, list), "('float8',)"),
    "without": ((tuple, list), "('TP-003',)"),
    "confidence": ((int, float), "0.9"),
    "tokens": ((int, type(None)), "300_000_000_000"),
    "host_memory_bytes": ((int, float, type(None)), "2**39"),
    "node_seconds_between_failures": ((int, float, type(None)), "21_600.0"),
    "price_per_hour": ((int, float, type(None)), "2.5"),
}
"""Fields set by Python code, with their types and an example for error messages."""


@shared
@frozen
class Request:
    """The user's input to the planner.

    model, gpus: names or paths, resolved by ``strategist.profiles``.
    fix: settings with a fixed value (``tp=2``, ``recompute=full``).
    allow: names from CONVERGENCE that may change.
    backend: profile of the executor that the plan must run on, or ``any``.
    tokens: number of tokens of the whole training; None if unknown.
    confidence: smallest probability with which a plan must fit.
    host_memory_bytes: per node; None if unknown. node_seconds_between_failures, price_per_hour (per device): replace those of the
        cluster; None keeps the cluster's.
    without: ids of cards to leave out.
    """

    model: str
    gpus: str
    workload: Workload = field(default_factory=Workload)
    objective: str = "throughput"
    host_memory_bytes: int | None = None
    fix: dict[str, KnobValue] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    backend: str = "any"
    tokens: int | None = None
    confidence: float = DEFAULT_CONFIDENCE
    node_seconds_between_failures: float | None = added(None)
    price_per_hour: float | None = added(None)
    without: tuple[str, ...] = added(())

    def __post_init__(self) -> None:
        for name, (kinds, example) in _KINDS.items():
            if not isinstance(value := getattr(self, name), kinds) or isinstance(value, bool):
                raise InputError(f"{name} {value!r}", f"is of the type {type(value).__name__}", f"write e.g. {name}={example}")
        for setting, value in self.fix.items():
            check_setting(setting, value)
        if self.objective not in OBJECTIVES:
            raise not_among(f"--objective {self.objective}", str(self.objective), OBJECTIVES)
        if not 0.5 <= self.confidence < 1:
            raise InputError(f"--confidence {self.confidence}", "must lie from 0.5 to below 1", "write e.g. 0.9")
        for name, given in (("node-failures", self.node_seconds_between_failures), ("price", self.price_per_hour)):
            if given is not None and not 0 < given < inf:
                raise InputError(f"--{name} {given:g}", "must be above 0", f"write e.g. {EXAMPLES[name]}")
        if self.tokens is not None and self.tokens < 1:
            raise InputError(f"--tokens {self.tokens}", "must be at least 1", "write e.g. 300B or 15T")
