"""Accuracy figures on a terminal and as JSON."""

from pathlib import Path
from typing import Any

import pytest

from strategist import api
from strategist.accuracy.prediction_errors import Accuracy
from strategist.accuracy.skip_reason import SkipReason
from strategist.contract import codec
from strategist.report.accuracy import accuracy_document, accuracy_report
from tests.report.published import LAYOUTS, with_errors, write
from tests.report.samples import rendered

ASKED = {
    "name", "rows_used", "rows_skipped", "step_time_mape", "step_time_median_ape", "step_time_bias", "spearman", "top1_regret",
    "top1_regret_worst", "peak_memory_mape", "oom_f1", "oom_confusion", "skipped", "interval_coverage",
}  # fmt: skip


def accuracy_json(found: Accuracy, count: int = 0) -> dict[str, Any]:
    encoded: dict[str, Any] = codec.encode(accuracy_document(found, count))
    return encoded


def test_errors_are_relative_to_published_values(tmp_path: Path) -> None:
    (source,) = accuracy_json(with_errors(tmp_path, "sweep", (1.1, 0.7, 1.1, 0.9)))["sources"]
    assert source["name"] == "sweep"
    assert source["step_time_mape"] == pytest.approx((0.1 + 0.3 + 0.1 + 0.1) / 4)
    assert source["step_time_median_ape"] == pytest.approx(0.1)
    assert source["step_time_bias"] == pytest.approx((0.1 - 0.3 + 0.1 - 0.1) / 4)
    assert source["peak_memory_mape"] == pytest.approx(0.15)
    assert (source["rows_used"], source["step_time_rows"], source["peak_memory_rows"], source["sweeps"]) == (4, 4, 4, 1)


def test_every_group_has_every_figure_or_none_without_data(tmp_path: Path) -> None:
    write(tmp_path, "memory", [{"step_time_s": ""}])
    write(tmp_path, "lost", [{"row_id": "x", "gpu": "Cray-1"}])
    found = accuracy_json(api.accuracy(tmp_path))
    assert list(found) == ["sources", "devices", "families", "overall", "mean_of_sources"]
    for group in (*found["sources"], *found["devices"], *found["families"], found["overall"]):
        assert group.keys() >= ASKED
    lost, memory = found["sources"]
    assert memory["step_time_mape"] is memory["spearman"] is memory["oom_f1"] is None
    assert memory["peak_memory_mape"] is not None
    assert (lost["rows_used"], lost["rows_skipped"], lost["skipped"]) == (0, 1, {SkipReason.NO_DEVICE.value: 1})
    assert {device["name"]: device["rows_skipped"] for device in found["devices"]} == {"Cray-1": 1, "H100-SXM": 0}


def test_overall_figures_weigh_rows_and_the_mean_weighs_sources(tmp_path: Path) -> None:
    with_errors(tmp_path, "many", (1.1,) * 4)
    with_errors(tmp_path, "one", (1.6,), LAYOUTS[:1])
    found = accuracy_json(api.accuracy(tmp_path))
    assert found["overall"]["step_time_mape"] == pytest.approx((4 * 0.1 + 0.6) / 5)
    assert found["mean_of_sources"]["step_time_mape"] == pytest.approx(0.35)


def test_the_worst_predictions_come_first_with_file_and_line(tmp_path: Path) -> None:
    found = with_errors(tmp_path, "sweep", (1.1, 0.25, 2.0, 0.9))
    first, second = accuracy_json(found, 2)["worst"]
    assert (first["row_id"], first["file"], first["line"]) == ("tp2", "sweep", 3)
    assert first["ratio"] == pytest.approx(0.25)
    assert (second["row_id"], second["predicted"] / second["published"]) == ("tp4", pytest.approx(2.0))
    text = " ".join(rendered(accuracy_report(found, 1)).split())
    assert "dp_shard 4, tp 2" in text
    assert "0.25 times (tp2, sweep.csv:3)" in text
    assert "tp4, sweep.csv" not in text


def test_out_of_memory_verdicts_are_counted(tmp_path: Path) -> None:
    large = {"hidden": 16384, "ffn": 65536, "heads": 128, "kv_heads": 128, "layers": 96}
    rows = [{"oom": 1, "step_time_s": "", **large}, {"oom": 1}, {"oom": 0}, {"oom": 0, "row_id": "alarm", **large}]
    found = api.accuracy(write(tmp_path, "memory", rows))
    assert accuracy_json(found)["sources"][0]["oom_confusion"] == {"hits": 1, "misses": 1, "false_alarms": 1, "passes": 1}
    assert accuracy_json(found)["overall"]["oom_f1"] == pytest.approx(0.5)
    lines = rendered(accuracy_report(found)).split("Out of memory")[1].splitlines()
    assert lines[1].split() == ["hits", "misses", "false", "alarms", "passes"]
    assert lines[2].split() == ["memory", "1", "1", "1", "1"]


def test_the_text_fits_80_columns_and_counts_skipped_rows(tmp_path: Path) -> None:
    name = "a_source_with_quite_a_long_name_of_many_words"
    rows = [*LAYOUTS, {"gpu": "Cray-1"}, {"seq_len": ""}, {"seq_len": ""}]
    text = rendered(accuracy_report(api.accuracy(write(tmp_path, name, rows)), 3), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "4 rows of 1 sources, 3 skipped" in text
    assert text.index("2: batch size or sequence length is not stated") < text.index(f"1: {SkipReason.NO_DEVICE.value}")
    assert all(word in text for word in ("H100-SXM", "Cray-1", "llama", "by rows", "by sources"))
