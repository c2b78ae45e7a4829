"""Evidence for cards: how often trials of studies and of measurement files support or contradict each policy."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.cards.deck import Deck
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.evidence import PolicyEvidence
from strategist.contract.measurement import EVIDENCE_OUTCOMES, Kind
from strategist.contract.progress import counted
from strategist.contract.study import HISTORY
from strategist.expr.columns import row_of
from strategist.frozen import frozen
from strategist.paths import data_dir
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.rules.evidence import Trial, survey
from strategist.search.facts import estimate_facts, observed_facts, situation_facts


@frozen
class CardEvidence:
    """Evidence for the policies of a deck, summed over histories.

    evidence: one entry for each policy that changes settings, in deck order.
    trials: by file, its number of trials that are evidence.
    findings: one for each line of the files that holds no record.
    """

    evidence: tuple[PolicyEvidence, ...]
    trials: dict[str, int]
    findings: tuple[Diagnostic, ...] = ()


def collect_evidence(deck: Deck, paths: Sequence[Path]) -> CardEvidence:
    """Evidence from the trials of the histories. Trials are paired within one file only: different files may come from different
    machines.

    Raises:
        FileError: a file cannot be read.
    """
    surveys, findings = [survey(deck, [])], list[Diagnostic]()
    trials: dict[str, int] = {}
    for path in counted(paths, "histories"):
        read = history.read(path)
        source = path.parent.name if path.name == HISTORY else path.stem
        found = trials_of(read.records, f"{source}:")
        surveys.append(survey(deck, found))
        trials[str(path)] = len(found)
        findings += read.findings
    merged = tuple(_sum(parts) for parts in zip(*surveys, strict=True))
    return CardEvidence(evidence=merged, trials=trials, findings=tuple(findings))


def sources(studies: Iterable[str | Path], measurements: Iterable[str | Path]) -> list[Path]:
    """The histories of the studies and the files of measurements; the shipped measurements if neither are given."""
    paths = [*(Path(folder) / HISTORY for folder in studies), *map(Path, measurements)]
    return paths or sorted(data_dir("profiles").glob("measurements/*.jsonl"))


def trials_of(records: Sequence[Record], source: str = "") -> list[Trial]:
    """Trials that are evidence for cards. Left out are trials that failed for reasons outside the plan, and trials whose steps are
    partly modelled.

    A trial's name is ``source`` followed by its number in its study, or by its position in the file.
    """
    found = []
    for position, record in enumerate(records, start=1):
        if record.measurement.outcome not in EVIDENCE_OUTCOMES or record.measurement.kind is not Kind.REAL:
            continue
        name, seconds = f"{source}{record.trial or position}", record.measurement.step_seconds
        found.append(Trial(known=facts_after_trial(record), seconds=seconds, name=name, proposed_by=record.proposed_by))
    return found


def facts_after_trial(record: Record) -> dict[str, Any]:
    """All facts known after a trial: its situation, settings, predictions and measured values."""
    plan = record.plan
    return {
        **situation_facts(plan.model, plan.cluster, plan.workload),
        **estimate_facts(plan.estimate),
        **observed_facts(record.measurement, plan.cluster),
        **row_of(plan.candidate, plan.accumulation),
    }


def _sum(parts: Sequence[PolicyEvidence]) -> PolicyEvidence:
    return replace(
        parts[0],
        applied=sum(part.applied for part in parts),
        taken=sum(part.taken for part in parts),
        confirmed=sum(part.confirmed for part in parts),
        contradicted=sum(part.contradicted for part in parts),
        pairs=tuple(pair for part in parts for pair in part.pairs),
    )
