"""Transfer between published sweeps."""

import json
from itertools import permutations

import jsonschema
import pytest
from accuracy.test_sweep import OTHER_FILES, run
from report.samples import rendered

from strategist.accuracy.case import Case
from strategist.accuracy.sweep import priced_by, sweeps_by_name
from strategist.api.documents import schema_of
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.replay import SEEN_BEFORE, STARTS
from strategist.cost.calibration import NEUTRAL
from strategist.report.transfer_benchmark import transfer_report
from strategist.tuner.transfer_benchmark import savings, transfer, transfer_search


def sweep_of(devices: int) -> list[Case]:
    """A sweep in which tensor parallelism is fast, unlike in the cost model."""
    return [
        run(tp, micro_batch, 2.0 / tp + 0.01 * micro_batch, n_gpus=devices, dp_shard=devices // tp, global_batch=64)
        for tp in (1, 2, 4, 8)
        for micro_batch in (1, 2, 4)
    ]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*2 * sweep_of(8), *2 * sweep_of(16), *OTHER_FILES]


def test_every_pair_of_sweeps_that_differ_in_one_property_is_searched(cases: list[Case]) -> None:
    assert len(sweeps_by_name(cases)) == 2
    progress: list[str] = []
    found = transfer(cases, on_pair=lambda name, done, count: progress.append(f"{done} of {count}"))
    assert [item.start for item in found.transfers] == [*STARTS, *STARTS]
    assert {(item.before, item.sweep) for item in found.transfers} == set(permutations(sweeps_by_name(cases)))
    assert progress == ["1 of 2", "2 of 2"]
    assert {(item.changed, item.near) for item in found.transfers} == {("GPUs", True)}
    assert found.saved[0].pairs == 2
    jsonschema.validate(json.loads(codec.dumps(found)), schema_of("transfer"))
    assert "GPUs, little" in rendered(transfer_report(found), width=120)


def test_trials_of_another_sweep_save_trials(cases: list[Case]) -> None:
    found = transfer_search(STARTS[0], *(priced_by(NEUTRAL, own) for own in sweeps_by_name(cases).values()))
    assert len(found.searches) == len(SEEN_BEFORE)
    cold, handful, everything = (walk.trials for walk in found.searches)
    assert cold > handful
    assert cold > everything
    (line,) = savings([found])
    assert line.mean_trials == line.median_trials == line.most_trials == (cold, handful, everything)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samplers", "order"], "--transfer --samplers: is of the surrogate alone"),
        (["--plot", "a.svg"], "--transfer --plot: is of the surrogate alone"),
    ],
)
def test_wrong_input_prints_one_error_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--transfer", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
