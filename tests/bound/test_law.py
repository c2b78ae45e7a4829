"""No price is below the lower bound: drawn candidates, from profiles alone and with what is shipped."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from strategist.bound.lower import lower_bound
from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import TORCH, Stack
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
class Drawn:
    """What draws share: all but the candidates."""

    model: ModelShape
    cluster: Cluster
    workload: Workload
    calibration: Calibration
    stack: Stack


def draws(generator: np.random.Generator, kinds: tuple[str, ...]) -> Iterator[Drawn]:
    """Each request in each kind of training or precision: from profiles alone, at the hardware's limits, as native plans are."""
    for model, gpus, seq_len, batch in REQUESTS:
        cluster = resolve_cluster(gpus)
        for kind in kinds:
            workload = Workload(seq_len=seq_len, global_batch=batch, **({"train": kind} if kind != "fp32" else {"precision": kind}))
            for calibration in (NEUTRAL, QUICKEST, calibration_for(NATIVE)):
                shape = resolve_model(model).shape
                yield Drawn(model=shape, cluster=cluster, workload=workload, calibration=calibration, stack=TORCH)


def below(drawn: Drawn, count: int, generator: np.random.Generator) -> Iterator[str]:
    """Of so many drawn candidates those whose price is below their bound."""
    blocks = space(drawn.model, drawn.cluster, drawn.workload, Bounds(fix={}, allow=(), backend=load_backend("any")))
    chosen = [blocks[at] for at in generator.choice(len(blocks), min(len(blocks), BLOCKS), replace=False)]
    columns = candidate_table(chosen)
    columns = columns.take(generator.choice(columns.rows, min(columns.rows, count), replace=False))
    priced = price(drawn.model, drawn.cluster, drawn.workload, columns, drawn.calibration, drawn.stack)
    for row, seconds in enumerate(priced.step_seconds):
        each = candidate(columns, row)
        bound = lower_bound(drawn.model, drawn.cluster, drawn.workload, each, drawn.stack)
        if seconds < bound.seconds * (1 - 1e-9):
            situation = f"{drawn.model.name} on {drawn.cluster.name}, {drawn.workload.train}, {drawn.calibration.trials} trials"
            yield f"{situation}: {seconds:g} s, at least {bound.seconds:g} s by {bound.limited_by}: {each.layout} {each.knobs}"


def test_no_drawn_candidate_is_faster_than_its_bound() -> None:
    generator = np.random.default_rng(0)
    found = [line for drawn in draws(generator, ("full",)) for line in below(drawn, 280, generator)]
    assert found == []


@pytest.mark.full
def test_nor_is_any_of_many() -> None:
    generator = np.random.default_rng(1)
    kinds = ("full", "lora", "qlora", "fp32")
    found = [line for drawn in draws(generator, kinds) for line in below(drawn, 2000, generator)]
    assert found == []
