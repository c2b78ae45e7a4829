"""Prices of whole spaces: invariants of every candidate, and equal results for one candidate and for many."""

from dataclasses import fields, replace

import numpy as np
import pytest

from cost.situations import DENSE, EXPERTS, WORKLOAD, cluster
from strategist.contract.cluster import Cluster
from strategist.contract.estimate import MemoryParts, TimeParts
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload
from strategist.cost.price import CHUNK_ROWS, Priced, price
from strategist.expr.columns import Columns, row_of, table
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.search.candidate_tables import candidate_table
from strategist.search.rank import candidate
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

SPACES = {
    "one node": (DENSE, cluster(), WORKLOAD, SpaceConstraints(allow=("reduce_dtype",))),
    "two nodes, experts": (EXPERTS, cluster(2, 4), replace(WORKLOAD, global_batch=16), SpaceConstraints()),
    "three nodes, adapters": (DENSE, cluster(3, 2), replace(WORKLOAD, global_batch=24, train="lora"), SpaceConstraints()),
    "4-bit base": (DENSE, cluster(1, 4), replace(WORKLOAD, train="qlora"), SpaceConstraints()),
    "streamed": (DENSE, cluster(1, 4), WORKLOAD, SpaceConstraints(fix={"offload": "streamed"})),
    "nothing overlaps": (DENSE, cluster(1, 4, kind="cpu", overlaps=False), replace(WORKLOAD, precision="fp32"), SpaceConstraints()),
    "slow links": (DENSE, replace(cluster(2, 4), intra=cluster().inter), WORKLOAD, SpaceConstraints()),
}
Case = tuple[ModelShape, Cluster, Workload, SpaceConstraints]


@pytest.fixture(params=SPACES.values(), ids=list(SPACES), scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def columns(case: Case) -> Columns:
    """All candidates of a space."""
    return candidate_table(space(*case))


@pytest.fixture(scope="module")
def found(case: Case, columns: Columns) -> Priced:
    """Their prices."""
    model, on, workload, _ = case
    return price(model, on, workload, columns)


def test_all_parts_are_finite_and_non_negative(found: Priced) -> None:
    assert set(found.memory) == {field.name for field in fields(MemoryParts)}
    assert set(found.time) == {field.name for field in fields(TimeParts)}
    for column in (*found.memory.values(), *found.time.values(), found.communication_seconds, found.host_memory_bytes_per_node):
        assert np.isfinite(column).all()
        assert (column >= 0).all()
    assert (found.step_seconds > 0).all()


def test_exposed_communication_is_at_most_total_and_total_at_most_the_step(found: Priced) -> None:
    exposed = sum(found.time[f"{axis}_communication"] for axis in ("tp", "cp", "ep", "dp", "pp"))
    assert (exposed <= found.communication_seconds * (1 + 1e-9)).all()
    assert (found.communication_seconds <= found.step_seconds * (1 + 1e-9)).all()


def test_no_candidate_exceeds_the_peak_flops(found: Priced) -> None:
    assert (found.flops_per_step < found.step_seconds * found.peak_flops).all()


def test_totals_are_the_sums_of_their_parts(found: Priced) -> None:
    row = found.estimate(len(found.step_seconds) // 2)
    assert row.peak_memory_bytes == pytest.approx(row.memory.total)
    assert row.step_seconds == pytest.approx(row.time.total)
    assert 0 <= row.exposed_comm_ratio <= row.comm_ratio <= 1


def test_the_price_of_a_candidate_does_not_depend_on_the_others(case: Case, columns: Columns, found: Priced) -> None:
    model, on, workload, _ = case
    for row in range(0, columns.rows, max(1, columns.rows // 20)):
        one = candidate(columns, row)
        alone = price(model, on, workload, table([row_of(one, one.accumulation(workload))]))
        assert alone.estimate(0) == found.estimate(row)


def test_memory_does_not_depend_on_a_zero_bubble_schedule_in_the_same_table() -> None:
    model, on, workload = resolve_model("8b").shape, resolve_cluster("8xH100"), Workload(seq_len=16384, global_batch=8)
    common = {"recompute": "selective", "offload": "all", "no_sync": True, "chunked_loss": True}
    looped = Knobs(micro_batch=1, pp_schedule="looped_bfs", pp_virtual_stages=2, compile=True, **common)
    zero_bubble = Knobs(
        micro_batch=1, pp_schedule="zbv_zero_bubble", pp_virtual_stages=2, reshard_after_forward=False, no_sync=True
    )
    rows = [row_of(Candidate(layout=Layout(pp=4, dp_shard=2), knobs=knobs), 4) for knobs in (looped, zero_bubble)]
    alone, together = (price(model, on, workload, table(some)).peak_memory_bytes[0] for some in (rows[:1], rows))
    assert alone == together


def test_prices_do_not_depend_on_chunking() -> None:
    model, on, workload, constraints = SPACES["one node"]
    columns = candidate_table(space(model, on, workload, constraints))
    found = price(model, on, workload, columns)
    assert columns.rows > CHUNK_ROWS
    for begin in (0, CHUNK_ROWS - 1, columns.rows - 3):
        few = price(model, on, workload, columns.take(np.arange(begin, begin + 3)))
        np.testing.assert_array_equal(few.step_seconds, found.step_seconds[begin : begin + 3])
        np.testing.assert_array_equal(few.peak_memory_bytes, found.peak_memory_bytes[begin : begin + 3])


@pytest.mark.parametrize("memory", [4 << 30, 8 << 30], ids=["few fit", "most fit"])
def test_skipping_the_time_of_candidates_that_do_not_fit_changes_no_price(memory: int) -> None:
    model, on, workload, constraints = SPACES["one node"]
    on = replace(on, device=replace(on.device, usable_memory_bytes=memory))
    columns = candidate_table(space(model, on, workload, constraints))
    every, some = price(model, on, workload, columns), price(model, on, workload, columns, confidence=0.9)
    fits = every.fits_with(0.9)
    np.testing.assert_array_equal(some.fits_with(0.9), fits)
    np.testing.assert_array_equal(some.peak_memory_bytes, every.peak_memory_bytes)
    np.testing.assert_array_equal(some.step_seconds[fits], every.step_seconds[fits])
    np.testing.assert_array_equal(some.communication_seconds[fits], every.communication_seconds[fits])
    assert fits.any()
    assert np.isnan(some.step_seconds[~fits]).any()


def test_an_empty_table_gives_empty_prices() -> None:
    columns = candidate_table(space(DENSE, cluster(), WORKLOAD, SpaceConstraints())).take(np.arange(0))
    found = price(DENSE, cluster(), WORKLOAD, columns)
    assert len(found.step_seconds) == len(found.peak_memory_bytes) == 0


def test_price_per_step_is_step_time_on_all_devices() -> None:
    rented = cluster(price_per_hour=3.6)
    columns = candidate_table(space(DENSE, rented, WORKLOAD, SpaceConstraints(fix={"tp": 8})))
    found = price(DENSE, rented, WORKLOAD, columns).estimate(0)
    assert found.price_per_step == pytest.approx(8 * 3.6 / 3600 * found.step_seconds)
    assert price(DENSE, cluster(), WORKLOAD, columns).estimate(0).price_per_step is None


def test_host_memory_limits_only_if_its_size_is_known() -> None:
    unlimited = price(
        DENSE, cluster(), WORKLOAD, candidate_table(space(DENSE, cluster(), WORKLOAD, SpaceConstraints(fix={"offload": "all"})))
    )
    assert unlimited.fits_host.all()
    small = replace(cluster(), host_memory_bytes=2**30)
    bound = price(DENSE, small, WORKLOAD, candidate_table(space(DENSE, small, WORKLOAD, SpaceConstraints(fix={"offload": "all"}))))
    assert not bound.fits_host.any()
