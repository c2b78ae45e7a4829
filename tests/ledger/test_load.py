"""Sixteen tuners on one study of ten thousand trials: each trial runs once, and the ledger is not a bottleneck."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import Chaos
from ledger.workers import Audit, Work, audit, enqueue, run_workers
from postgres_server import DURABLE, PostgresServer, missing

from strategist.contract.measurement import Outcome
from strategist.ledger.ledger import Ledger

TUNERS = 16


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def durable(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new study whose commits are flushed to the disk, as on a production server."""
    if request.param == "sqlite":
        yield ""
    elif reason := missing():
        pytest.skip(reason)
    else:
        with PostgresServer.started(DURABLE) as server:
            yield server.study()


def checked(folder: Path, trials: int) -> Audit:
    """The audit of a study; checks that every trial succeeded at the first attempt."""
    found = audit(folder)
    assert found == Audit(acknowledged=trials, given_up=0, of_living=0, lost=0, doubled=0, stuck=0, not_retried=0)
    with Ledger.open(folder) as ledger:
        assert ledger.counts().outcomes == {Outcome.OK: trials}
    return found


@pytest.mark.chaos("The store", "trials of zero duration, by 16 tuners")
def test_the_ledger_sustains_many_trials_per_second(tmp_path: Path, durable: str, chaos: Chaos) -> None:
    trials = chaos.size(100, 10_000)
    enqueue(tmp_path, durable, trials)
    seconds, errors = run_workers(Work(folder=tmp_path), TUNERS)
    found = checked(tmp_path, trials)
    assert errors == 0
    chaos.found(f"{trials:,} trials, {trials / seconds:.0f} a second (100 required)")
    chaos.found(f"{found.lost} lost, {found.doubled} done twice, {found.stuck} stuck")


@pytest.mark.weekly
@pytest.mark.chaos("The store", "10,000 trials of one second, by 16 tuners")
def test_sixteen_tuners_run_ten_thousand_trials_of_one_second(tmp_path: Path, chaos: Chaos) -> None:
    trials = chaos.size(160, 10_000)
    enqueue(tmp_path, "", trials)
    seconds, errors = run_workers(Work(folder=tmp_path, trial_seconds=1.0), TUNERS)
    found = checked(tmp_path, trials)
    assert errors == 0
    chaos.found(f"{trials:,} in {seconds:.0f} s (under 700 s allowed; {trials / TUNERS:.0f} s were possible)")
    chaos.found(
        f"{errors} of {TUNERS} tuners ended by an error, {found.lost} lost, {found.doubled} done twice, {found.stuck} stuck"
    )
