"""Lower bounds: no candidate needs less than its family, nor less memory than its model states, with any stack."""

from collections.abc import Iterable
from itertools import cycle, product

import numpy as np
import pytest

from strategist.cost.lower_bounds import least_memory, lower_bounds
from strategist.cost.memory import needed_memory
from strategist.cost.price import price
from strategist.cost.simulated_steps import simulated
from strategist.expr.columns import Columns
from strategist.search.pruning import relaxed
from tests.bound.test_law import Prices, Situation, all_prices, random_candidates, situations

ROUNDING = 1 + 1e-9


def violations(at: Situation, columns: Columns, by: Prices, pipelines: int) -> int:
    """Number of candidates whose price, or simulated step for some ``pipelines``, is below the bound of their family."""
    faults, device = 0, at.cluster.device
    for factors in by.calibrations:
        found = price(at.model, at.cluster, at.workload, columns, factors, by.stack)
        bound = lower_bounds(at.model, at.cluster, at.workload, relaxed(columns), factors, by.stack)
        offload = columns.values["knobs.offload"]
        memory = np.stack([bound.memory_bytes[str(how)] for how in columns.categories["knobs.offload"]])[
            offload, np.arange(columns.rows)
        ]
        faults += np.count_nonzero(memory > needed_memory(found.memory) * ROUNDING)
        least = least_memory(at.model, at.workload, columns, by.stack)
        faults += np.count_nonzero(least > needed_memory(found.memory) * ROUNDING)
        seconds = bound.time.of_candidates(at.model, columns)
        faults += np.count_nonzero(seconds > found.step_seconds * ROUNDING)
        faults += np.count_nonzero(bound.room_bytes != found.room_bytes) if device.kind == "cuda" else 0
        few = np.flatnonzero(columns.values["layout.pp"] > 1)[:pipelines]
        for weighted in (False, True):
            for some in simulated(at.model, at.cluster, at.workload, columns.take(few), factors, by.stack, weighted=weighted):
                own = few[list(some.rows)]
                faults += np.count_nonzero(seconds[own] > sum(some.time.values()) * ROUNDING)
    return int(faults)


def drawn(kind: str, draws: int, seed: int) -> list[tuple[Situation, Columns]]:
    """Random candidates of each situation."""
    generator = np.random.default_rng(seed)
    return [(at, random_candidates(at, draws, generator)) for at in situations((kind,))]


def faults(cases: Iterable[tuple[tuple[Situation, Columns], Prices]], pipelines: int) -> list[str]:
    return [
        f"{at.model.name} on {at.cluster.name}, {at.workload.train}, {by.stack.name}: {wrong}"
        for (at, columns), by in cases
        if (wrong := violations(at, columns, by, pipelines))
    ]


def test_no_candidate_is_below_the_bound_of_its_family() -> None:
    """The native stack, whose calibrations include the hardware's limits, in all situations, and each other stack in one."""
    places, (native, *others) = drawn("full", 100, seed=1), all_prices()
    assert not faults([*product(places, [native]), *zip(cycle(places), others, strict=False)], pipelines=2)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["full", "lora", "qlora", "fp32"])
def test_no_candidate_is_below_the_bound_of_its_family_in_each_train_mode(kind: str) -> None:
    assert not faults(product(drawn(kind, 200, seed=2), all_prices()), pipelines=4)
