"""Metrics over several ranks."""

from dataclasses import replace

import pytest

from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.executors.trial_metrics import Impossible, figures, warmup_step_count

RECORD = RankRecord(
    rank=0, outcome=Outcome.OK, phase="done", step_seconds=(0.2,), peak_memory_bytes=9, profiled_step_seconds=0.4,
    communication_seconds=0.2, exposed_communication_seconds=0.1, compute_seconds=0.2,
)  # fmt: skip


def measured(plan: Plan, layout: Layout, *changes: dict[str, object]) -> dict[str, object]:
    records = [replace(RECORD, rank=rank, **change) for rank, change in enumerate(changes)]
    return figures(replace(plan, candidate=replace(plan.candidate, layout=layout)), TrialSettings(steps=1), records, 10.0)


def test_exposed_communication_by_axis_is_the_mean_over_the_ranks(plan: Plan) -> None:
    found = measured(
        plan, Layout(tp=2), {"exposed_seconds_by_axis": {"tp": 0.04, "world": 0.02}}, {"exposed_seconds_by_axis": {"tp": 0.08}}
    )
    assert found["exposed_comm_ratio_by_axis"] == pytest.approx({"tp": 0.15, "world": 0.025})


def test_a_metric_missing_on_one_rank_is_unknown(plan: Plan) -> None:
    found = measured(
        plan, Layout(tp=2), {"exposed_seconds_by_axis": {"tp": 0.04}, "pipeline_waits": (0.1,)}, {"compute_seconds": None}
    )
    assert [found[name] for name in ("exposed_comm_ratio_by_axis", "bubble_ratio", "rank_imbalance")] == [None, None, None]


def test_the_bubble_is_the_mean_wait_beyond_the_shortest_transfer(plan: Plan) -> None:
    first = {"pipeline_waits": (0.01, 0.005), "shortest_transfer_seconds": 0.01}
    second = {"pipeline_waits": (0.11, 0.11), "shortest_transfer_seconds": 0.11}
    assert measured(plan, Layout(pp=2), first, second)["bubble_ratio"] == pytest.approx(0.2 / 2 / 0.4)
    assert measured(plan, Layout(dp_shard=2), {"pipeline_waits": ()}, {"pipeline_waits": ()})["bubble_ratio"] == 0.0


@pytest.mark.parametrize(
    ("seconds", "cut"),
    [
        ((1.0, 1.0, 1.0, 1.0, 1.0, 1.0), 0),
        ((3.0, 1.4, 1.0, 1.01, 0.99, 1.0), 2),
        ((3.0, 2.0, 1.5, 1.0, 1.0, 1.0), 3),
        ((1.04, 1.0, 1.02, 1.0, 1.01, 1.0), 0),
        ((3.0, 1.0, 1.0), 0),
        ((1.0, 3.0, 1.0, 1.0, 1.0, 1.0), 0),
    ],
)
def test_warmup_steps_are_left_out(seconds: tuple[float, ...], cut: int) -> None:
    """Only leading steps, at most half, and none if there are too few steps."""
    assert warmup_step_count(seconds) == cut


def test_parts_that_do_not_sum_to_the_step_are_refused(plan: Plan) -> None:
    with pytest.raises(Impossible, match=r"add up to 0\.3 s, the profiled step took 0\.4 s"):
        measured(plan, Layout(), {"time": {"matmul": 0.2, "launch": 0.1}})


def test_the_bubble_is_separated_from_transfers_in_the_parts(plan: Plan) -> None:
    time = {"matmul": 0.2, "pp_communication": 0.15, "world_communication": 0.05}
    rank = {"time": time, "pipeline_waits": (0.12, 0.08), "shortest_transfer_seconds": 0.02}
    found = measured(plan, Layout(pp=2), rank, rank)
    assert found["time"] == pytest.approx({"matmul": 0.2, "bubble": 0.16, "pp_communication": 0.04})
    assert found["bubble_ratio_by_stage"] == pytest.approx((0.4, 0.4))


def test_traffic_is_the_mean_over_the_ranks(plan: Plan) -> None:
    row = Traffic(axis="pp", collective="send", calls=4, message_bytes=80.0, seconds=0.1, exposed_seconds=0.06)
    (found,) = measured(plan, Layout(pp=2), {"traffic": (row,)}, {})["traffic"]
    assert found == Traffic(axis="pp", collective="send", calls=2, message_bytes=40.0, seconds=0.05, exposed_seconds=0.03)


def test_a_slow_rank_is_distinguished_from_a_slow_stage(plan: Plan) -> None:
    seconds = [{"compute_seconds": value} for value in (0.1, 0.1, 0.2, 0.2)]
    by_stage = measured(plan, Layout(pp=2, dp_shard=2), *seconds)
    assert (by_stage["rank_imbalance"], by_stage["stage_imbalance"]) == pytest.approx((0.0, 1 / 3))
    by_rank = measured(plan, Layout(dp_shard=4), *seconds)
    assert (by_rank["rank_imbalance"], by_rank["stage_imbalance"]) == pytest.approx((1 / 3, 0.0))


@pytest.mark.parametrize(
    ("order", "stages"),
    [
        (("pp", "dp_replicate", "dp_shard", "cp", "tp"), [0, 0, 0, 0, 1, 1, 1, 1]),
        (("dp_replicate", "pp", "dp_shard", "cp", "tp"), [0, 0, 1, 1, 0, 0, 1, 1]),
        (("dp_replicate", "dp_shard", "cp", "tp", "pp"), [0, 1, 0, 1, 0, 1, 0, 1]),
    ],
)
def test_the_axis_order_determines_the_stage_of_each_rank(order: tuple[str, ...], stages: list[int]) -> None:
    layout = Layout(pp=2, dp_replicate=2, tp=2, axis_order=order)
    assert [layout.stage_of(rank) for rank in range(8)] == stages
    assert [layout.first_rank(stage) for stage in range(2)] == [stages.index(stage) for stage in range(2)]
