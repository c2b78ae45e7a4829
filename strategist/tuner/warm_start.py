"""Warm start: trials of another study, of any model on any GPUs, that a study uses before its own first trial."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import Kind
from strategist.contract.request import Request
from strategist.contract.study import WarmStartSummary
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.cost.shipped_calibrations import factors
from strategist.errors import FileError, InputError
from strategist.frozen import frozen
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import TrialRow
from strategist.planning.candidate_plans import estimate_of
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation, situation_of_plan
from strategist.search.study import UNINFORMATIVE_OUTCOMES, Tried
from strategist.tuner.study_folder import kind_of

FACT_PREFIX = "warm "
"""Prefix of the ledger facts that hold a warm start; the place of the other study follows."""


@frozen
class WarmStart:
    """Trials of another study whose outcomes depend on their plans, as they were when the warm start was made.

    ``study`` is the place of its ledger.
    """

    study: str
    request: Request
    records: tuple[Record, ...]


def read(locations: Sequence[str | Path], kind: Kind, sampler: str) -> tuple[WarmStart, ...]:
    """Warm starts from the studies at these places.

    Args:
        kind: kind of measurements of the study that will use them.
        sampler: sampler of that study; only ``surrogate`` uses warm starts.

    Raises:
        InputError: a study has no usable trial, or trials of another kind; or the sampler is another one.
        FileError: a study cannot be read.
    """
    if locations and sampler != "surrogate":
        raise InputError(
            f"--sampler {sampler}", "takes in nothing of other studies, which --warm is for", "leave one of the two out"
        )
    return tuple(_read(location, kind) for location in dict.fromkeys(locations))


def _read(location: str | Path, kind: Kind) -> WarmStart:
    with Ledger.open(location) as ledger:
        if (request_json := ledger.fact("request")) is None:
            raise FileError(ledger.name, "holds no request: no tuning has begun there; name another")
        if (warm_kind := kind_of(ledger)) is not kind:
            raise InputError(
                f"--warm {location}", f"holds {warm_kind.value} trials, this study {kind.value} ones", "name one of a kind"
            )
        records = tuple(record for row in ledger.trials() if (record := _record(row)) is not None)
        if not records:
            law = "has no finished trial whose outcome depends on its plan"
            raise InputError(f"--warm {location}", law, "tune there first, or leave it out")
        return WarmStart(study=ledger.name, request=codec.loads(Request, request_json), records=records)


def _record(row: TrialRow) -> Record | None:
    measurement = None if row.outcome in UNINFORMATIVE_OUTCOMES else row.measurement
    if measurement is None:
        return None
    return Record(plan=row.plan, measurement=measurement, trial=row.number, proposed_by=row.proposed_by)


def add_warm_starts(ledger: Ledger, fresh: Sequence[WarmStart]) -> tuple[WarmStart, ...]:
    """All warm starts of a study, including the ``fresh`` ones, which are stored in its ledger.

    All tuners of the study, now and later, therefore use the same trials, whatever happens to the other studies.

    Raises:
        InputError: the study would be its own warm start.
    """
    for warm_start in fresh:
        if warm_start.study == ledger.name:
            raise InputError(f"--warm {warm_start.study}", "is the study itself", "leave it out: its trials count as they are")
        ledger.set_default(FACT_PREFIX + warm_start.study, codec.dumps(warm_start))
    return tuple(codec.loads(WarmStart, text) for text in ledger.facts(FACT_PREFIX).values())


def warm_start_summaries(ledger: Ledger) -> tuple[WarmStartSummary, ...]:
    """Summaries of the warm starts in a ledger."""
    documents = map(json.loads, ledger.facts(FACT_PREFIX).values())  # not decoded: there may be hundreds of plans
    return tuple(
        WarmStartSummary(
            study=document["study"],
            model=document["request"]["model"],
            gpus=document["request"]["gpus"],
            trials=len(document["records"]),
        )
        for document in documents
    )  # fmt: skip


class PricedWarmStart:
    """A warm start priced by the latest calibration of the study that uses it; cached, because pricing many trials takes seconds.

    If the same trainer ran on the same device, the calibration of the using study applies to these trials, too; otherwise they
    have a calibration fitted to themselves.
    """

    def __init__(self, warm_start: WarmStart, situation: Situation) -> None:
        first_plan = warm_start.records[0].plan
        request = Request(model=first_plan.model.name, gpus=first_plan.cluster.name, workload=first_plan.workload, backend="native")
        self._situation = situation_of_plan(first_plan, request)
        same_device = first_plan.cluster.device.name == situation.cluster.device.name
        same_stack = same_device and warm_start.request.backend == situation.request.backend
        self._fitted = None if same_stack else fit(warm_start.records, factors(None, first_plan.cluster))
        self._records = warm_start.records
        self._priced_by: Calibration | None = None
        self._tried: tuple[Tried, ...] = ()

    def tried(self, calibration: Calibration) -> tuple[Tried, ...]:
        """The trials, priced for their own model and cluster.

        The residuals are what the cost model does not explain, there and probably also in the study that uses them. Memory is
        priced by that study's factor, because temporary memory in a step depends on the software.
        """
        used_calibration = calibration if self._fitted is None else replace(self._fitted, memory=calibration.memory)
        if used_calibration != self._priced_by:
            self._tried, self._priced_by = (
                tuple(self._priced(record, used_calibration) for record in self._records),
                used_calibration,
            )
        return self._tried

    def _priced(self, record: Record, calibration: Calibration) -> Tried:
        estimate = estimate_of(self._situation, record.plan.candidate, calibration=calibration)
        return Tried(plan=replace(record.plan, estimate=estimate), measurement=record.measurement)
