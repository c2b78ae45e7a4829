"""Accuracy of a set of published rows: used and skipped rows, groups, means."""

import pytest

from strategist.accuracy.prediction_errors import accuracy, price_cases, read_cases
from strategist.accuracy.skip_reason import SkipReason
from tests.accuracy.published import made, row, rows

EXCERPT = (
    *rows("torchtitan_2024_2025")[:4],
    *rows("vtrain_ground_truth")[:4],
    *rows("hf_ultrascale_playbook")[30:36],
    row("roundpipe_8x4090_a800", "rp-910B-qwen3-1.7b"),
    made(notes="WARNING", model="Qwen3-8B"),
)


def test_rows_are_counted_as_used_or_skipped_with_a_reason():
    found = accuracy(EXCERPT)
    assert found.overall.rows_used == 14
    assert found.overall.skipped == {SkipReason.FLAGGED.value: 1, SkipReason.NO_DEVICE.value: 1}
    assert [(item.name, item.rows_used, item.rows_skipped) for item in found.sources] == [
        ("hf_ultrascale_playbook", 6, 0),
        ("made", 0, 1),
        ("roundpipe_8x4090_a800", 0, 1),
        ("torchtitan_2024_2025", 4, 0),
        ("vtrain_ground_truth", 4, 0),
    ]


def test_groups_by_device_and_by_family_cover_all_rows():
    found = accuracy(EXCERPT)
    assert sum(item.rows_used for item in found.devices) == found.overall.rows_used
    assert sum(item.rows_skipped for item in found.families) == found.overall.rows_skipped
    assert {"H100-96GB", "A100-80GB"} <= {item.name for item in found.devices}


def test_the_mean_of_sources_counts_each_source_once():
    found = accuracy(EXCERPT)
    known = [item.step_time_mape for item in found.sources if item.step_time_mape is not None]
    assert found.mean_of_sources.step_time_mape == pytest.approx(sum(known) / len(known))
    assert found.mean_of_sources.step_time_mape != pytest.approx(found.overall.step_time_mape)


def test_predictions_are_independent_of_other_rows_in_the_batch():
    cases, _ = read_cases(EXCERPT)
    together = price_cases(cases)
    for case, seen in zip(cases, together, strict=True):
        (alone,) = price_cases([case])
        assert seen.case is case
        assert alone.step_seconds == pytest.approx(seen.step_seconds)
        assert alone.peak_memory_bytes == pytest.approx(seen.peak_memory_bytes)
        assert alone.fits == seen.fits


def test_allocated_memory_excludes_the_allocators_reserve():
    reserved, allocated = price_cases(read_cases([made(peak_mem_gib=40.0, mem_kind=kind) for kind in ("reserved", "allocated")])[0])
    assert allocated.peak_memory_bytes < reserved.peak_memory_bytes


def test_an_invalid_row_is_skipped_as_impossible():
    (left,) = read_cases([made(precision="bf17")])[1]
    assert left.reason is SkipReason.IMPOSSIBLE
