"""Published layouts of large runs against the best plan for the same request: python benchmarks/frontier.py [docs/frontier.md]

A request has the row's model, devices, sequence length, batch, precision and trained weights. Both layouts are priced as plans of
the native back end, so the gain is one of settings, not of frameworks: the published one with its parallel degrees, micro-batch and
schedule fixed and all else as the search chooses. The row in its own framework is priced beside it.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from between import put

from strategist import api
from strategist.accuracy.case import Case
from strategist.accuracy.prediction_errors import read_cases
from strategist.accuracy.row import read_rows
from strategist.cards.deck import Deck
from strategist.contract.estimate import TimeParts
from strategist.contract.knobs import Candidate
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import value_of
from strategist.errors import InputError, StrategistError
from strategist.paths import data_dir
from strategist.planning import planner
from strategist.profiles.situation import Situation, situation
from strategist.report.reference.markdown import table
from strategist.report.setting_text import candidate_words

LEAST_DEVICES = 512
REASON_FROM = 0.15
"""A larger gain needs a reason that can be checked by hand: the parts of the step that it comes from are listed."""
SWEEPS = ("hf_ultrascale_playbook", "vtrain_ground_truth")
"""Sources of layouts tried on purpose, good and bad ones; the others publish the layout that they chose."""
FREE = ("float8",)
"""Fixed in both requests: precision is the row's."""
FIXED = (*FREE, "pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "micro_batch", "pp_schedule", "pp_virtual_stages")
TITLES = (
    "model",
    "devices",
    "tokens x batch",
    "published layout",
    "published",
    "predicted",
    "as a plan",
    "best plan",
    "step",
    "gain",
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published row, its layout as a plan (None where that does not fit), and the best plan for its request."""

    case: Case
    predicted_seconds: float
    same: Plan | None
    best: Plan

    @property
    def gain(self) -> float:
        """By how much longer the published layout is predicted to take than the best plan."""
        seconds = self.same.estimate.step_seconds if self.same else self.predicted_seconds
        return seconds / self.best.estimate.step_seconds - 1


def main() -> None:
    """Prints the tables, and writes them into the page where one is named."""
    deck = api.load_cards()
    recipes = [found for case in published() if (found := recipe(case, deck))]
    recipes.sort(key=lambda each: -each.gain)
    text = table(TITLES, [row(each) for each in recipes])
    large = [each for each in recipes if each.same and each.gain > REASON_FROM]
    reasons = "\n".join(f"- {name(each.case)}: {difference(each.same, each.best)}" for each in large if each.same)
    print(text, reasons, sep="\n\n")
    if len(sys.argv) > 1:
        put(Path(sys.argv[1]), "frontier", text)
        put(Path(sys.argv[1]), "frontier gains", reasons, "frontier")


def published() -> list[Case]:
    """The fastest row of each request on so many devices whose tensor and pipeline degrees are stated."""
    folder = data_dir("profiles") / "measurements" / "published"
    cases, _ = read_cases(read_rows(folder))
    fastest: dict[tuple[str, ...], Case] = {}
    for case in cases:
        stated = case.row.tp is not None and case.row.pp is not None and case.row.source not in SWEEPS
        if case.cluster.devices < LEAST_DEVICES or not case.step_seconds or not stated or Path(case.row.file).stem in SWEEPS:
            continue
        key = (case.model.name, case.cluster.name, repr(case.workload), case.candidate.knobs.float8)
        if key not in fastest or case.step_seconds < (fastest[key].step_seconds or 0.0):
            fastest[key] = case
    return list(fastest.values())


def recipe(case: Case, deck: Deck) -> Recipe | None:
    """Priced; None, with a line, where the request has no plan."""
    try:
        own = planner.price_candidate(request_of(case, FREE), case.candidate, deck=deck, stack=case.stack)
        same, best = (best_plan(request_of(case, names), deck) for names in (FIXED, FREE))
    except StrategistError as error:
        print(f"{name(case)}: {error}", file=sys.stderr)
        return None
    return Recipe(case=case, predicted_seconds=own.estimate.step_seconds, same=same, best=best) if best else None


def best_plan(request_situation: Situation, deck: Deck) -> Plan | None:
    """The first of the ranking; None where nothing legal fits."""
    try:
        plans = planner.ranked(request_situation, deck=deck, limit=1)
    except InputError:
        return None
    return plans[0] if plans else None


def request_of(case: Case, names: tuple[str, ...]) -> Situation:
    """The row's request with these of its settings fixed. Frozen weights are planned in bf16: float8 trains whole models only."""
    fix = {setting: value_of(case.candidate, setting) for setting in names}
    fix["float8"] = fix["float8"] if case.workload.train == "full" else "none"
    request = Request(model=case.model.name, gpus=case.cluster.name, workload=case.workload, fix=fix, confidence=0.5)
    return situation(request, shape=case.model, cluster=case.cluster)


def row(each: Recipe) -> tuple[str, ...]:
    """One line of the table."""
    work, seconds = each.case.workload, each.case.step_seconds or 0.0
    batch = f"{work.seq_len:,} x {work.global_batch:,}" + ("" if work.train == "full" else f", {work.train}")
    published, predicted, best = (
        f"{figure:.3g} s" for figure in (seconds, each.predicted_seconds, each.best.estimate.step_seconds)
    )
    same = f"{each.same.estimate.step_seconds:.3g} s" if each.same else "does not fit"
    layouts = shown(each.case.candidate), shown(each.best.candidate)
    devices = f"{each.case.cluster.devices:,} {each.case.cluster.device.name}"
    return (each.case.model.name, devices, batch, layouts[0], published, predicted, same, layouts[1], best, f"{each.gain:+.0%}")


def shown(candidate: Candidate) -> str:
    """Settings in words, with the micro-batch."""
    knobs = candidate.knobs
    return f"{candidate_words(candidate)}, recompute {knobs.recompute}, micro-batch {knobs.micro_batch}"


def name(case: Case) -> str:
    """Model, devices and sequence length."""
    return f"{case.model.name} on {case.cluster.devices:,} {case.cluster.device.name}, {case.workload.seq_len:,} tokens"


def difference(same: Plan, best: Plan) -> str:
    """The parts of the step in which the two differ most, largest first."""
    parts = sorted(differing(same.estimate.time, best.estimate.time), key=lambda part: -abs(part[1] - part[2]))
    return "; ".join(f"{part.replace('_', ' ')} {first:.3g} s, best plan {second:.3g} s" for part, first, second in largest(parts))


def differing(first: TimeParts, second: TimeParts) -> Iterator[tuple[str, float, float]]:
    """Each part of two steps."""
    for field in fields(first):
        yield field.name, getattr(first, field.name), getattr(second, field.name)


def largest(parts: Iterable[tuple[str, float, float]], count: int = 4) -> list[tuple[str, float, float]]:
    """The first so many."""
    return list(parts)[:count]


if __name__ == "__main__":
    main()
