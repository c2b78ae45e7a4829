"""Held-out errors: each source predicted by fits to all others, compared with a rule of thumb."""

from dataclasses import replace

import pytest

from strategist.accuracy.case import Case, case_of
from strategist.accuracy.case_columns import columns_of
from strategist.accuracy.error_metrics import PricedCase
from strategist.accuracy.held_out_errors import (
    MIN_SOURCES,
    device_of,
    file_of,
    held_out_errors,
    held_out_step_seconds,
    mean_error,
    rule_of_thumb_seconds,
    source_of,
    step_ranges,
    with_intervals,
)
from strategist.accuracy.prediction_errors import read_cases
from strategist.accuracy.row import read_rows
from strategist.cost.shipped_calibrations import ANY_STACK, Shipped, shipped
from strategist.paths import data_dir
from tests.accuracy.published import made

PUBLISHED = data_dir("profiles") / "measurements" / "published"


def timed_cases(name: str) -> list[Case]:
    cases, _ = read_cases(read_rows(PUBLISHED / f"{name}.csv"))
    return [case for case in cases if case.step_seconds]


@pytest.fixture(scope="module")
def atorch() -> list[Case]:
    """Runs of one model on A100 with two stacks."""
    return timed_cases("atorch_llama2_7b")


def test_files_of_one_publisher_are_held_out_together(atorch: list[Case]) -> None:
    assert source_of(atorch[0]) == "atorch_llama2_7b"
    both = [source_of(timed_cases(name)[0]) for name in ("nvidia_nemo", "nvidia_megatron_bridge_skills_memory")]
    assert both == ["NVIDIA", "NVIDIA"]


def test_the_rule_of_thumb_is_40_percent_mfu(atorch: list[Case]) -> None:
    """Llama 2 7B, 4,096 tokens: 6 FLOPs for each of 6.6e9 parameters in matmuls, and 12 x 32 x 4096 x 4096 for attention."""
    case = next(case for case in atorch if case.workload.train == "full")
    flops = (6 * (6.738e9 - 32000 * 4096) + 12 * 32 * 4096 * case.workload.seq_len) * case.workload.tokens_per_step
    assert rule_of_thumb_seconds(case) == pytest.approx(flops / (0.4 * 312e12 * case.cluster.devices), rel=0.02)


def test_held_out_predictions_do_not_depend_on_the_groups_own_rows() -> None:
    """Making the group's own rows ten times as slow leaves their predictions unchanged."""
    own, others = (
        [case_of(made(file=file, tp=tp, dp_shard=8 // tp, step_time_s=2.0 + 0.1 * tp)) for tp in (1, 2, 4, 8)]
        for file in ("own", "other")
    )
    before = held_out_step_seconds(columns_of([*own, *others]), file_of, shipped().fits, "own")
    slower = [replace(case, step_seconds=10 * (case.step_seconds or 0.0)) for case in own]
    after = held_out_step_seconds(columns_of([*slower, *others]), file_of, shipped().fits, "own")
    assert list(after) == list(range(len(own)))
    assert after == pytest.approx(before)
    found = [with_ratio(case, (case.step_seconds or 0.0) / after[at]) for at, case in enumerate(slower)]
    (figures,) = held_out_errors(found, found, file_of)
    assert (figures.name, figures.timed_rows) == ("own", len(own))
    assert figures.error is not None
    assert figures.error > 0.8
    assert mean_error([figures], min_rows=len(own)) == figures.error


def test_step_ranges_weigh_each_source_equally(atorch: list[Case]) -> None:
    """One source with many rows at 1 and one with few rows at 2 give the range 1 to 2."""
    many = [with_ratio(case, 1.0) for case in atorch]
    few = [with_ratio(replace(case, row=replace(case.row, file="other")), 2.0) for case in atorch[:2]]
    assert step_ranges([*many, *few]) == {ANY_STACK: pytest.approx((1.0, 2.0))}
    assert device_of(atorch[0]) == "A100-80GB"


def test_a_framework_family_with_enough_sources_has_its_own_step_range(atorch: list[Case]) -> None:
    """Five torch sources at 1, and one of another family at 4, which is outside the torch range."""
    torch = [with_ratio(replace(case, row=replace(case.row, file=str(at))), 1.0) for at, case in enumerate(atorch[:MIN_SOURCES])]
    apart = [with_ratio(replace(case, stack=replace(case.stack, name="other", family="own")), 4.0) for case in atorch[:1]]
    found = step_ranges([*torch, *apart])
    assert found["any torch"] == pytest.approx((1.0, 1.0))
    assert found[ANY_STACK][1] > 1.5
    assert set(found) == {"any torch", ANY_STACK}
    [inside, other] = with_intervals([torch[0], apart[0]], Shipped(source="a test", step_ranges=found))
    assert inside.interval == pytest.approx((inside.step_seconds, inside.step_seconds))
    assert other.interval == pytest.approx(tuple(share * other.step_seconds for share in found[ANY_STACK]))


def with_ratio(case: Case, ratio: float) -> PricedCase:
    """A prediction whose measured step is ``ratio`` times the predicted one."""
    return PricedCase(case=case, step_seconds=(case.step_seconds or 0.0) / ratio, peak_memory_bytes=1.0, fit_confidence=1.0)
