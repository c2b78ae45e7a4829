"""Witnesses: concrete situations and candidates, found by trying values near those in conditions, and confirmed by evaluation.

The search is bounded: finding no witness proves nothing; a witness that is found is correct.
"""

import random
from collections.abc import Iterator, Mapping
from itertools import islice, product
from math import prod
from typing import Any

from strategist.contract.knobs import LOOPED, V_SHAPED, Candidate, Knobs
from strategist.contract.layout import AXES, Layout
from strategist.contract.model import ModelShape, MoEShape
from strategist.contract.settings import with_settings
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.expr.columns import row_of
from strategist.expr.vocabulary import CANDIDATE, SETTINGS, VOCABULARY
from strategist.lint.satisfiability import Region
from strategist.lint.value_sets import universe

MAX_REGIONS, MAX_TRIES = 12, 120
"""Maximum number of regions to search, and of situations to try in each."""

Row = Mapping[str, Any]

_POOL: dict[str, tuple[float | int, ...]] = {
    "count": (1, 2, 8, 4096), "none": (1, 0.01, 100), "ratio": (0.5, 0.01, 0.99), "bytes": (2**34, 2**38, 2**42, 2**28),
    "seconds": (1, 0.001, 86400), "bytes/s": (10**11, 10**9, 10**13), "flop/s": (10**15, 10**12), "tokens/s": (10**5, 10**3),
}  # fmt: skip
"""Values, by unit, for a name that occurs only in arithmetic: ordinary ones first, then small and large ones."""

_DIVISIBLE_SIZE = 46_080
"""Size for names that no condition uses; the usual degrees divide it."""


def situations(region: Region, names: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Values of ``names`` in a region, ends of their domains first; :func:`complete_facts` derives the dependent values."""
    degrees = {f"layout.{axis}" for axis in AXES}
    free_names = {name for name in names if _is_free(name)}
    free = sorted(free_names | degrees if free_names < names else free_names)
    values = [_samples(name, region) for name in free]
    if prod(map(len, values)) <= MAX_TRIES:
        combinations: Iterator[tuple[Any, ...]] = product(*values)
    else:
        generator = random.Random(0)  # the same tries for the same conditions
        combinations = (tuple(map(generator.choice, values)) for _ in range(MAX_TRIES))
    for combination in islice(combinations, MAX_TRIES):
        yield _with_dependent_values(dict(zip(free, combination, strict=True)), region)


def complete_facts(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Facts and a complete candidate with these values; None if no cluster, model and workload can have them."""
    settings = {name.partition(".")[2]: value for name, value in values.items() if name in SETTINGS}
    facts = {name: value for name, value in values.items() if VOCABULARY[name].phase != CANDIDATE}
    candidate = with_settings(Candidate(layout=Layout(), knobs=Knobs()), _required_settings(settings) | settings)
    sequences = candidate.layout.data_ranks * candidate.knobs.micro_batch
    default_batch = int(facts.get("workload.global_batch", 4 * candidate.layout.pp * sequences))
    accumulation = values.get("knobs.accumulation") or max(1, default_batch // sequences)
    if facts.get("workload.global_batch", accumulation * sequences) != accumulation * sequences:
        return None
    row = {**facts, **row_of(candidate, accumulation)}
    return row if _is_coherent(row) and _is_legal(candidate, facts, accumulation * sequences) else None


def _required_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that laws require together with the given ones, for settings that no condition uses."""
    found: dict[str, Any] = {}
    if settings.get("pp", 1) > 1:
        found["no_sync"] = True
        found["pp_virtual_stages"] = 2 if settings.get("pp_schedule") in (*LOOPED, *V_SHAPED) else 1
    if settings.get("reshard_after_forward") == "subgroup":
        found["reshard_group_size"] = 2
    if settings.get("recompute") == "budget" or settings.get("fullgraph") or settings.get("async_tp"):
        found["compile"] = True
    if settings.get("async_tp"):
        found["sequence_parallel"] = True
    if settings.get("float8_all_gather"):
        found["float8"] = "tensorwise"
    return found


def _is_free(name: str) -> bool:
    return name in SETTINGS or VOCABULARY[name].phase != CANDIDATE or name == "knobs.accumulation"


def _samples(name: str, region: Region) -> tuple[Any, ...]:
    entry = VOCABULARY[name]
    if name in region:
        return region[name].samples() or _POOL.get(entry.unit, (1,))
    return entry.choices or universe(entry).samples()[: 0 if entry.kind in ("int", "float") else None] or _POOL[entry.unit]


def _with_dependent_values(values: dict[str, Any], region: Region) -> dict[str, Any]:
    """The values with dependent ones adjusted, unless a condition uses them."""
    devices = values.get("cluster.devices") or values.get("cluster.nodes", 0) * values.get("cluster.gpus_per_node", 0)
    filler = next((name for name in ("layout.dp_shard", "layout.dp_replicate") if name not in region), "")
    if devices and filler:
        rest = prod(values.get(f"layout.{axis}", 1) for axis in AXES)
        rest //= values.get(filler, 1)
        values[filler] = max(1, int(devices) // rest)
    if "model.is_moe" in values and "model.experts" in values and "model.experts" not in region:
        values["model.experts"] = 8 if values["model.is_moe"] else 0
    return values


_AT_MOST = (
    ("device.usable_memory_bytes", "device.memory_bytes"), ("model.active_parameters", "model.parameters"),
    ("model.parameter_bytes", "model.state_bytes"), ("model.layer_bytes", "model.parameter_bytes"),
    ("model.experts_per_token", "model.experts"), ("model.kv_heads", "model.heads"), ("cluster.nodes", "cluster.devices"),
    ("cluster.gpus_per_node", "cluster.devices"), ("cluster.devices", "layout.world_size"),
    ("layout.world_size", "cluster.devices"), ("cluster.nodes", "layout.world_size"),
    ("observed.exposed_comm_ratio", "observed.comm_ratio"), ("layout.pp", "model.layers"),
)  # fmt: skip
"""Pairs of names; the first is never greater than the second."""


def _is_coherent(row: Row) -> bool:
    """Whether the facts are consistent with each other."""
    pairs = ((row.get(low), row.get(high)) for low, high in _AT_MOST)
    if any(low is not None and high is not None and low > high for low, high in pairs):
        return False
    nodes, gpus_per_node = row.get("cluster.nodes"), row.get("cluster.gpus_per_node")
    if nodes and gpus_per_node and nodes * gpus_per_node != row["layout.world_size"]:
        return False
    moe, experts = row.get("model.is_moe"), row.get("model.experts")
    return moe is None or experts is None or moe == (experts > 0)


def _is_legal(candidate: Candidate, facts: Row, global_batch: int) -> bool:
    """Whether a model and workload with these facts exist for which the candidate is legal."""

    def size(name: str) -> int:
        return max(1, int(facts.get(name, _DIVISIBLE_SIZE)))

    moe = None
    if facts.get("model.is_moe", candidate.layout.ep > 1 or facts.get("model.experts", 0) > 0):
        experts, width = size("model.experts"), size("model.expert_ffn_size")
        moe = MoEShape(experts=experts, experts_per_token=min(experts, 8), expert_ffn_size=width)
    names = ("layers", "hidden_size", "heads", "head_size", "ffn_size", "vocab_size")
    sizes: dict[str, Any] = {name: size(f"model.{name}") for name in names}
    kv_heads = int(facts.get("model.kv_heads", sizes["heads"]))
    try:
        model = ModelShape(name="any", moe=moe, kv_heads=kv_heads, **sizes)
        settings = {name: facts[f"workload.{name}"] for name in ("precision", "optimizer", "train") if f"workload.{name}" in facts}
        workload = Workload(seq_len=size("workload.seq_len"), global_batch=global_batch, **settings)
    except InputError:
        return False
    return not candidate.violations(model, workload, candidate.layout.world_size)
