"""Data races between GPU streams, found without a GPU: plans have none, and injected ones are found."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.units import GIB

from ..launch import forked
from ..plans import TINY, WORKLOAD, plan

pytestmark = pytest.mark.torch
MODEL = replace(TINY, layers=3, hidden_size=1024, heads=8, kv_heads=8, head_size=128, ffn_size=2048)
"""Large enough for activation offload; with a layer between the first and the last."""

DEEP = replace(MODEL, layers=4)
"""For two stages or units, of two layers each."""

SHARDED, STREAMED = Layout(dp_shard=4), {"offload": "streamed", "recompute": "full", "micro_batch": 1}
IN_BACKWARD = {"optimizer_in_backward": True, "micro_batch": 2}
PLANS: dict[str, tuple[Layout, dict[str, Any], dict[str, Any]]] = {
    "sharded": (SHARDED, {"micro_batch": 2}, {}),
    "prefetched": (SHARDED, {"micro_batch": 2}, {"prefetch_units": 2, "layers_per_unit": 2}),
    "accumulated": (SHARDED, {"micro_batch": 1, "no_sync": True}, {}),
    "states on the host": (SHARDED, {"offload": "optimizer", "micro_batch": 2}, {}),
    "all on the host": (SHARDED, {"offload": "all", "micro_batch": 2}, {}),
    "all on the host, page-locked": (SHARDED, {"offload": "all", "micro_batch": 2}, {"pin_memory": True}),
    "all on the host, accumulated": (SHARDED, {"offload": "all", "micro_batch": 1}, {"pin_memory": True}),
    "activations on the host": (SHARDED, {"activation_offload": True, "micro_batch": 2}, {}),
    "selective with activations on the host": (
        SHARDED, {"activation_offload": True, "recompute": "selective", "micro_batch": 2}, {},
    ),
    "in backward": (SHARDED, IN_BACKWARD, {}),
    "in backward of replicas": (Layout(dp_replicate=4), IN_BACKWARD, {}),
    "in backward with states on the host": (SHARDED, {**IN_BACKWARD, "offload": "optimizer"}, {}),
    "in backward with all on the host": (SHARDED, {**IN_BACKWARD, "offload": "all"}, {"pin_memory": True}),
    "a pipeline with states on the host": (
        Layout(pp=2, dp_shard=2), {"offload": "optimizer", "micro_batch": 2, "no_sync": True}, {},
    ),
    "tensor parallel, all on the host": (
        Layout(dp_shard=2, tp=2), {"offload": "all", "activation_offload": True, "sequence_parallel": True, "micro_batch": 2}, {},
    ),
    "streamed": (Layout(), STREAMED, {}),
    "streamed over two ranks": (Layout(pp=2), STREAMED, {}),
    "streamed and updated in backward": (Layout(pp=2), {**STREAMED, "optimizer_in_backward": True}, {}),
    "streamed and updated asynchronously": (Layout(pp=2), {**STREAMED, "async_optimizer_step": True}, {}),
    "saved during the next step": (SHARDED, {"micro_batch": 2}, {"checkpoint": "async"}),
    "saved from page-locked copies, states on the host": (
        SHARDED, {"offload": "optimizer", "micro_batch": 2}, {"checkpoint": "async_pinned", "pin_memory": True},
    ),
    "saved while all is on the host": (SHARDED, {"offload": "all", "micro_batch": 2}, {"checkpoint": "async"}),
    "saved while updated in backward": (SHARDED, {**IN_BACKWARD, "offload": "optimizer"}, {"checkpoint": "async"}),
    "saved while streamed and updated asynchronously": (
        Layout(pp=2), {**STREAMED, "async_optimizer_step": True}, {"checkpoint": "async"},
    ),
}  # fmt: skip
IN_EVERY_RUN = ("selective with activations on the host", "streamed and updated in backward")


def races_of(name: str, folder: Path, injected: str = "") -> list[str]:
    layout, knobs, options = PLANS[name]
    workload = replace(WORKLOAD, seq_len=512, precision="bf16", global_batch=8 if layout.data_ranks > 1 else 4)
    trial_plan = plan(
        layout=layout, knobs=Knobs(**knobs), options=Options(**options), workload=workload, kind="cuda",
        model=DEEP if layout.pp > 1 or "layers_per_unit" in options else MODEL,
        memory_bytes=80 * GIB,
    )  # fmt: skip
    codec.save(trial_plan, folder / "plan.json")
    done = forked(1, ["runtime.races_rank", str(folder / "plan.json"), injected])
    assert done.returncode == 0, done.stderr
    races: list[str] = json.loads((folder / "plan.found").read_text(encoding="utf-8"))
    return races


@pytest.mark.parametrize("name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.full) for name in PLANS])
def test_plans_have_no_stream_races(name: str, tmp_path: Path) -> None:
    assert races_of(name, tmp_path) == []


@pytest.mark.parametrize(
    ("injected", "words"),
    [
        ("a wait is missing", "is read by"),
        ("record_stream is missing", "may still use memory"),
        ("buffer refilled", "is still reading what is written by"),
    ],
)
def test_an_injected_race_is_found(injected: str, words: str, tmp_path: Path) -> None:
    assert any(words in race for race in races_of("activations on the host", tmp_path, injected))


@pytest.mark.parametrize(
    ("name", "injected", "words"),
    [
        ("states on the host", "the update's copies are not waited for", "is read by"),
        pytest.param("in backward of replicas", "the update in callbacks is not waited for", "is read by", marks=pytest.mark.full),
        pytest.param("saved during the next step", "staging is not waited for", "is read by", marks=pytest.mark.full),
        pytest.param("streamed", "weights refilled", "is written over by", marks=pytest.mark.full),
    ],
)
def test_an_injected_race_between_steps_or_stages_is_found(name: str, injected: str, words: str, tmp_path: Path) -> None:
    assert any(words in race for race in races_of(name, tmp_path, injected))


def test_refilling_a_buffer_after_waiting_is_no_race(tmp_path: Path) -> None:
    assert races_of("activations on the host", tmp_path, "buffer refilled, waits") == []
