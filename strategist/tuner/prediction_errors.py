"""Prediction errors of a study: predicted against measured step time and memory, in sample and left out."""

import statistics
from collections.abc import Callable, Sequence

from strategist.contract.measurement import RAN
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.planning.candidate_plans import estimate_of
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation
from strategist.search.tuning_result import Errors


def errors(situation: Situation, records: Sequence[Record], calibration_of: Callable[[int], Calibration]) -> Errors:
    """Errors over the records that ran well, each plan priced by ``calibration_of`` its record's index."""
    steps, peaks = [], []
    for index, record in enumerate(records):
        measured = record.measurement
        if measured.outcome in RAN and measured.step_seconds:
            calibration = calibration_of(index)
            estimate = estimate_of(situation, record.plan.candidate, calibration=calibration)
            steps.append(abs(estimate.step_seconds / measured.step_seconds - 1))
            if measured.peak_memory_bytes:
                peaks.append(abs(estimate.memory.allocated / max(measured.peak_memory_bytes) - 1))
    if not steps:
        return Errors(trials=0, step_seconds=None, peak_memory=None)
    peak_memory = statistics.median(peaks) if peaks else None
    return Errors(trials=len(steps), step_seconds=statistics.median(steps), peak_memory=peak_memory)


def errors_left_out(situation: Situation, records: Sequence[Record], prior: Calibration, fitted: Calibration) -> Errors:
    """Errors on each record by a calibration fitted to all other records, which is searched from the one ``fitted`` to all."""
    return errors(situation, records, lambda index: fit([*records[:index], *records[index + 1 :]], prior, start=fitted))
