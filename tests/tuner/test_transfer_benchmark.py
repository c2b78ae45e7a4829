"""Published sweeps searched after another one was."""

import json
from itertools import permutations

import jsonschema
import pytest
from accuracy.test_sweep import OTHER_FILES, run
from report.samples import look

from strategist.accuracy.case import Case
from strategist.accuracy.sweep import grouped, priced_by
from strategist.api.documents import schema_of
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.replay import SEEN_BEFORE, STARTS
from strategist.cost.calibration import NEUTRAL
from strategist.report.transfer import transfer_report
from strategist.tuner.transfer_benchmark import savings, transfer, transfer_search


def sweep_of(devices: int) -> list[Case]:
    """Where tensor parallelism is fast, against all that the cost model knows."""
    return [
        run(tp, micro_batch, 2.0 / tp + 0.01 * micro_batch, n_gpus=devices, dp_shard=devices // tp, global_batch=64)
        for tp in (1, 2, 4, 8)
        for micro_batch in (1, 2, 4)
    ]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*2 * sweep_of(8), *2 * sweep_of(16), *OTHER_FILES]


def test_every_pair_that_differs_in_one_thing_is_walked_from_each_start(cases: list[Case]) -> None:
    assert len(grouped(cases)) == 2
    said: list[str] = []
    found = transfer(cases, on_pair=lambda name, done, count: said.append(f"{done} of {count}"))
    assert [item.start for item in found.transfers] == [*STARTS, *STARTS]
    assert {(item.before, item.sweep) for item in found.transfers} == set(permutations(grouped(cases)))
    assert said == ["1 of 2", "2 of 2"]
    assert {(item.changed, item.near) for item in found.transfers} == {("GPUs", True)}
    assert found.saved[0].pairs == 2
    jsonschema.validate(json.loads(codec.dumps(found)), schema_of("transfer"))
    assert "GPUs, little" in look(transfer_report(found), width=120)


def test_what_the_sweep_before_showed_saves_trials_here(cases: list[Case]) -> None:
    found = transfer_search(STARTS[0], *(priced_by(NEUTRAL, own) for own in grouped(cases).values()))
    assert len(found.searches) == len(SEEN_BEFORE)
    cold, handful, everything = (walk.trials for walk in found.searches)
    assert cold > handful
    assert cold > everything
    (line,) = savings([found])
    assert line.mean_trials == line.median_trials == line.most_trials == (cold, handful, everything)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--samplers", "order"], "--transfer --samplers: is of the surrogate alone"),
        (["--plot", "a.svg"], "--transfer --plot: is of the surrogate alone"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--transfer", *arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
