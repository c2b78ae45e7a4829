"""Validity rules of layouts."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given

from contract import samples
from contract.samples import MODEL, MOE
from strategist.contract.layout import AXES, Layout
from strategist.contract.workload import Workload

WORKLOAD = Workload(seq_len=64, global_batch=48)


def violations_of(layout, model=MODEL, workload=WORKLOAD, devices=None):
    return list(layout.violations(model, workload, layout.world_size if devices is None else devices))


@given(samples.layouts)
def test_world_size_and_ranks_follow_from_the_degrees(layout):
    assert prod(layout.mesh.values()) == layout.world_size
    assert 1 not in layout.mesh.values()
    assert layout.world_size == layout.pp * layout.data_ranks * layout.cp * layout.tp
    assert layout.model_shards * layout.dp_replicate == layout.world_size


@given(samples.layouts)
def test_violations_name_the_value_and_never_raise(layout):
    for sentence in layout.violations(replace(MODEL, moe=MOE), WORKLOAD, 16):
        assert sentence
        assert any(character.isdigit() for character in sentence)


def test_valid_layouts_have_no_violations():
    assert violations_of(Layout(dp_replicate=2, dp_shard=2, tp=4, cp=2)) == []
    assert violations_of(Layout(dp_shard=4, tp=2, ep=4, etp=2), replace(MODEL, moe=MOE)) == []


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
def test_each_invalid_dense_layout_is_reported(layout, words):
    assert any(words in sentence for sentence in violations_of(layout)), violations_of(layout)


def test_the_mesh_must_use_all_devices():
    assert "= 4 must equal the 8 devices" in violations_of(Layout(dp_shard=4), devices=8)[0]


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(dp_shard=3, ep=3), "ep 3 must divide the 8 experts"),
        (Layout(dp_shard=2, ep=4), "must divide dp_shard x cp x tp = 2"),
        (Layout(dp_shard=4, tp=4, etp=2), "etp 2 must be 1 or tp 4"),
    ],
)
def test_each_invalid_expert_layout_is_reported(layout, words):
    found = violations_of(layout, replace(MODEL, moe=MOE))
    assert any(words in sentence for sentence in found), found


def test_etp_must_divide_the_expert_ffn_size():
    model = replace(MODEL, moe=replace(MOE, expert_ffn_size=30))
    assert "etp 4 must divide expert_ffn_size 30" in violations_of(Layout(dp_shard=2, tp=4, etp=4), model)


def test_the_mesh_follows_the_axis_order():
    layout = Layout(pp=2, tp=2, dp_shard=2, axis_order=("dp_shard", "pp", "dp_replicate", "cp", "tp"))
    assert list(layout.mesh) == ["dp_shard", "pp", "tp"]
    assert list(Layout(pp=2, tp=2, dp_shard=2).mesh) == [axis for axis in AXES if axis in ("pp", "dp_shard", "tp")]
