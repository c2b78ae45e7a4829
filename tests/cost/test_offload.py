"""Offload: what travels, what hides it, and who updates."""

from dataclasses import replace
from typing import Any

import pytest

from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.stack import TORCH, Stack
from strategist.contract.workload import Workload
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model

MODEL = resolve_model("llama3.1-8b").shape
WORKLOAD = Workload(seq_len=2048, global_batch=320, precision="fp16")
BOX = resolve_cluster("8xRTX4090")


def priced(layout: Layout, stack: Stack = TORCH, **knobs: Any) -> Estimate:
    candidate = Candidate(layout=layout, knobs=Knobs(recompute="full", **knobs))
    columns = table([row_of(candidate, candidate.accumulation(WORKLOAD))])
    return price(MODEL, BOX, WORKLOAD, columns, stack=stack).estimate(0)


STREAMED: dict[str, Any] = {"offload": "streamed", "pp_schedule": "gpipe", "micro_batch": 4}


def test_an_update_beside_the_next_step_leaves_no_bubble_and_hides() -> None:
    at_once = priced(Layout(pp=8), **STREAMED)
    later = priced(Layout(pp=8), late_update=True, **STREAMED)
    assert later.time.bubble == later.time.offload == 0 < at_once.time.bubble
    assert at_once.time.offload == pytest.approx(16 * MODEL.parameters / BOX.host_optimizer_bytes_per_second, rel=1e-6)
    assert at_once.step_seconds - later.step_seconds == pytest.approx(at_once.time.bubble + at_once.time.offload)


def test_streamed_layers_are_dealt_evenly_with_the_head() -> None:
    """A pipeline's last stage does the whole head, of which each device of a stream does an eighth."""
    streamed = priced(Layout(pp=8), **STREAMED)
    pipeline = priced(Layout(pp=8), micro_batch=4)
    assert streamed.time.matmul < pipeline.time.matmul


def test_collectives_without_peer_access_leave_room_for_copies() -> None:
    sharded = priced(Layout(dp_shard=8))
    offloaded = priced(Layout(dp_shard=8), offload="all")
    assert offloaded.time.dp_communication == pytest.approx(sharded.time.dp_communication, rel=0.01)


def test_reductions_that_nothing_hides_take_longer() -> None:
    beside = priced(Layout(dp_shard=8), micro_batch=8)
    apart = priced(Layout(dp_shard=8), replace(TORCH, hides_reductions=False), micro_batch=8)
    assert apart.time.dp_communication > beside.time.dp_communication


def test_copy_engines_use_each_devices_own_link() -> None:
    rings, copies = (
        priced(Layout(dp_shard=8), replace(TORCH, collectives=kind)).time.dp_communication for kind in ("nccl", "copies")
    )
    assert rings / copies > 4


def test_sums_in_fp16_are_faster_where_the_card_has_them() -> None:
    usual, fast = (priced(Layout(pp=8), replace(TORCH, fp16_sums=on)) for on in (False, True))
    assert fast.time.matmul < 0.75 * usual.time.matmul
    assert fast.time.attention == pytest.approx(usual.time.attention)
