"""The summary of an answer: one screen, with commands to paste."""

from dataclasses import replace
from functools import cache

import pytest
from planning.plans import answer_of, best

import strategist
from strategist.contract.answer import Answer
from strategist.contract.layout import Layout
from strategist.contract.request import Request
from strategist.contract.setting_parser import parse_fix
from strategist.contract.simulation import Proof, Verdict
from strategist.contract.workload import Workload
from strategist.profiles.models import resolve_model
from strategist.report.answer_summary import answer_summary, bound_by, fit_words, fix_options
from tests.report.samples import ANSWER, ESTIMATE, PLAN, plan_with, rendered

LINES, COLUMNS = 40, 80
SURE = replace(PLAN, estimate=replace(ESTIMATE, fit_confidence=0.97))

LONG, SHORT = Workload(seq_len=8192, global_batch=128), Workload(seq_len=128, global_batch=16)
REQUESTS = [
    Request(model="32b", gpus="8x24GB"),
    Request(model="mixtral-8x7b", gpus="2x8xH100", allow=("float8",), host_memory_bytes=2**36),
    Request(model="70b", gpus="1x24GB", fix={"offload": "none"}),
    Request(model="tiny", gpus="4xcpu", workload=SHORT),
    Request(model="llama3-70b", gpus="8x8xH100", workload=LONG),
    Request(model="deepseek-v3", gpus="32x8xH100", workload=Workload(global_batch=512)),
]


@cache
def answered(number: int) -> Answer:
    return strategist.plan(REQUESTS[number])


@pytest.mark.parametrize(
    "number",
    [*range(len(REQUESTS) - 2), *(pytest.param(number, marks=pytest.mark.full) for number in (-2, -1))],
    ids=[f"{given.model} on {given.gpus}" for given in REQUESTS],
)
def test_a_summary_fits_a_screen_and_its_fix_option_gives_the_same_plan(number: int) -> None:
    given, answer = REQUESTS[number], answered(number)
    lines = rendered(answer_summary(answer), COLUMNS).splitlines()
    rows = sum(max(1, -(-len(line.rstrip()) // COLUMNS)) for line in lines)  # a terminal wraps a command
    assert rows <= LINES
    for plan in answer.plans[:1]:
        assert any(line.strip() == f"--fix {fix_options(plan)}" for line in lines)
        assert best(replace(given, fix=dict(map(parse_fix, fix_options(plan).split(","))))).candidate == plan.candidate


def test_the_next_command_is_one_that_the_runtime_can_execute() -> None:
    models = {"run": PLAN.model, "report": replace(PLAN.model, qk_norm=True, qk_norm_all_heads=True)}
    for command, model in models.items():
        plan = replace(PLAN, model=model, backends=("native",) if command == "run" else ("transformers",))
        assert f"strategist {command} plan.json" in rendered(answer_summary(replace(ANSWER, plans=(plan,))), 200)


def test_a_summary_without_plans_has_the_command_of_the_nearest_alternative() -> None:
    answer = answered(2)
    words_of_next = rendered(answer_summary(answer), COLUMNS).partition("\nNext")[2].split()
    gpus, flags = answer.alternatives[0].flags[1], answer.alternatives[0].flags[2:]
    assert answer.alternatives[0].flags[0] == "--gpus"
    assert words_of_next.count("--gpus") == 2  # once more for the request itself, with --explain
    assert gpus in words_of_next
    assert set(flags) <= {*words_of_next}


@pytest.mark.parametrize(
    ("probability", "peak", "words"),
    [
        (0.97, 18.3, "Fits: 18.3 of 22.5 GiB a device, 4.2 to spare, probability 97%"),
        (0.6, 22.0, "Tight: 22.0 of 22.5 GiB a device, 0.5 to spare, probability 60%"),
        (0.02, 30.5, "Does not fit: 30.5 of 22.5 GiB a device, 8.0 too many, probability 2.0%"),
    ],
)
def test_the_verdict_follows_the_probability(probability: float, peak: float, words: str) -> None:
    gib = 2.0**30
    sizes = {"peak_memory_bytes": peak * gib, "capacity_bytes": 22.5 * gib}
    assert words in fit_words(replace(ESTIMATE, fit_confidence=probability, **sizes))


def test_a_step_is_bound_by_its_largest_part() -> None:
    assert bound_by(ESTIMATE.time) == "compute"
    assert bound_by(replace(ESTIMATE.time, offload=50.0)) == "host link"


@pytest.mark.parametrize(
    ("objective", "tokens", "memory"), [("throughput", "tokens/s (x4.00)", "GiB"), ("memory", "tokens/s", "GiB (x0.50)")]
)
def test_an_alternative_is_compared_in_what_the_request_asks_for(objective: str, tokens: str, memory: str) -> None:
    estimate = replace(ESTIMATE, step_seconds=ESTIMATE.step_seconds / 4, peak_memory_bytes=ESTIMATE.peak_memory_bytes / 2)
    estimate = replace(estimate, tokens_per_second=4 * ESTIMATE.tokens_per_second)
    best, other = (replace(PLAN, estimate=item) for item in (ESTIMATE, estimate))
    alternative = replace(ANSWER.alternatives[0], plan=other)
    request = replace(ANSWER.request, objective=objective)
    text = rendered(answer_summary(replace(ANSWER, request=request, plans=(best,), alternatives=(alternative,))), 200)
    speed, capacity, *_ = text.partition(alternative.title)[2].splitlines()[1].split(", ")
    assert speed.endswith(tokens)
    assert capacity.endswith(memory)


def test_alternatives_supported_by_a_back_end_come_first() -> None:
    other = ANSWER.alternatives[0]
    unsupported = replace(other, title="A back end is missing", plan=replace(PLAN, backends=()))
    text = rendered(answer_summary(replace(ANSWER, alternatives=(unsupported, other))), COLUMNS)
    assert text.index("LoRA adapters") < text.index("A back end is missing")
    assert "no back end yet" in text


def test_the_expert_column_is_shown_only_for_moe_models() -> None:
    assert " EP " not in rendered(answer_summary(ANSWER), COLUMNS)
    sparse = plan_with(Layout(dp_shard=8, ep=4))
    moe = resolve_model("mixtral-8x7b").shape
    assert " EP " in rendered(answer_summary(replace(ANSWER, plans=(replace(sparse, model=moe),))), COLUMNS)


def test_the_repr_of_an_answer_is_short() -> None:
    assert len(repr(ANSWER)) < 1000
    assert ANSWER.verdict in repr(ANSWER)


def test_an_export_is_suggested_only_if_the_format_supports_the_plan() -> None:
    export = "strategist export plan.json --to pytorch -o job/"
    able = replace(ANSWER, plans=(replace(PLAN, backends=("native", "pytorch")),))
    assert export in rendered(answer_summary(able), COLUMNS)
    plain = plan_with(Layout(dp_shard=8), reduce_dtype="bf16", no_sync=True)
    unable = rendered(answer_summary(replace(ANSWER, plans=(plain,))), COLUMNS)
    assert export not in unable
    assert "--to pytorch --job-output job/" in unable
    quantized = replace(plain, workload=replace(plain.workload, train="qlora", optimizer="adamw8bit"))
    assert "--to axolotl --job-output job/" in rendered(answer_summary(replace(ANSWER, plans=(quantized,))), COLUMNS)
    able_on_nodes = replace(able.plans[0], cluster=replace(PLAN.cluster, nodes=2))
    assert "--to pytorch --job slurm -o job/" in rendered(answer_summary(replace(able, plans=(able_on_nodes,))), COLUMNS)


def test_an_export_without_a_supported_plan_is_not_suggested() -> None:
    """accelerate supports DeepSeek-V3, but no layout of these plans: with --to accelerate nothing fits."""
    given = Request(model="deepseek-v3", gpus="32x8xH100", fix={"pp": 16})
    assert "--to torchtitan --job slurm" in rendered(answer_summary(answer_of(given)), COLUMNS)
    assert best(replace(given, backend="torchtitan")).estimate.fits
    text = rendered(answer_summary(replace(ANSWER, plans=(plan_with(Layout(pp=8), offload="streamed"),))), COLUMNS)
    assert "--show backends  # what each framework can run" in text
    assert "--to" not in text


def test_next_commands_repeat_the_request() -> None:
    """An option that an alternative changes appears once; options besides the request are repeated."""
    request = Request(model="8b", gpus="8xH100", workload=Workload(seq_len=2**23, global_batch=4))
    shorter = replace(ANSWER.alternatives[0], flags=("--seq-len", "1048576", "--global-batch", "32"))
    answer = replace(ANSWER, request=request, plans=(), alternatives=(shorter,))
    lines = rendered(answer_summary(answer, ["--cards", "mine"]), COLUMNS).partition("\nNext")[2].split("\n")
    assert lines[1].strip() == "strategist plan --model 8b --gpus 8xH100 --seq-len 1048576 --global-batch 32 --cards mine"
    assert lines[2].strip().endswith("--seq-len 8388608 --global-batch 4 --cards mine --explain")


def test_the_verdict_is_printed_once() -> None:
    text = rendered(answer_summary(replace(ANSWER, verdict="It fits. 8 bytes each.", plans=(SURE,))), COLUMNS)
    assert "Fits: " in text
    assert "It fits" not in text
    assert "8 bytes each." in text


def test_a_plan_too_large_in_simulation_is_not_reported_to_fit() -> None:
    proofs = (Proof(verdict=Verdict.TOO_LARGE), Proof(verdict=Verdict.TOO_LARGE))
    assert "Fits:" not in rendered(answer_summary(replace(ANSWER, plans=(SURE, SURE), proofs=proofs)), COLUMNS)
    assert "Fits:" in rendered(answer_summary(replace(ANSWER, plans=(SURE, SURE))), COLUMNS)


def test_the_lora_rank_is_shown_for_qlora() -> None:
    text = rendered(answer_summary(answered(0)), COLUMNS)
    assert "QLoRA (4-bit base weights), adapters of rank 16" in text
    assert "90% interval" in text
