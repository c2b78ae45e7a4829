"""The full answer as text: nothing is truncated at any width, on a terminal or in a file."""

from dataclasses import replace

import pytest

from strategist.contract.answer import Training
from strategist.contract.layout import Layout
from strategist.report.answer import answer_report
from strategist.report.plan import memory_report, ranking
from tests.report.samples import ANSWER, OTHER, PLAN, plan_with, rendered

SEVERAL = (
    plan_with(Layout(dp_shard=8), backends=("native", "transformers"), reshard_after_forward=False, recompute="selective"),
    plan_with(Layout(pp=2, dp_replicate=2, tp=2), pp_schedule="interleaved_zero_bubble", pp_virtual_stages=4),
)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_words_in_the_table_are_not_broken(width: int) -> None:
    text = rendered(ranking(SEVERAL), width)
    words = {word for row in text.splitlines() for word in row.replace(",", " ").split()}
    assert {"dp_shard", "parameters", "kept", "dp_replicate", "interleaved_zero_bubble", "selective", "transformers"} <= words
    for figure in ("47.5", "5,516", "41%", "18.3", "20%"):
        assert text.count(figure) == len(SEVERAL)
    assert max(map(len, text.splitlines())) <= width


def test_columns_fold_into_the_layout_on_narrow_terminals() -> None:
    titles = {width: " ".join(rendered(ranking(SEVERAL), width).splitlines()[0].split()) for width in (60, 80, 140)}
    assert titles[60] == "# layout batch step tok/s MFU GiB"
    assert titles[80] == "# layout recompute batch step tok/s MFU GiB comm"
    assert titles[140] == "# layout recompute offload batch step tok/s MFU GiB comm runs on"
    narrow = rendered(ranking(SEVERAL), 80)
    assert "runs on native, transformers" in narrow
    assert "offload" not in narrow  # neither plan offloads


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_shows_every_figure(width: int) -> None:
    text = rendered(answer_report(ANSWER), width)
    entry = text[text.index("\n  1 ") : text.index("\n  2 ")]
    for figure in ("full", "streamed", "2x4", "47.5 s", "5,516", "41%", "18.3", "20%"):
        assert figure in entry
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_sections_of_the_answer_are_in_order() -> None:
    text = rendered(answer_report(ANSWER))
    marks = [
        "qwen2.5-32b",
        ANSWER.verdict,
        "Plans",
        "The best plan",
        "Predicted",
        "Memory of",
        "Time of",
        "Cards",
        "Alternatives",
        "Assumed",
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_uneven_pipeline_layers_are_abbreviated() -> None:
    estimate = replace(PLAN.estimate, pipeline_layers=(23, 9, 9))
    text = " ".join(rendered(answer_report(replace(ANSWER, plans=(replace(PLAN, estimate=estimate),))), 200).split())
    assert "layers 23, 2 x 9 on the stages, embedding and head weighed" in text
    assert "on the stages" not in rendered(answer_report(ANSWER), 200)


def test_the_training_table_has_one_line_per_plan() -> None:
    known = Training(steps=1_000_000, seconds=10 * 86400, price=123456.7, energy_joules=3.6e9, failures=1.2, productive_ratio=0.98)
    unknown = Training(steps=12, seconds=60.0)
    request = replace(ANSWER.request, tokens=300 * 10**9)
    text = rendered(answer_report(replace(ANSWER, request=request, trainings=(known, unknown))), 80)
    assert "Training  on 300.0 B tokens" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 1,000,000 10.0 days 1.2 98% $123,457 1 MWh" in lines
    assert "2 12 60 s 0 100% - -" in lines


def test_the_best_plan_is_described_in_full() -> None:
    text = " ".join(rendered(answer_report(ANSWER), 200).split())
    for words in (
        "dp_shard 8 (FSDP2 shards) = 8 devices",
        "reshard_after_forward=True",
        "only the input of each layer is kept",
        "micro-batch 2 x accumulation 4 x 8 data ranks = 64 sequences of 4,096 tokens",
        "host memory 512.4 GiB a node of 1.0 TiB there",
        "18.3 GiB of 22.5 GiB a device",
        "communication: 9.5 s in all, of which 3.25 s exposed",
        "MFU 41% = 48% of the step in matmul and attention x 85% of peak there",
        "AC-002 recompute-when-full (prefer): Activations would fill the device.",
        "runs on no back end yet",
    ):
        assert words in text


def test_a_mesh_names_its_axes_in_order() -> None:
    text = " ".join(rendered(answer_report(replace(ANSWER, plans=(OTHER, PLAN))), 200).split())
    assert (
        "pp 2 (pipeline stages) x dp_replicate 2 (replicas) x tp 2 (pieces of each matmul) = 8 devices; the last axis lies" in text
    )
    assert "with sequence and loss parallelism" in text
    assert "runs on native" in text


def test_parts_are_sorted_and_shown_against_the_capacity() -> None:
    text = rendered(answer_report(ANSWER))
    memory = text[text.index("Memory of") : text.index("Time of")]
    names = [line.strip().split("  ")[0] for line in memory.splitlines()[1:] if line.strip()]
    assert names[:3] == ["parameters", "activations", "logits"]
    assert "optimizer" not in names
    assert "34%" in memory


def test_what_is_subtracted_from_a_devices_memory_is_named() -> None:
    device = replace(PLAN.cluster.device, kind="cuda", name="G", memory_bytes=80 * 2**30, usable_memory_bytes=78 * 2**30)
    estimate = replace(PLAN.estimate, capacity_bytes=76.0 * 2**30)
    plan = replace(PLAN, cluster=replace(PLAN.cluster, device=device), estimate=estimate)
    text = " ".join(rendered(memory_report(plan), 200).split())
    first, further = "2.0 GiB for CUDA and the first NCCL communicator", "2.0 GiB for those of further process groups (dp_shard 8)"
    assert f"can be used: 80.0 GiB of G less {first}, less {further}" in text


def test_an_answer_without_plans_shows_alternatives() -> None:
    text = rendered(answer_report(replace(ANSWER, plans=(), feasible=0)))
    assert "Alternatives that fit" in text
    assert "LoRA adapters  --train lora" in text
    assert "5,516 tokens/s" in text
    assert "the trained model may differ" in text
    assert "The best plan" not in text
    assert "tok/s" not in text


def test_a_section_of_an_answer_without_plans_starts_with_the_verdict() -> None:
    assert ANSWER.verdict in rendered(answer_report(replace(ANSWER, plans=()), ["plans"]), 200)
    assert ANSWER.verdict not in rendered(answer_report(ANSWER, ["plans"]), 200)


def test_an_answer_without_alternatives_suggests_more_devices() -> None:
    assert "ask for more devices with --gpus" in rendered(answer_report(replace(ANSWER, plans=(), alternatives=(), feasible=0)))
    assert "ask for more devices" not in rendered(answer_report(ANSWER))


def test_only_a_terminal_gets_colors() -> None:
    assert "\x1b" not in rendered(answer_report(ANSWER))
    assert "\x1b" in rendered(answer_report(ANSWER), terminal=True)


def test_brackets_in_texts_are_not_markup() -> None:
    assert "slower [than] assumed" in rendered(answer_report(ANSWER), 120)


def test_the_answer_states_what_permits_convergence_changes() -> None:
    request = replace(ANSWER.request, allow=("float8",), backend="axolotl")
    text = rendered(
        answer_report(replace(ANSWER, request=request, changes_convergence=("float8 rowwise", "reduce_dtype bf16"))), 120
    )
    assert "may differ, as allowed: float8 rowwise." in text
    assert "may differ, as axolotl does by itself: reduce_dtype bf16." in text
