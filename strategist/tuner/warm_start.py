"""Warm start: trials of another study, of any model on any GPUs, that a study takes in before its own first trial."""

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
from strategist.search.study import SILENT, Tried
from strategist.tuner.study_folder import kind_of

KEY = "warm "
"""What the facts of a ledger that hold a warmth are called, before the place that it comes from."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The trials of a study that say something of their plans, as they were when it warmed another; ``study`` is where its ledger
    lies."""

    study: str
    request: Request
    records: tuple[Record, ...]


def read(places: Sequence[str | Path], kind: Kind, sampler: str) -> tuple[WarmStart, ...]:
    """What the studies at these places have shown, for one of trials of this ``kind`` whose trials ``sampler`` proposes.

    Raises:
        InputError: there is nothing to use in one, or its trials are of another kind.
        FileError: one cannot be read.
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
    if row.measurement_json is None or row.outcome in SILENT:
        return None
    plan, measurement = codec.loads(Plan, row.plan_json), codec.loads(Measurement, row.measurement_json)
    return Record(plan=plan, measurement=measurement, trial=row.number, proposed_by=row.proposed_by)


def add_warm_starts(ledger: Ledger, fresh: Sequence[WarmStart]) -> tuple[WarmStart, ...]:
    """All that warms a study, what is ``fresh`` included. Its ledger keeps it, so that all tuners of the study, now and later, take
    in the same, wherever the other studies are by then and whatever they hold.

    Raises:
        InputError: the study is to warm itself.
    """
    for each in fresh:
        if each.study == ledger.place:
            raise InputError(f"--warm {each.study}", "is the study itself", "leave it out: its trials count as they are")
        ledger.keep(KEY + each.study, codec.dumps(each))
    return tuple(codec.loads(WarmStart, text) for text in ledger.facts(KEY).values())


def warm_start_summaries(ledger: Ledger) -> tuple[WarmStartSummary, ...]:
    """What warms the study of a ledger."""
    known = map(json.loads, ledger.facts(KEY).values())  # plans by the hundred are not looked at
    return tuple(
        WarmStartSummary(
            study=each["study"], model=each["request"]["model"], gpus=each["request"]["gpus"], trials=len(each["records"])
        )
        for each in known
    )  # fmt: skip


class PricedWarmStart:
    """A warm start with the study that uses it, as the latest calibration prices it: pricing takes seconds where trials are many.

    Where the same trainer ran on the same device, factors of the study's own trials are theirs too; else theirs are fitted to them.
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
        """Its trials, priced for their own model and cluster. What is left is what the cost model does not know, there and probably
        here. Memory is priced by the factor that holds here: what comes and goes in a step is the software's."""
        by = calibration if self._own is None else replace(self._own, memory=calibration.memory)
        if by != self._by:
            self._tried, self._by = tuple(self._priced(record, by) for record in self._records), by
        return self._tried

    def _priced(self, record: Record, by: Calibration) -> Tried:
        plan = price_candidate(self._situation, record.plan.candidate, deck=self._deck, calibration=by)
        return Tried(plan=plan, measurement=record.measurement)
