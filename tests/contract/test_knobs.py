"""Validity rules of knobs."""

from dataclasses import replace

import pytest
from hypothesis import given

from contract import samples
from contract.samples import MODEL
from strategist.contract.knobs import CHOICES, CONVERGENCE_KNOBS, KNOB_NAMES, Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.workload import Workload

WORKLOAD = Workload(seq_len=64, global_batch=16)
SHARDED = Layout(dp_shard=4)
PIPELINE = Layout(pp=2, dp_shard=2)
ZERO_BUBBLE = Knobs(pp_schedule="zbv_zero_bubble", pp_virtual_stages=2, no_sync=True, reshard_after_forward=False, micro_batch=4)


def violations_of(knobs, layout=SHARDED, model=MODEL, workload=WORKLOAD):
    return list(knobs.violations(layout, model, workload))


def test_default_knobs_are_valid_choices():
    assert violations_of(Knobs()) == []
    assert set(CHOICES) <= set(KNOB_NAMES)
    for name, choices in CHOICES.items():
        assert getattr(Knobs(), name) in choices
    for name, safe in CONVERGENCE_KNOBS.items():
        assert safe in CHOICES[name]


@given(samples.knobs, samples.layouts)
def test_violations_are_sentences_and_never_raise(knobs, layout):
    assert all(isinstance(sentence, str) and sentence for sentence in violations_of(knobs, layout))


@pytest.mark.parametrize("name", CHOICES)
def test_a_value_outside_the_choices_is_reported(name):
    found = violations_of(replace(Knobs(), **{name: "wrong"}))
    assert any(sentence.startswith(f"{name} wrong is not one of") for sentence in found)


@pytest.mark.parametrize(
    ("knobs", "layout", "words"),
    [
        (Knobs(micro_batch=0), Layout(dp_shard=4), "at least 1"),
        (Knobs(micro_batch=3), Layout(dp_shard=4), "must divide global_batch 16"),
        (Knobs(reshard_after_forward="subgroup", reshard_group_size=4), Layout(dp_shard=4), "true divisor"),
        (Knobs(reshard_after_forward="subgroup", reshard_group_size=3), Layout(dp_shard=4), "true divisor"),
        (Knobs(sequence_parallel=True), Layout(dp_shard=4), "need tp above 1"),
        (Knobs(chunked_loss=True), Layout(dp_shard=2, tp=2), "loss_parallel must be true"),
        (Knobs(ep_overlap=True), Layout(dp_shard=4), "ep_overlap needs ep above 1"),
        (Knobs(ep_overlap=True, recompute="full"), Layout(dp_shard=4, ep=4), "recompute must be none or selective, not full"),
        (Knobs(ep_overlap=True, no_sync=True), replace(PIPELINE, ep=2), "needs a schedule that pairs passes"),
        (Knobs(ep_overlap=True, micro_batch=4), Layout(dp_shard=4, ep=4), "must have at least 2"),
        (Knobs(pp_virtual_stages=2), Layout(dp_shard=4), "needs pp above 1"),
        (Knobs(pp_schedule="interleaved_1f1b", no_sync=True), PIPELINE, "pp_virtual_stages above 1"),
        (Knobs(pp_virtual_stages=2, no_sync=True), PIPELINE, "needs a schedule that loops"),
        (
            Knobs(pp_schedule="interleaved_1f1b", pp_virtual_stages=3, no_sync=True), PIPELINE,
            "must not exceed the 4 layers",
        ),
        (
            Knobs(offload="streamed", recompute="full", pp_schedule="gpipe", activation_offload=True), Layout(pp=4),
            "keeps inputs of layers in host memory by itself",
        ),
        (
            Knobs(pp_schedule="zbv_zero_bubble", pp_virtual_stages=2, no_sync=True, activation_offload=True),
            PIPELINE, "uses the saved activations of a layer twice",
        ),
        (
            Knobs(pp_schedule="zbv_zero_bubble", pp_virtual_stages=2, no_sync=True, recompute="selective"),
            PIPELINE, "recompute must not be selective",
        ),
        (replace(ZERO_BUBBLE, reshard_after_forward=True), PIPELINE, "reshard_after_forward must be false, not True"),
        (Knobs(), PIPELINE, "no_sync must be true with pp above 1"),
        (Knobs(), Layout(pp=2, cp=2), "no_sync must be true with pp above 1"),
        (Knobs(offload="all"), Layout(pp=4), "no_sync must be true with pp above 1"),
        (Knobs(micro_batch=8, no_sync=True), PIPELINE, "at least 2 micro-batches with pp 2, not 1"),
        (Knobs(optimizer_in_backward=True), Layout(dp_shard=4), "where a step has several micro-batches"),
        (
            Knobs(optimizer_in_backward=True, offload="optimizer", no_sync=True), PIPELINE,
            "optimizer_in_backward needs pp 1 and ep 1",
        ),
    ],
)  # fmt: skip
def test_each_invalid_combination_is_reported(knobs, layout, words):
    assert any(words in sentence for sentence in violations_of(knobs, layout)), violations_of(knobs, layout)


def test_valid_subgroups_and_pipelines_are_accepted():
    assert violations_of(Knobs(reshard_after_forward="subgroup", reshard_group_size=2)) == []
    assert violations_of(Knobs(no_sync=True), PIPELINE) == []
    assert violations_of(Knobs(sequence_parallel=True, loss_parallel=True), Layout(dp_shard=2, tp=2)) == []
    assert violations_of(Knobs(chunked_loss=True, loss_parallel=True), Layout(dp_shard=2, tp=2)) == []
    assert violations_of(Knobs(ep_overlap=True, recompute="selective"), Layout(dp_shard=4, ep=4)) == []
    looped = Knobs(ep_overlap=True, pp_schedule="interleaved_1f1b", pp_virtual_stages=2, no_sync=True)
    assert violations_of(looped, replace(PIPELINE, ep=2)) == []
    assert violations_of(Knobs(), Layout(pp=4)) == []
    assert violations_of(replace(ZERO_BUBBLE, reshard_after_forward=True), Layout(pp=2)) == []  # no data-parallel sharding
    assert violations_of(ZERO_BUBBLE, PIPELINE) == []  # one layer per stage, and as many micro-batches as stages


@pytest.mark.parametrize(("micro_batches", "legal"), [(3, True), (4, True), (5, False), (6, True)])
def test_interleaved_schedules_need_micro_batches_in_equal_rounds(micro_batches, legal):
    """Each round has at least as many micro-batches as there are pipeline ranks."""
    knobs = Knobs(pp_schedule="interleaved_1f1b", pp_virtual_stages=2, no_sync=True)
    found = violations_of(knobs, PIPELINE, workload=replace(WORKLOAD, global_batch=2 * micro_batches))
    assert [("must split evenly" in sentence) for sentence in found] == ([] if legal else [True])


@pytest.mark.parametrize("offload", ["optimizer", "all"])
def test_optimizer_in_backward_on_the_host_allows_gradient_accumulation(offload):
    assert violations_of(Knobs(optimizer_in_backward=True, offload=offload)) == []


def test_a_candidate_reports_violations_of_its_layout_first():
    candidate = Candidate(layout=Layout(dp_shard=4), knobs=Knobs(micro_batch=2))
    assert candidate.violations(MODEL, WORKLOAD, 4) == ()
    assert candidate.accumulation(WORKLOAD) == 2
    wrong = Candidate(layout=Layout(dp_shard=5), knobs=Knobs(micro_batch=0))
    assert all("micro_batch" not in sentence for sentence in wrong.violations(MODEL, WORKLOAD, 5))
