"""The laws of a layout."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given

from contract import samples
from contract.samples import MODEL, MOE
from strategist.contract.layout import AXES, Layout
from strategist.contract.workload import Workload

WORKLOAD = Workload(seq_len=64, global_batch=48)


def broken(layout, model=MODEL, workload=WORKLOAD, devices=None):
    return list(layout.violations(model, workload, layout.world_size if devices is None else devices))


@given(samples.layouts)
def test_counts_follow_from_the_degrees(layout):
    assert prod(layout.mesh.values()) == layout.world_size
    assert 1 not in layout.mesh.values()
    assert layout.world_size == layout.pp * layout.data_ranks * layout.cp * layout.tp
    assert layout.model_shards * layout.dp_replicate == layout.world_size


@given(samples.layouts)
def test_every_law_names_what_breaks_it_and_none_raises(layout):
    for sentence in layout.violations(replace(MODEL, moe=MOE), WORKLOAD, 16):
        assert sentence
        assert any(character.isdigit() for character in sentence)


def test_a_legal_layout_breaks_nothing():
    assert broken(Layout(dp_replicate=2, dp_shard=2, tp=4, cp=2)) == []
    assert broken(Layout(dp_shard=4, tp=2, ep=4, etp=2), replace(MODEL, moe=MOE)) == []


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(tp=0), "at least 1"),
        (Layout(pp=8), "pp 8 must not exceed the 4 layers"),
        (Layout(tp=8), "tp 8 must divide kv_heads 4"),
        (Layout(dp_shard=5), "5 must divide global_batch 48"),
        (Layout(cp=64), "seq_len 64 must divide"),
        (Layout(ep=2, dp_shard=2), "small is dense"),
        (Layout(axis_order=("pp", "tp", "tp", "cp", "dp_shard")), "must name each of"),
    ],
)
def test_each_law_of_a_dense_layout(layout, words):
    assert any(words in sentence for sentence in broken(layout)), broken(layout)


def test_the_mesh_must_fill_the_devices():
    assert "= 4 must equal the 8 devices" in broken(Layout(dp_shard=4), devices=8)[0]


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(dp_shard=3, ep=3), "ep 3 must divide the 8 experts"),
        (Layout(dp_shard=2, ep=4), "must divide dp_shard x cp x tp = 2"),
        (Layout(dp_shard=4, tp=4, etp=2), "etp 2 must be 1 or tp 4"),
    ],
)
def test_each_law_of_experts(layout, words):
    found = broken(layout, replace(MODEL, moe=MOE))
    assert any(words in sentence for sentence in found), found


def test_split_experts_must_be_even():
    model = replace(MODEL, moe=replace(MOE, expert_ffn_size=30))
    assert "etp 4 must divide expert_ffn_size 30" in broken(Layout(dp_shard=2, tp=4, etp=4), model)


def test_mesh_runs_in_the_order_of_the_axes():
    layout = Layout(pp=2, tp=2, dp_shard=2, axis_order=("dp_shard", "pp", "dp_replicate", "cp", "tp"))
    assert list(layout.mesh) == ["dp_shard", "pp", "tp"]
    assert list(Layout(pp=2, tp=2, dp_shard=2).mesh) == [axis for axis in AXES if axis in ("pp", "dp_shard", "tp")]
