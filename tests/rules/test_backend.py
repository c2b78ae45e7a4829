"""Back ends described by files."""

from dataclasses import replace

import pytest
from contract import samples

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.workload import Workload
from strategist.errors import FileError, InputError
from strategist.expr.columns import Columns, row_of, table
from strategist.files import yaml_file
from strategist.profiles.cluster import resolve_cluster
from strategist.programs.backends import backends, load_backend
from strategist.rules.backend import read_backend
from strategist.search.facts import situation_facts

TEXT = """
backend: small
title: a test
devices: [cpu, cuda]
layout: {pp: [1], tp: [1, 2]}
knobs: {offload: [none], reshard_after_forward: [true, false]}
workload: {train: [full], precision: fp32}
model: {moe: false, mla: [false], norm: [rms], qkv_bias: [false]}
"""
TOGETHER = """
backend: small
devices: cpu
refuses:
  - when: knobs.offload == "streamed" and workload.train == "lora"
    because: adapters do not travel
    do: choose train full
  - {when: layout.cp > 1 and options.cp_attention == "sdpa", because: it rings, do: choose flex}
"""
PLAIN = Candidate(layout=Layout(dp_shard=4), knobs=Knobs())
FP32 = Workload(precision="fp32")
ON = resolve_cluster("8x24GB")


def facts(workload=FP32, device="cuda", model=samples.MODEL):
    return {**situation_facts(model, ON, workload), "device.kind": device}


def small():
    return read_backend(yaml_file.parse(TEXT, "small.yaml"))


def test_an_allowed_candidate_is_not_refused():
    assert small().refusals(PLAIN, samples.MODEL, FP32, facts()) == ()


@pytest.mark.parametrize(
    ("candidate", "model", "workload", "device", "words"),
    [
        (PLAIN, samples.MODEL, FP32, "tpu", "runs on cpu or cuda, not on tpu"),
        (Candidate(layout=Layout(pp=2), knobs=Knobs()), samples.MODEL, FP32, "cpu", "layout.pp = 2; it takes 1"),
        (Candidate(layout=Layout(tp=4), knobs=Knobs()), samples.MODEL, FP32, "cpu", "layout.tp = 4; it takes 1, 2"),
        (Candidate(layout=Layout(), knobs=Knobs(offload="all")), samples.MODEL, FP32, "cpu", "knobs.offload = all"),
        (
            Candidate(layout=Layout(), knobs=Knobs(reshard_after_forward="subgroup")), samples.MODEL, FP32, "cpu",
            "knobs.reshard_after_forward = subgroup; it takes true, false",
        ),
        (PLAIN, samples.MODEL, Workload(), "cpu", "workload.precision = bf16; it takes fp32"),
        (PLAIN, replace(samples.MODEL, moe=samples.MOE), FP32, "cpu", "model.moe = true"),
        (PLAIN, replace(samples.MODEL, mla=samples.MLA), FP32, "cpu", "model.mla = true"),
        (PLAIN, replace(samples.MODEL, norm="layer"), FP32, "cpu", "model.norm = layer"),
    ],
)  # fmt: skip
def test_each_unsupported_setting_is_one_refusal(candidate, model, workload, device, words):
    refusals = small().refusals(candidate, model, workload, facts(workload, device))
    assert len(refusals) == 1
    assert words in refusals[0]
    assert "small" in refusals[0]


def test_all_refusals_are_given_at_once():
    candidate = Candidate(layout=Layout(pp=2, tp=4), knobs=Knobs(offload="all"))
    assert len(small().refusals(candidate, samples.MODEL, Workload(train="lora"), facts(device="tpu"))) == 6


def test_single_values_are_allowed_or_not():
    backend = small()
    assert backend.allows("layout.pp", 1)
    assert not backend.allows("layout.pp", 2)
    assert backend.allows("layout.cp", 64)
    assert backend.allows("knobs.reshard_after_forward", False)
    assert not backend.allows("knobs.reshard_after_forward", "subgroup")
    assert not backend.allows("knobs.reshard_after_forward", 1)


def test_numpy_scalars_are_accepted():
    numpy = pytest.importorskip("numpy")
    backend = small()
    assert backend.allows("layout.pp", numpy.int64(1))
    assert backend.allows("knobs.reshard_after_forward", numpy.True_)
    assert not backend.allows("knobs.reshard_after_forward", numpy.int64(1))


def test_the_back_end_any_refuses_nothing():
    candidate = Candidate(layout=Layout(pp=2, tp=4), knobs=Knobs(offload="all"))
    assert load_backend("any").refusals(candidate, samples.MODEL, Workload(), facts(device="tpu")) == ()


def backend_with_combinations():
    return read_backend(yaml_file.parse(TOGETHER, "small.yaml"))


def test_an_unsupported_combination_is_one_line_with_its_values():
    candidate = Candidate(layout=Layout(pp=8), knobs=Knobs(offload="streamed"))
    lora = Workload(train="lora")
    (text,) = backend_with_combinations().refusals(candidate, samples.MODEL, lora, facts(lora, "cpu"))
    assert text == "small cannot run offload streamed, train lora: adapters do not travel; choose train full"
    assert backend_with_combinations().refusals(candidate, samples.MODEL, FP32, facts(device="cpu")) == ()


def test_a_setting_is_checked_only_by_combinations_that_name_it():
    ring = {**facts(replace(FP32, train="lora")), "layout.cp": 2, "knobs.offload": "streamed"}
    assert not backend_with_combinations().accepts("options.cp_attention", "sdpa", ring)
    assert backend_with_combinations().accepts(
        "options.cp_attention", "flex", ring
    )  # the other refusal does not depend on the kernel
    assert backend_with_combinations().accepts("options.cp_attention", "sdpa", {**ring, "layout.cp": 1})
    assert backend_with_combinations().accepts("options.pin_memory", True, ring)


def test_unknown_options_are_not_refused():
    """Options are resolved after the ranking, so a table of candidates has none."""
    rows = table([row_of(Candidate(layout=Layout(cp=cp), knobs=Knobs()), 1) for cp in (1, 2)])
    bare = Columns(
        values={name: column for name, column in rows.values.items() if not name.startswith("options.")}, categories=rows.categories
    )
    assert not backend_with_combinations().refused(facts(), bare).any()
    assert backend_with_combinations().refused({**facts(), "options.cp_attention": "sdpa"}, bare).tolist() == [False, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("knobs.offload", "knobs.offlaod"), "5:11: unknown name knobs.offlaod; did you mean knobs.offload"),
        (("    because: adapters do not travel\n", ""), "because is missing"),
        (("do: choose flex", "so: choose flex"), "unknown key 'so'"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(change, words):
    with pytest.raises(FileError, match=words):
        read_backend(yaml_file.parse(TOGETHER.replace(*change), "small.yaml"))


@pytest.mark.parametrize("name", backends())
def test_shipped_back_ends_load_and_have_their_name(name):
    assert load_backend(name).name == name


def test_an_unknown_back_end_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"natve.*native"):
        load_backend("natve")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("title:", "titel:"), "unknown key 'titel'; did you mean title"),
        (("pp:", "ppp:"), "unknown key 'ppp'; did you mean pp"),
        (("offload: [none]", "offload: [disk]"), "offload disk is not one of none, optimizer"),
        (("offload: [none]", "offload: []"), "knobs.offload allows no value"),
        (("backend: small\n", ""), "key 'backend' is missing"),
        (("layout: {pp: [1], tp: [1, 2]}", "layout: 3"), "must be a mapping"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(change, words):
    with pytest.raises(FileError, match=words) as error:
        read_backend(yaml_file.parse(TEXT.replace(*change), "small.yaml"))
    assert "small.yaml" in str(error.value)


OWN = """
backend: own
devices: cuda
by_itself: [reduce_dtype, expert_balance]
options: {expert_balance: bias}
refuses:
  - {when: layout.dp_shard > 1 and knobs.reduce_dtype == "fp32", because: it reduces in halves, do: choose reduce_dtype bf16}
"""


def test_convergence_changes_by_itself_need_no_request_if_unavoidable() -> None:
    own = read_backend(yaml_file.parse(OWN, "own.yaml"))
    layouts = (Layout(dp_shard=8), Layout(dp_replicate=8))
    tried = [Candidate(layout=layout, knobs=Knobs(reduce_dtype=dtype)) for layout in layouts for dtype in ("fp32", "bf16")]
    columns = table([row_of(candidate, 1) for candidate in tried])
    assert list(own.refused(facts(), columns)) == [True, False, False, False]
    assert list(own.unrequested_convergence(facts(), columns, ())) == [False, False, False, True]
    assert not own.unrequested_convergence(facts(), columns, ("reduce_dtype",)).any()
    assert not small().unrequested_convergence(facts(), columns, ()).any()


@pytest.mark.parametrize(("listed", "words"), [("[tp]", "tp does not change the trained model"), ("bf16", "is a list")])
def test_by_itself_lists_only_settings_that_change_convergence(listed: str, words: str) -> None:
    with pytest.raises(FileError, match=words):
        read_backend(yaml_file.parse(OWN.replace("[reduce_dtype, expert_balance]", listed), "own.yaml"))


ON_TWO_STACKS = """
backend: trainer
devices: cuda
stack: hf-trainer
stacks: [{when: layout.dp_shard > 1 and knobs.offload == "optimizer", stack: deepspeed}]
"""


def test_a_candidate_is_priced_by_the_stack_whose_condition_holds() -> None:
    trainer = read_backend(yaml_file.parse(ON_TWO_STACKS, "trainer.yaml"))
    offloaded = Candidate(layout=Layout(dp_shard=4), knobs=Knobs(offload="optimizer"))
    assert trainer.stack_for(row_of(PLAIN, 1)) == "hf-trainer"
    assert trainer.stack_for(row_of(offloaded, 1)) == "deepspeed"
    assert trainer.stack_for({}) == "hf-trainer"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("stack: deepspeed}", "stack: zero}"), "zero is not a stack"),
        (("when: layout.dp_shard", "when: layout.shards"), "layout.shards"),
        ((", stack: deepspeed", ""), "stack is missing"),
        (("[{when", "{when"), "trainer.yaml"),
    ],
)
def test_wrong_stacks_are_refused_with_their_place(change: tuple[str, str], words: str) -> None:
    with pytest.raises(FileError, match=words):
        read_backend(yaml_file.parse(ON_TWO_STACKS.replace(*change), "trainer.yaml"))
