"""Studies for tests, tuned with the stand-in executor in a second."""

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner_stand_in import REQUEST as SMALL, SETTINGS, StandIn

from strategist.cards.deck import Deck, load_deck
from strategist.contract.goals import Goals
from strategist.contract.outcome import Outcome
from strategist.contract.request import Request
from strategist.contract.study import HISTORY, REPEAT, repeat_key
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.paths import data_dir
from strategist.tuner.limits import Limits
from strategist.tuner.tune import OnTuneEvent, tune

ANY = replace(SMALL, fix={"micro_batch": 2})
"""A request with two hundred candidates."""

WIDE = replace(ANY, fix={**ANY.fix, "pp": 1, "recompute": "none"})
"""A request with thirty candidates."""

REQUEST = replace(WIDE, fix={**WIDE.fix, "reshard_after_forward": True})
"""A request with sixteen candidates, ranked in a tenth of a second."""

DECK: Deck = load_deck(data_dir("cards"))


def tuned(
    folder: Path,
    trials: int,
    executor: StandIn | None = None,
    request: Request = REQUEST,
    server: str = "",
    on_event: OnTuneEvent | None = None,
    goals: Goals | None = None,
) -> Path:
    """The folder of a study with this number of finished trials. A study with default arguments is tuned once, then copied."""
    usual = executor is None and request == REQUEST and not server and on_event is None and goals is None
    if usual and not (folder.exists() and any(folder.iterdir())):
        return Path(shutil.copytree(_usual(trials), folder, dirs_exist_ok=True))
    tune(
        request,
        study=folder,
        limits=Limits(trials=trials, confirm=0),
        runner=TrialRunner(executor=executor or StandIn(), settings=SETTINGS),
        deck=DECK,
        server=server,
        on_event=on_event,
        goals=goals,
    )
    return folder


def repeated(folder: Path) -> Path:
    """Adds a repeat of the study's first trial, with the same measurement."""
    with Ledger.open(folder) as ledger:
        first = ledger.trials()[0]
        ledger.enqueue(repeat_key(first.key, 1), first.plan_json, REPEAT)
        claim = ledger.claim("tuner", 60.0)
        assert claim is not None
        ledger.finish(claim, Outcome.OK, str(first.measurement_json))
        ledger.export_jsonl(folder / HISTORY)
    return folder


@cache
def _usual(trials: int) -> Path:
    folder = Path(_PLACE.name, f"{trials}")
    return tuned(folder, trials, StandIn())


_PLACE = TemporaryDirectory(prefix="studies-")
"""Removed when the process ends."""
