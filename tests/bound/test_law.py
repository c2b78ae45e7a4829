"""No price is below the lower bound: drawn candidates, from profiles alone and with what is shipped."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from strategist.bound.lower import lower_bound
from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import TORCH
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.price import price
from strategist.cost.shipped import NATIVE, calibration_for
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.programs.backends import load_backend
from strategist.search.rank import candidate
from strategist.search.space import Bounds, candidate_table, space

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
)
"""Model, cluster, tokens of a sequence and sequences of a step."""
QUICKEST = Calibration(
    compute=1e-3, attention=1e-3, memory_bound=1e-3, launch=1e-3, communication=1e-3, inter=1e-3, latency=1e-3,
    tensor=0.0, expert=0.0, host=1e-3,
)  # fmt: skip
"""Factors that no measurement gives: what a calibration may say at most is what the hardware does at most."""
BLOCKS = 40
"""Layouts of one request that are drawn."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What candidates are drawn for."""

    model: ModelShape
    cluster: Cluster
    workload: Workload


def situations(kinds: tuple[str, ...]) -> Iterator[Situation]:
    """Each request in each kind of training or precision."""
    for model, gpus, seq_len, batch in REQUESTS:
        shape, cluster = resolve_model(model).shape, resolve_cluster(gpus)
        for kind in kinds:
            workload = Workload(seq_len=seq_len, global_batch=batch, **({"train": kind} if kind != "fp32" else {"precision": kind}))
            yield Situation(model=shape, cluster=cluster, workload=workload)


def below(situation: Situation, count: int, generator: np.random.Generator) -> Iterator[str]:
    """Of so many drawn candidates those with a price below their bound: by profiles alone, at the hardware's limits, as shipped."""
    model, cluster, workload = situation.model, situation.cluster, situation.workload
    blocks = space(model, cluster, workload, Bounds(fix={}, allow=(), backend=load_backend("any")))
    chosen = [blocks[at] for at in generator.choice(len(blocks), min(len(blocks), BLOCKS), replace=False)]
    columns = candidate_table(chosen)
    columns = columns.take(generator.choice(columns.rows, min(columns.rows, count), replace=False))
    calibrations = (NEUTRAL, QUICKEST, calibration_for(NATIVE))
    prices = [price(model, cluster, workload, columns, each, TORCH).step_seconds for each in calibrations]
    for row in range(columns.rows):
        each = candidate(columns, row)
        bound = lower_bound(model, cluster, workload, each, TORCH)
        seconds = min(column[row] for column in prices)
        if seconds < bound.seconds * (1 - 1e-9):
            least = f"{seconds:g} s, at least {bound.seconds:g} s by {bound.limited_by}"
            yield f"{model.name} on {cluster.name}, {workload.train}: {least}: {each.layout} {each.knobs}"


def test_no_drawn_candidate_is_faster_than_its_bound() -> None:
    generator = np.random.default_rng(0)
    found = [line for situation in situations(("full",)) for line in below(situation, 200, generator)]
    assert found == []


@pytest.mark.full
def test_nor_is_any_of_many() -> None:
    generator = np.random.default_rng(1)
    found = [line for each in situations(("full", "lora", "qlora", "fp32")) for line in below(each, 6000, generator)]
    assert found == []
