"""Events of a tuning, each with the state of the study at that time."""

from dataclasses import dataclass
from enum import StrEnum

from strategist.contract.measurement import Kind
from strategist.contract.progress import Progress
from strategist.cost.calibration import Calibration
from strategist.tuner.limits import Limits
from strategist.tuner.study_state import StudyState


class EventType(StrEnum):
    """What has just happened: the tuning began; its own trial started, went on or ended; it waits for trials of other tuners; all
    is done but the result."""

    BEGUN = "begun"
    STARTED = "trial_started"
    MOVED = "trial_moved"
    ENDED = "trial_ended"
    WAITING = "waiting"
    OVER = "over"


@dataclass(frozen=True, kw_only=True)
class TuneEvent:
    """An event of a tuning, sent at once, and at least every second while a trial runs.

    ``state`` is the study as its tuner saw it last, trials of other tuners included; ``trials`` the number of the last trial to
    reach; ``trial`` that of the tuner's own trial, None where it has none, and ``progress`` how far it is. ``prior`` is the
    calibration before anything was learned, ``kind`` that of the measurements. ``expected_gain`` is the share by which the search
    expected what it would try to be better than the best, when the latest trial was proposed; None where the search was not asked.
    """

    event_type: EventType
    state: StudyState
    limits: Limits
    prior: Calibration
    kind: Kind
    trials: int
    trial: int | None = None
    progress: Progress | None = None
    expected_gain: float | None = None
