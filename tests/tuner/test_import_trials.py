"""Import of trials that were measured elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
from tuner_stand_in import SETTINGS, StandIn

from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.study import TrialState
from strategist.errors import FileError, InputError
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.tuner.export import export
from strategist.tuner.import_trials import import_file, merge
from strategist.tuner.limits import Limits
from strategist.tuner.study import read
from strategist.tuner.tune import tune
from tuner.studies import DECK, REQUEST, repeated, tuned


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("studies") / "first", 3)


def written(folder: Path, *lines: str) -> Path:
    file = folder / "runs.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def candidates(study: Path) -> list[object]:
    return [trial.plan.candidate for trial in read(study).trials]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl"])
def test_exported_trials_can_be_imported(study: Path, tmp_path: Path, name: str) -> None:
    export(study, str(tmp_path / name))
    imported = import_file(tmp_path / name, tmp_path / "study", deck=DECK, request=REQUEST)
    assert (imported.imported, imported.duplicates) == (3, 0)
    assert candidates(tmp_path / "study") == candidates(study)
    ours, expected = read(tmp_path / "study").trials, read(study).trials
    assert [trial.measurement.step_seconds for trial in ours] == [trial.measurement.step_seconds for trial in expected]
    assert [trial.proposed_by for trial in ours] == [trial.proposed_by for trial in expected]
    again = import_file(tmp_path / name, tmp_path / "study", deck=DECK)
    assert (again.imported, again.duplicates) == (0, 3)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_repeat_is_imported_as_a_repeat(tmp_path: Path, name: str) -> None:
    study = repeated(tuned(tmp_path / "first", 2))
    export(study, str(tmp_path / name))
    imported = import_file(tmp_path / name, tmp_path / "study", deck=DECK, request=REQUEST)
    assert (imported.imported, imported.duplicates) == (3, 0)
    with Ledger.open(study) as old, Ledger.open(tmp_path / "study") as new:
        assert [row.key for row in new.trials()] == [row.key for row in old.trials()]


@pytest.mark.full
def test_imported_trials_calibrate_the_search(tmp_path: Path) -> None:
    """All imported trials took three times the prediction; the next tuning is calibrated."""
    slow = tuned(tmp_path / "slow", 3, StandIn(slowness=3.0))
    export(slow, str(tmp_path / "t.csv"))
    import_file(tmp_path / "t.csv", tmp_path / "study", deck=DECK, request=REQUEST)
    result = tune(
        REQUEST,
        study=tmp_path / "study",
        limits=Limits(trials=4, confirm=0),
        runner=TrialRunner(executor=StandIn(slowness=3.0), settings=SETTINGS),
        deck=DECK,
    )
    last = result.trials[-1]
    assert last.plan.candidate not in candidates(slow)
    assert last.plan.estimate.step_seconds == pytest.approx(last.measurement.step_seconds, rel=0.3)


def test_a_users_table_needs_few_columns(tmp_path: Path) -> None:
    file = written(
        tmp_path, "dp_replicate,dp_shard,knobs.micro_batch,tokens_per_second,outcome", "4,,2.0,2048,", ",4,2,,oom", ",,,,"
    )
    pandas.read_csv(file).to_parquet(tmp_path / "runs.parquet")
    for source in (file, tmp_path / "runs.parquet"):
        with pytest.raises(FileError, match=r"(runs\.csv:4|runs\.parquet:3): .*must equal the 4 devices"):
            import_file(source, tmp_path / "study", deck=DECK, request=REQUEST)
        assert not (tmp_path / "study").exists()
    imported = import_file(written(tmp_path, *file.read_text().splitlines()[:3]), tmp_path / "study", deck=DECK, request=REQUEST)
    first, second = read(tmp_path / "study").trials
    assert imported.imported == 2
    assert first.plan.candidate.layout.dp_replicate == 4
    assert first.measurement.step_seconds == pytest.approx(128 * 16 / 2048)
    assert (second.outcome, second.measurement.step_seconds) == (Outcome.OOM, None)
    assert [trial.proposed_by for trial in (first, second)] == ["import:runs.csv"] * 2


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["dp_sard,step_seconds", "4,1"], r":2: column dp_sard: is neither a setting nor a figure; did you mean dp_shard\?"),
        (["weather,step_seconds", "4,1"], ":2: column weather: is neither a setting"),
        (["dp_shard,step_seconds", "4,fast"], ":2: step_seconds fast: a positive number is needed"),
        (["dp_shard,step_seconds", "4,0"], ":2: step_seconds 0: a positive"),
        (["dp_shard,step_seconds", "4,nan"], ":2: step_seconds nan: a positive"),
        (["dp_shard,step_seconds", "4,"], ":2: step_seconds: is missing"),
        (["dp_shard,step_seconds", "many,1"], ":2: dp_shard=many: dp_shard is a positive whole number"),
        (["dp_shard,recompute,step_seconds", "4,some,1"], ":2: recompute=some: is not a value of recompute"),
        (["dp_shard,step_seconds,outcome", "4,1,fine"], ":2: outcome fine: is not known; choose one of ok, oom"),
        (["dp_shard,step_seconds", "4"], ":2: the row has not as many cells"),
        (["dp_shard,step_seconds", "4,1,2"], ":2: the row has not as many cells"),
    ],
)
def test_a_wrong_cell_is_named_by_its_line_and_nothing_is_imported(tmp_path: Path, lines: Sequence[str], words: str) -> None:
    with pytest.raises(FileError, match=words) as caught:
        import_file(written(tmp_path, *lines), tmp_path / "study", deck=DECK, request=REQUEST)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.xlsx", b"", "has no known format"),
        ("t.csv", b"\xff\xfe\x00", "is not a CSV file"),
        ("t.parquet", b"text", "is not a Parquet file"),
        ("t.jsonl", b"{}\n", "the line holds no record"),
        ("nowhere/t.csv", None, "cannot be read: No such file"),
        ("nowhere/t.parquet", None, "cannot be read: "),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((FileError, InputError), match=words) as caught:
        import_file(tmp_path / name, tmp_path / "study", deck=DECK, request=REQUEST)
    assert "\n" not in str(caught.value)


def test_an_import_of_another_request_is_refused(study: Path, tmp_path: Path) -> None:
    export(study, str(tmp_path / "t.jsonl"))
    longer = replace(REQUEST, workload=replace(REQUEST.workload, seq_len=256))
    with pytest.raises(FileError, match="trial 1: is of another workload than the study"):
        import_file(tmp_path / "t.jsonl", tmp_path / "other", deck=DECK, request=longer)
    with pytest.raises(InputError, match="seq_len was 128, is 256"):
        import_file(written(tmp_path, "dp_shard,step_seconds", "4,1"), study, deck=DECK, request=longer)
    with pytest.raises(FileError, match="there is no study in this folder"):
        import_file(tmp_path / "t.jsonl", tmp_path / "new", deck=DECK)
    Ledger.open(tmp_path / "new", create=True).close()
    with pytest.raises(InputError, match="holds no request; say which"):
        import_file(tmp_path / "t.jsonl", tmp_path / "new", deck=DECK)


def test_merging_two_studies_duplicates_no_trial(tmp_path: Path) -> None:
    one = tuned(tmp_path / "one", 3)
    two = tuned(tmp_path / "two", 1, StandIn(outcome=Outcome.CRASH))  # the first candidate of both is the same
    tuned(two, 2, StandIn(slowness=2.0))
    imported = merge([two, one], tmp_path / "both")
    merged = read(tmp_path / "both")
    tried = [trial.plan.candidate for trial in merged.trials]
    assert imported.imported == len(tried)
    assert imported.imported + imported.duplicates == 5
    assert sorted(map(repr, tried)) == sorted({repr(candidate) for candidate in [*candidates(one), *candidates(two)]})
    assert [trial.ended for trial in merged.trials] == sorted(trial.ended for trial in merged.trials)
    assert merged.trials[0].outcome is read(one).trials[0].outcome  # the trial that ended first
    again = merge([one, two], tmp_path / "both")
    assert (again.imported, again.duplicates) == (0, 5)
    result = tune(
        REQUEST,
        study=tmp_path / "both",
        limits=Limits(trials=len(tried) + 1, confirm=0),
        runner=TrialRunner(executor=StandIn(), settings=SETTINGS),
        deck=DECK,
    )
    assert len(result.trials) == len(tried) + 1


def test_merging_prefers_conclusive_trials_and_queues_open_trials(tmp_path: Path) -> None:
    one, two = tuned(tmp_path / "one", 1), tmp_path / "two"
    plan = read(one).trials[0].plan
    with Ledger.open(one) as ledger, Ledger.open(two, create=True) as other:
        for name in ("request", "situation"):
            other.set_fact(name, ledger.fact(name))
        row = ledger.trials()[0]
        other.enqueue(row.key, row.plan_json, "far")
        lost = Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.CANCELLED)
        other.finish(other.claim("w", 1000.0), Outcome.CANCELLED, codec.dumps(lost))
        other.enqueue("open", row.plan_json, "far")
        other.claim("w", 1000.0)
    merge([two, one], tmp_path / "both")
    with Ledger.open(tmp_path / "both") as ledger:
        assert [(row.key, row.state, row.outcome) for row in ledger.trials()] == [
            (row.key, TrialState.FINISHED, Outcome.OK), ("open", TrialState.QUEUED, None),
        ]  # fmt: skip


def test_merging_studies_of_different_requests_is_refused(study: Path, tmp_path: Path) -> None:
    longer = replace(REQUEST, workload=replace(REQUEST.workload, seq_len=256))
    other = tuned(tmp_path / "other", 1, request=longer)
    with pytest.raises(InputError, match=r"is of another request than .*first: seq_len was 128, is 256; merge studies of one"):
        merge([study, other], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(InputError, match="seq_len was 128, is 256"):
        merge([study], other)
    Ledger.open(tmp_path / "new", create=True).close()
    with pytest.raises(FileError, match="holds no request"):
        merge([study, tmp_path / "new"], tmp_path / "both")
