"""Warm start: trials of another study, of any model on any GPUs, that a study uses before its own first trial."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from strategist.cards.deck import Deck
from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.study import WarmStartSummary
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.cost.shipped_calibrations import factors
from strategist.errors import FileError, InputError
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import TrialRow
from strategist.planning.planner import price_candidate
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation
from strategist.search.study import UNINFORMATIVE_OUTCOMES, Tried
from strategist.tuner.study_folder import kind_of

FACT_PREFIX = "warm "
"""Prefix of the ledger facts that hold a warm start; the place of the other study follows."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Trials of another study whose outcomes depend on their plans, as they were when the warm start was made.

    ``study`` is the place of its ledger.
    """

    study: str
    request: Request
    records: tuple[Record, ...]


def read(places: Sequence[str | Path], kind: Kind, sampler: str) -> tuple[WarmStart, ...]:
    """Warm starts from the studies at these places.

    Args:
        kind: kind of measurements of the study that will use them.
        sampler: sampler of that study; only ``surrogate`` uses warm starts.

    Raises:
        InputError: a study has no usable trial, or trials of another kind; or the sampler is another one.
        FileError: a study cannot be read.
    """
    if places and sampler != "surrogate":
        raise InputError(
            f"--sampler {sampler}", "takes in nothing of other studies, which --warm is for", "leave one of the two out"
        )
    return tuple(_read(place, kind) for place in dict.fromkeys(places))


def _read(place: str | Path, kind: Kind) -> WarmStart:
    with Ledger.open(place) as ledger:
        if (asked := ledger.study("request")) is None:
            raise FileError(ledger.place, "holds no request: no tuning has begun there; name another")
        if (theirs := kind_of(ledger)) is not kind:
            raise InputError(f"--warm {place}", f"holds {theirs.value} trials, this study {kind.value} ones", "name one of a kind")
        records = tuple(record for row in ledger.trials() if (record := _record(row)) is not None)
        if not records:
            law = "holds no finished trial that says anything of its plan"
            raise InputError(f"--warm {place}", law, "tune there first, or leave it out")
        return WarmStart(study=ledger.place, request=codec.loads(Request, asked), records=records)


def _record(row: TrialRow) -> Record | None:
    if row.measurement_json is None or row.outcome in UNINFORMATIVE_OUTCOMES:
        return None
    plan, measurement = codec.loads(Plan, row.plan_json), codec.loads(Measurement, row.measurement_json)
    return Record(plan=plan, measurement=measurement, trial=row.number, proposed_by=row.proposed_by)


def add_warm_starts(ledger: Ledger, fresh: Sequence[WarmStart]) -> tuple[WarmStart, ...]:
    """All warm starts of a study, including the ``fresh`` ones, which are stored in its ledger.

    All tuners of the study, now and later, therefore use the same trials, whatever happens to the other studies.

    Raises:
        InputError: the study would be its own warm start.
    """
    for each in fresh:
        if each.study == ledger.place:
            raise InputError(f"--warm {each.study}", "is the study itself", "leave it out: its trials count as they are")
        ledger.keep(FACT_PREFIX + each.study, codec.dumps(each))
    return tuple(codec.loads(WarmStart, text) for text in ledger.facts(FACT_PREFIX).values())


def warm_start_summaries(ledger: Ledger) -> tuple[WarmStartSummary, ...]:
    """Summaries of the warm starts in a ledger."""
    known = map(json.loads, ledger.facts(FACT_PREFIX).values())  # not decoded: there may be hundreds of plans
    return tuple(
        WarmStartSummary(
            study=each["study"], model=each["request"]["model"], gpus=each["request"]["gpus"], trials=len(each["records"])
        )
        for each in known
    )  # fmt: skip


class PricedWarmStart:
    """A warm start priced by the latest calibration of the study that uses it; cached, because pricing many trials takes seconds.

    If the same trainer ran on the same device, the calibration of the using study applies to these trials, too; otherwise they
    have a calibration fitted to themselves.
    """

    def __init__(self, warmth: WarmStart, asked: Situation, deck: Deck) -> None:
        like = warmth.records[0].plan
        request = Request(model=like.model.name, gpus=like.cluster.name, workload=like.workload, backend="native")
        self._situation = Situation(
            request=request, model=like.model, cluster=like.cluster, notes=(), digest=like.digests.profiles
        )  # fmt: skip
        same = like.cluster.device.name == asked.cluster.device.name and warmth.request.backend == asked.request.backend
        self._own = None if same else fit(warmth.records, factors(None, like.cluster))
        self._records, self._deck = warmth.records, deck
        self._by: Calibration | None = None
        self._tried: tuple[Tried, ...] = ()

    def tried(self, calibration: Calibration) -> tuple[Tried, ...]:
        """The trials, priced for their own model and cluster.

        The residuals are what the cost model does not explain, there and probably also in the study that uses them. Memory is
        priced by that study's factor, because temporary memory in a step depends on the software.
        """
        by = calibration if self._own is None else replace(self._own, memory=calibration.memory)
        if by != self._by:
            self._tried, self._by = tuple(self._priced(record, by) for record in self._records), by
        return self._tried

    def _priced(self, record: Record, by: Calibration) -> Tried:
        plan = price_candidate(self._situation, record.plan.candidate, deck=self._deck, calibration=by)
        return Tried(plan=plan, measurement=record.measurement)
