"""Replay of published sweeps."""

from dataclasses import replace

import numpy as np
import pytest
from accuracy.test_sweep import SWEEP, priced

from strategist.accuracy.sweep import Sweep
from strategist.cli.main import main
from strategist.contract.replay import START_SECONDS, STEPS, ReplayDocument, ReplayedSweep, SearchRun
from strategist.report.replay import replayed_plot
from strategist.search.settings import SAMPLERS
from strategist.tuner.replay_benchmark import search_run, summary


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return priced(SWEEP)


def test_a_correct_cost_model_needs_one_trial(sweep: Sweep) -> None:
    right = replace(sweep, step_seconds=sweep.predicted_seconds, memory_ratio=np.full(len(sweep.cases), 0.3))
    for sampler in ("surrogate", "order"):
        assert search_run(right, sampler, 0).regret == (0.0,)


def test_device_hours_count_starts_and_steps(sweep: Sweep) -> None:
    seconds = sweep.predicted_seconds.copy()
    seconds[0] = np.inf
    found = search_run(replace(sweep, step_seconds=seconds), "order", 0)
    assert (found.trials, found.failed) == (2, 1)
    assert found.regret == (None, 0.0)
    assert found.device_hours == pytest.approx(8 * (2 * START_SECONDS + STEPS * seconds[1]) / 3600)


def test_regret_is_relative_to_the_best_so_far(sweep: Sweep) -> None:
    seconds = np.full(len(sweep.cases), 4.0)
    seconds[np.argsort(sweep.predicted_seconds)[:4]] = (3.0, 2.0, 2.5, 1.0)
    assert search_run(replace(sweep, step_seconds=seconds), "order", 0).regret == (2.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "gp"])
def test_every_sampler_finds_the_best(sweep: Sweep, sampler: str) -> None:
    seconds = np.full(len(sweep.cases), 5.0)
    seconds[-1] = 1.0
    found = search_run(replace(sweep, step_seconds=seconds), sampler, 3)
    assert found.regret[-1] == 0.0
    assert found.trials <= len(sweep.cases)


def test_a_summary_covers_all_searches_of_its_sampler() -> None:
    def made(sampler: str, regret: tuple[float, ...], failed: int) -> SearchRun:
        return SearchRun(sweep="s", sampler=sampler, seed=0, regret=regret, failed=failed, device_hours=float(len(regret)))

    searches = (made("surrogate", (0.0,), 0), made("surrogate", (1.0, 0.5, 0.0), 2), made("order", (1.0,) * 9, 9))
    found = summary(searches, "surrogate")
    assert (found.median_trials, found.most_trials, found.failed_share, found.searches) == (2, 3, 0.5, 2)
    sweep = ReplayedSweep(name="s", rows=20, candidates=18)
    replayed = ReplayDocument(searches=searches, samplers=(found, summary(searches, "order")), sweeps=(sweep,))
    plot = replayed_plot(replayed)
    assert "best so far against trials" in plot.lower()
    assert plot.count("<title>") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samplers", "simplex"], "--samplers simplex: is not a sampler; choose one of surrogate, order"),
        (["--samplers", ""], "is not a sampler"),
        (["--seeds", "0"], "--seeds 0: must be at least 1"),
        (["--data", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_input_prints_one_error_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
