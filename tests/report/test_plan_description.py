"""The description of a plan states every setting that differs from its default, once."""

from dataclasses import replace
from typing import Any

import pytest

from strategist.contract.knobs import CHOICES, Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import OPTION_CHOICES, OPTION_NAMES, Options
from strategist.contract.plan import Plan
from strategist.contract.settings import AXIS_ORDER, AXIS_ORDERS, SETTING_CHOICES, SETTING_NAMES, value_of, with_settings
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.report.answer import answer_report
from strategist.report.plan import plan_report, ranking
from strategist.report.plan_description import OPTION_WORDS, described_parts
from strategist.report.setting_text import change_words, recompute_words
from strategist.units import show_seconds
from tests.report.samples import ANSWER, OTHER, PLAN, plan_with, rendered

PLAIN = Candidate(layout=Layout(), knobs=Knobs())
EVERYTHING = Candidate(
    layout=Layout(pp=2, dp_replicate=2, dp_shard=2, cp=2, tp=2, ep=2),
    knobs=Knobs(recompute="budget", offload="all", float8="tensorwise", compile=True, reshard_after_forward="subgroup"),
)
STREAMED = Candidate(layout=Layout(pp=8), knobs=Knobs(offload="streamed", recompute="full", pp_schedule="gpipe"))
REPLICAS = Candidate(layout=Layout(dp_replicate=8), knobs=Knobs(recompute="selective"))
EXPERTS = replace(
    PLAN, model=resolve_model("mixtral-8x7b").shape, cluster=resolve_cluster("4x8xH100"),
    estimate=replace(PLAN.estimate, pipeline_layers=(17, 15)),
)  # fmt: skip


def plan_of(base: Candidate, **values: Any) -> Plan:
    """A plan, legal or not, with a base's settings and changes."""
    return replace(EXPERTS, candidate=with_settings(base, values))


def others(name: str, base: Candidate) -> list[Any]:
    """Values of a setting except its default and the base's value."""
    taken = (value_of(PLAIN, name), value_of(base, name))
    return [value for value in SETTING_CHOICES.get(name, (3,)) if all(value != known for known in taken)]


def without_effect(parts: dict[str, str]) -> list[str]:
    """Names of the settings that a description lists as without effect."""
    return [item.split()[0] for item in parts.get("no effect", "none").split(", ")]


def test_the_order_of_passes_of_streamed_stages_is_no_setting() -> None:
    parts = dict(described_parts(plan_of(STREAMED)))
    assert "schedule" not in parts["PP"]
    assert "pp_schedule" in without_effect(parts)


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_every_setting_off_its_default_is_described(name: str) -> None:
    described = []
    for base in (EVERYTHING, REPLICAS, STREAMED, PLAIN):
        before = dict(described_parts(plan_of(base)))
        for value in others(name, base):
            plan = plan_of(base, **{name: value})
            after = dict(described_parts(plan))
            assert after != before, f"{name} {value}"
            if plan.matters(name):
                described.append(value)
                assert name not in without_effect(after)
            else:
                assert name in without_effect(after)
    assert described, "no base in which the setting has an effect"


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_an_option_is_described_once(name: str) -> None:
    base = REPLICAS if OPTION_WORDS[name][0] == "DDP" else EVERYTHING
    before = dict(described_parts(plan_of(base)))
    for value in others(name, base):
        after = dict(described_parts(plan_of(base, **{name: value})))
        changed = [line for line in after if after[line] != before.get(line)]
        assert [line for line in changed if line != "off"] == [OPTION_WORDS[name][0]]
        assert after[changed[0]].startswith(before.get(changed[0], ""))


def test_every_option_has_words_for_every_value() -> None:
    assert set(OPTION_WORDS) == set(OPTION_NAMES)
    for name, (_, words) in OPTION_WORDS.items():
        if name in OPTION_CHOICES:
            assert isinstance(words, dict)
            assert set(words) == {value for value in OPTION_CHOICES[name] if value != getattr(Options(), name)}
        else:
            assert "{}" in words


@pytest.mark.parametrize("name", CHOICES)
def test_every_value_of_a_knob_has_its_own_description(name: str) -> None:
    for base in (EVERYTHING, REPLICAS, PLAIN):
        texts = [tuple(described_parts(plan_of(base, **{name: value}))) for value in CHOICES[name]]
        assert len(set(texts)) == len(texts)


def test_default_settings_are_not_described() -> None:
    lines = dict(described_parts(PLAN))
    assert {"DDP", "PP", "TP", "CP", "compile", "job", "no effect"}.isdisjoint(lines)
    assert lines["off"] == "PP, TP, CP, compile"
    assert dict(described_parts(OTHER))["off"] == "CP, compile, offload"
    assert dict(described_parts(plan_of(REPLICAS)))["DDP"] == "8 replicas"


def test_pipeline_stages_with_replicas_use_fsdp2() -> None:
    lines = dict(described_parts(plan_of(Candidate(layout=Layout(pp=2, dp_replicate=4), knobs=Knobs(no_sync=True)))))
    assert "in one shard, 4 replicas" in lines["FSDP2"]
    assert "DDP" not in lines


def test_settings_that_change_convergence_are_marked() -> None:
    neutral = " ".join(text for _, text in described_parts(plan_of(EVERYTHING, float8="none")))
    assert "may differ" not in neutral
    for name, value in {
        "float8": "rowwise",
        "reduce_dtype": "bf16",
        "optimizer_in_backward": True,
        "expert_balance": "bias",
    }.items():
        text_of_plan = " ".join(text for _, text in described_parts(plan_of(EVERYTHING, **{"float8": "none", name: value})))
        assert text_of_plan.count("may differ") == 1, name
    assert "may differ" in dict(described_parts(plan_of(REPLICAS, comm_hook="powersgd")))["DDP"]


def test_activation_offload_is_described_with_other_offload() -> None:
    text_of_plan = dict(described_parts(plan_with(Layout(dp_shard=8), offload="optimizer", activation_offload=True)))["offload"]
    assert text_of_plan.startswith("optimizer states live in host memory")
    assert "; what layers save for the backward pass waits in host memory" in text_of_plan
    assert "activations on the host" in change_words(plan_with(Layout(dp_shard=8), activation_offload=True))


def test_the_mesh_is_described_in_axis_order() -> None:
    mesh = dict(described_parts(plan_of(EVERYTHING, **{AXIS_ORDER: AXIS_ORDERS[1]})))["mesh"]
    assert mesh.index("dp_replicate 2") < mesh.index("pp 2")


def test_the_line_of_a_plan_names_its_precision() -> None:
    assert "compile" not in change_words(PLAN)
    plan = plan_with(Layout(dp_shard=8), compile=True, float8="rowwise", reduce_dtype="bf16")
    assert change_words(plan).endswith("compile, float8 rowwise, reduce_dtype bf16")


def test_plans_that_differ_only_in_compile_are_distinguished() -> None:
    plans = [plan_with(Layout(dp_shard=8), compile=on, float8="rowwise") for on in (True, False)]
    table = rendered(ranking(plans), 200)
    assert "compile true" in table
    assert "compile false" in table
    assert "float8" not in table
    text = rendered(answer_report(replace(ANSWER, plans=tuple(plans))), 200)
    assert "linears in float8 with a scale per row" in text


def test_saved_operations_of_selective_recomputation_are_described() -> None:
    half = replace(PLAN.candidate.knobs, recompute="selective", saved_operations="every_second_matmul+attention")
    plan = replace(PLAN, candidate=replace(PLAN.candidate, knobs=half))
    assert dict(described_parts(plan))["recompute"].startswith("selective: outputs of every second matmul and attention are kept,")
    assert "recompute selective/2" in change_words(plan)
    assert recompute_words(replace(half, saved_operations="matmul+attention+collectives")) == "selective"
    assert recompute_words(replace(half, recompute="full")) == "full"


def test_the_step_interval_is_that_of_the_estimate() -> None:
    plan = replace(PLAN, estimate=replace(PLAN.estimate, step_seconds_range=(1.25, 7.5)))
    assert f"interval {show_seconds(1.25)} to {show_seconds(7.5)}" in " ".join(rendered(plan_report(plan)).split())
