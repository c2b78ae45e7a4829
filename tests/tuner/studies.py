"""Studies for tests: tuned by the stand-in, in a second."""

from dataclasses import replace
from pathlib import Path

from tuner_stand_in import REQUEST as ANY
from tuner_stand_in import SETTINGS, StandIn

from strategist.cards.deck import Deck, load_deck
from strategist.contract.request import Request
from strategist.paths import data_dir
from strategist.search.goals import Goals
from strategist.tuner.limits import Limits
from strategist.tuner.tune import OnTuneEvent, tune

REQUEST = replace(ANY, fix={**ANY.fix, "pp": 1, "recompute": "none"})
"""Of thirty candidates, which are ranked in a sixth of a second."""

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
    """The folder of a study with so many finished trials."""
    tune(
        request,
        study=folder,
        limits=Limits(trials=trials, confirm=0),
        settings=SETTINGS,
        deck=DECK,
        executor=executor or StandIn(),
        server=server,
        on_event=on_event,
        goals=goals,
    )
    return folder
