"""Export of studies to other formats."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import optuna
import pandas
import pytest
from postgres_server import PostgresServer
from tuner_stand_in import StandIn

from strategist.contract.measurement import Outcome
from strategist.contract.settings import settings_of
from strategist.errors import FileError, InputError
from strategist.ledger.ledger import Ledger
from strategist.profiles import history
from strategist.tuner.export import export
from strategist.tuner.study import read
from tuner.studies import REQUEST, tuned


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished trials, the first out of memory, and a queued trial."""
    folder = tmp_path_factory.mktemp("studies") / "first"
    tuned(folder, 1, StandIn(outcome=Outcome.OOM))
    tuned(folder, 4)
    with Ledger.open(folder) as ledger:
        ledger.enqueue("another", ledger.trials()[0].plan_json, "test")
    return folder


def test_a_csv_table_has_one_row_per_trial_and_one_column_per_setting(study: Path, tmp_path: Path) -> None:
    assert export(study, str(tmp_path / "t.csv")) == 5
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    trials = read(study).trials
    assert [row["state"] for row in rows] == ["finished"] * 4 + ["queued"]
    assert (rows[0]["outcome"], rows[0]["step_seconds"], rows[0]["message"]) == ("oom", "", "no memory free")
    for row, trial in zip(rows[1:4], trials[1:4], strict=True):
        assert float(row["step_seconds"]) == trial.measurement.step_seconds
        assert float(row["predicted_step_seconds"]) == trial.plan.estimate.step_seconds
        assert int(row["peak_memory_bytes"]) == max(trial.measurement.peak_memory_bytes)
        assert {name: row[name] for name in settings_of(trial.plan.candidate)} == {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings_of(trial.plan.candidate).items()
        }
        assert row["started"] <= row["ended"]


def test_parquet_and_csv_have_equal_content(study: Path, tmp_path: Path) -> None:
    export(study, str(tmp_path / "t.csv"))
    export(study, str(tmp_path / "t.parquet"))
    one, other = pandas.read_csv(tmp_path / "t.csv", dtype=str), pandas.read_parquet(tmp_path / "t.parquet")
    assert list(one) == list(other)
    assert other["step_seconds"].dtype == "float64"
    for name in ("number", "outcome", "layout.pp", "knobs.reshard_after_forward", "started"):
        assert [value for value in one[name] if value == value] == [str(value) for value in other[name] if value == value and value]


def test_json_lines_equal_the_history_of_the_folder(study: Path, tmp_path: Path) -> None:
    assert export(study, str(tmp_path / "t.jsonl")) == 4
    assert (tmp_path / "t.jsonl").read_bytes() == (study / "history.jsonl").read_bytes()
    assert len(history.read(tmp_path / "t.jsonl").records) == 4


def test_optuna_reads_the_trials_with_their_constraints(study: Path, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'o.db'}"
    assert export(study, storage) == 4
    loaded = optuna.load_study(study_name="first", storage=storage)
    trials = read(study).finished
    assert loaded.best_value == read(study).best_trial.measurement.step_seconds
    assert [trial.params["layout.pp"] for trial in loaded.trials] == [item.plan.candidate.layout.pp for item in trials]
    assert [trial.state.name for trial in loaded.trials] == ["PRUNED"] + ["COMPLETE"] * 3
    assert loaded.trials[0].constraints["memory"] > 0 >= loaded.trials[1].constraints["memory"]
    assert loaded.trials[1].datetime_start.timestamp() == pytest.approx(trials[1].started)
    assert loaded.trials[1].user_attrs["proposed_by"] == trials[1].proposed_by
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    assert "layout.pp" in optuna.importance.get_param_importances(loaded, evaluator=evaluator)
    with pytest.raises(InputError, match="holds a study first already"):
        export(study, storage)


def test_a_memory_objective_is_exported_to_optuna(tmp_path: Path) -> None:
    tuned(tmp_path / "small", 1, request=replace(REQUEST, objective="memory"))
    export(tmp_path / "small", f"sqlite:///{tmp_path / 'o.db'}")
    loaded = optuna.load_study(study_name="small", storage=f"sqlite:///{tmp_path / 'o.db'}")
    assert loaded.metric_names == ["peak_memory_bytes"]
    assert loaded.best_value == max(read(tmp_path / "small").best_trial.measurement.peak_memory_bytes)


@pytest.mark.full
def test_a_study_on_a_server_keeps_its_name(tmp_path: Path, postgres: PostgresServer) -> None:
    place = postgres.study()
    tuned(tmp_path / "here", 1, server=place)
    export(place, f"sqlite:///{tmp_path / 'o.db'}")
    assert optuna.get_all_study_names(f"sqlite:///{tmp_path / 'o.db'}") == [place.rpartition("=")[2]]


@pytest.mark.parametrize("target", ["t.xlsx", "t", "sqlite:///", "postgresql://ada:SECRET@db/t.csv"])
def test_a_target_of_unknown_format_is_refused(study: Path, target: str) -> None:
    with pytest.raises(InputError, match="has no known format") as caught:
        export(study, target)
    assert "SECRET" not in str(caught.value)


def test_a_target_that_cannot_be_written_is_named(study: Path, tmp_path: Path) -> None:
    (tmp_path / "file.db").write_text("no database, but long enough to be read as one" * 40)
    with pytest.raises(FileError, match=r"there is no folder .*/nowhere"):
        export(study, str(tmp_path / "nowhere" / "t.csv"))
    with pytest.raises(InputError, match="cannot be written"):
        export(study, f"sqlite:///{tmp_path / 'file.db'}")


def test_json_lines_contain_plans_and_measurements(study: Path, tmp_path: Path) -> None:
    export(study, str(tmp_path / "t.jsonl"))
    first = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    assert {"plan", "measurement", "trial", "proposed_by"} <= set(first)
