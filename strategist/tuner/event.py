"""Events of a tuning, each with the state of the study at that time."""

from enum import StrEnum

from strategist.contract.measurement import Kind
from strategist.contract.progress import Progress
from strategist.cost.calibration import Calibration
from strategist.frozen import frozen
from strategist.tuner.limits import Limits
from strategist.tuner.study_state import StudyState


class EventType(StrEnum):
    """Type of an event of a tuning: the tuning began; its trial started, made progress or ended; it waits for trials of other
    tuners; all trials are done and the result follows.
    """

    BEGUN = "begun"
    STARTED = "trial_started"
    PROGRESS = "trial_moved"
    ENDED = "trial_ended"
    WAITING = "waiting"
    OVER = "over"


@frozen
class TuneEvent:
    """An event of a tuning, sent without delay, and at least every second while a trial runs.

    state: the study as last read, with the trials of all tuners.
    prior: the calibration before the first trial.
    kind: kind of the measurements.
    trials: number of the last trial to run.
    trial: number of the tuner's own trial; None if it runs none.
    progress: progress of that trial.
    expected_gain: share by which the latest proposal was expected to improve on the best; None if the search gave none.
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
