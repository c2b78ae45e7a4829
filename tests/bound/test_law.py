"""No price is below its lower bound: random candidates, every stack with its shipped calibration."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import pytest

from strategist.bound.lower_bound import lower_bound
from strategist.contract.bound import Bound
from strategist.contract.cluster import Cluster, Link
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.price import price
from strategist.cost.shipped_calibrations import calibration_for
from strategist.expr.columns import Columns
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.profiles.stacks import load_stack, stack_names
from strategist.programs.backends import load_backend
from strategist.search.candidate_tables import candidate_table
from strategist.search.rank import candidate
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

REQUESTS = (
    ("8b", "8xH100", 4096, 64),
    ("70b", "8x8xH100", 8192, 128),
    ("llama3-405b", "64x8xH100", 8192, 512),
    ("llama3-405b", "2048x8xH100", 8192, 2048),
    ("deepseek-v3", "256x8xH100", 4096, 4096),
    ("32b", "8x24GB", 4096, 32),
    ("gpt-oss-20b", "2x8xA100-80GB", 4096, 64),
    ("gpt3-175b", "128x8xA100-80GB", 2048, 1536),
    ("8b", "2x8xB200", 131072, 16),
    ("mixtral-8x7b", "4x8xMI300X", 4096, 128),
    ("qwen2.5-0.5b", "8xRTX4090", 512, 8),
    ("8b", "2x8xV100-32GB", 2048, 64),
    ("8b", "4x8xRTX4090", 4096, 64),
)
"""Model, cluster, tokens of a sequence and sequences of a step."""
SLOW_REQUESTS = (("8b", "4x8xH100", 4096, 64), ("70b", "8x8xH100", 8192, 128))
"""The same between nodes of one port of ten gigabit for eight devices: transfers between stages fill it."""
SLOW_BYTES_PER_SECOND = 1.25e9 / 8
QUICKEST = Calibration(
    compute=1e-3, attention=1e-3, memory_bound=1e-3, launch=1e-3, communication=1e-3, inter=1e-3, latency=1e-3,
    tensor=0.0, expert=0.0, host=1e-3,
)  # fmt: skip
"""Factors far below any measured ones: a calibrated rate never exceeds the hardware's peak."""
BOUND_BY = attrgetter("attention", "fp16_sums", "gradient_bytes", "memory_traits.parameters", "memory_traits.split")
"""Fields of a stack that a bound depends on; stacks with equal values share their bounds."""

BLOCKS = 40
"""Random layouts of each request."""

FEW_DRAWS, MANY_DRAWS = 10_000, 1_000_000

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # no NaN on the way to a price


@dataclass(frozen=True, kw_only=True)
class Prices:
    """A stack with its calibrations, which scale and shape a price."""

    stack: Stack
    calibrations: tuple[Calibration, ...]


def all_prices() -> list[Prices]:
    """The native stack uncalibrated, at the hardware's limits and as shipped, and every published stack as shipped."""
    own = Prices(stack=NATIVE, calibrations=(NEUTRAL, QUICKEST, calibration_for(NATIVE)))
    known = [load_stack(name) for name in stack_names()]
    return [own, *(Prices(stack=stack, calibrations=(calibration_for(stack),)) for stack in known)]


@dataclass(frozen=True, kw_only=True)
class Situation:
    model: ModelShape
    cluster: Cluster
    workload: Workload


def situations(kinds: tuple[str, ...]) -> Iterator[Situation]:
    """Each request in each kind of training or precision."""
    for model, cluster, seq_len, batch in requests():
        for kind in kinds:
            workload = Workload(seq_len=seq_len, global_batch=batch, **({"train": kind} if kind != "fp32" else {"precision": kind}))
            yield Situation(model=resolve_model(model).shape, cluster=cluster, workload=workload)


def requests() -> Iterator[tuple[str, Cluster, int, int]]:
    """All requests, the slow ones with their links."""
    yield from ((model, resolve_cluster(gpus), seq_len, batch) for model, gpus, seq_len, batch in REQUESTS)
    for model, gpus, seq_len, batch in SLOW_REQUESTS:
        cluster = resolve_cluster(gpus)
        rates = dict.fromkeys(("bytes_per_second", "pair_bytes_per_second", "line_bytes_per_second"), SLOW_BYTES_PER_SECOND)
        yield model, replace(cluster, inter=Link(name="ten gigabit", latency_seconds=5e-5, **rates)), seq_len, batch


def random_candidates(at: Situation, count: int, generator: np.random.Generator, **fix: int) -> Columns:
    """Up to ``count`` candidates of random layouts."""
    blocks = space(at.model, at.cluster, at.workload, SpaceConstraints(fix=fix, allow=(), backend=load_backend("any")))
    columns = candidate_table(blocks.take(generator.choice(len(blocks), min(len(blocks), BLOCKS), replace=False)))
    return columns.take(generator.choice(columns.rows, min(columns.rows, count), replace=False))


def below_bound(at: Situation, columns: Columns, several: Sequence[Prices]) -> Iterator[str]:
    """One line for each candidate whose price is below its bound with any calibration."""
    candidates = [candidate(columns, row) for row in range(columns.rows)]
    bounds: dict[object, list[Bound]] = {}
    for by in several:
        prices = (price(at.model, at.cluster, at.workload, columns, each, by.stack).step_seconds for each in by.calibrations)
        if (alike := BOUND_BY(by.stack)) not in bounds:
            bounds[alike] = [lower_bound(at.model, at.cluster, at.workload, each, by.stack) for each in candidates]
        for each, bound, least in zip(candidates, bounds[alike], np.min(list(prices), 0), strict=True):
            if least < bound.seconds * (1 - 1e-9):
                place = f"{at.model.name} on {at.cluster.name}, {at.workload.train}, {by.stack.name}"
                yield f"{place}: {least:g} s, at least {bound.seconds:g} s by {bound.limited_by}: {each.layout} {each.knobs}"


def prices_below_bound(kinds: tuple[str, ...], draws: int, seed: int) -> list[str]:
    """Faults among at least ``draws`` prices: candidates of all situations, priced by all stacks."""
    generator, places, prices = np.random.default_rng(seed), list(situations(kinds)), all_prices()
    each = -(-draws // (len(places) * len(prices)))
    return [line for at in places for line in below_bound(at, random_candidates(at, each, generator), prices)]


def test_stacks_with_equal_bound_fields_have_equal_bounds() -> None:
    for at in situations(("full", "lora")):
        [chosen] = [candidate(columns, 0) for columns in [random_candidates(at, 1, np.random.default_rng(2))]]
        found: dict[object, Bound] = {}
        for by in all_prices():
            bound = lower_bound(at.model, at.cluster, at.workload, chosen, by.stack)
            assert found.setdefault(BOUND_BY(by.stack), bound) == bound, by.stack.name


def test_no_random_candidate_is_faster_than_its_bound() -> None:
    assert prices_below_bound(("full",), FEW_DRAWS, seed=0) == []


def test_no_candidate_with_overlapped_expert_exchanges_is_faster_than_its_bound() -> None:
    """Hidden exchanges still occupy links, which carry everything else, too."""
    generator, prices = np.random.default_rng(3), all_prices()
    places = [at for at in situations(("full",)) if at.model.moe]
    assert len(places) == 3
    assert [line for at in places for line in below_bound(at, random_candidates(at, 100, generator, ep_overlap=True), prices)] == []


def test_no_pipeline_of_many_stages_beside_tensor_parallelism_between_nodes_is_faster_than_its_bound() -> None:
    """Hidden tensor-parallel collectives and transfers between stages share ports: computation hides one of them at a time."""
    generator, own = np.random.default_rng(7), all_prices()[:1]
    places = [at for at in situations(("qlora",)) if at.model.name == "gpt3-175b"]
    drawn = [(at, random_candidates(at, 300, generator, pp_virtual_stages=8, tp=32)) for at in places]
    assert drawn
    assert [line for at, columns in drawn for line in below_bound(at, columns, own)] == []


@pytest.mark.full
@pytest.mark.parametrize("kind", ["full", "lora", "qlora", "fp32"])
def test_a_million_random_candidates_respect_their_bounds(kind: str) -> None:
    assert prices_below_bound((kind,), MANY_DRAWS // 4, seed=1) == []
