"""Review of another system's file: findings about the plan that it describes, and better plans."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import log
from statistics import NormalDist

from strategist.cards.deck import Deck
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Estimate, Fit, fit_of
from strategist.contract.explanation import Explanation, Obstacle, WhyNot
from strategist.contract.knobs import Candidate, show_value
from strategist.contract.plan import Plan
from strategist.contract.review import Change, Review
from strategist.contract.settings import CONVERGENCE_SETTINGS, SETTING_NAMES, full_name, value_of
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.shipped_calibrations import factors
from strategist.errors import InputError
from strategist.expr.columns import row_of, table
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import SETTINGS
from strategist.formats.catalog import backend
from strategist.formats.completed_config import Setup
from strategist.formats.finding_codes import finding
from strategist.formats.format import Format
from strategist.formats.memory_effects import LAUNCH_FILE, UNRESOLVED, Bounds, bounds
from strategist.formats.source import Source
from strategist.planning.assumed_values import PLAUSIBLE_VALUES, AssumedRun, assumption_doubts
from strategist.planning.candidate_plans import completed, estimate_of, estimates, outline_of, resolved_outlines
from strategist.planning.explain import PlanExplainer, explain, reasons_by_setting
from strategist.planning.planner import price_candidate, ranked_outlines
from strategist.planning.ranking import PlanningContext, backend_stack
from strategist.profiles.situation import Situation
from strategist.profiles.stacks import find_stack
from strategist.report.command import plan_command
from strategist.report.setting_text import layer_words
from strategist.rules.policy_evaluation import judge
from strategist.search.facts import situation_facts
from strategist.units import show_bytes

NOTHING_FITS_ADVICE = "take more devices, or see what would fit: strategist plan"
"""Advice if no single change of the file makes it fit."""

PLANS_COMPARED = 8
"""Number of best plans of the format's system that are completed with the file's other values; the best of these is shown."""


def imported(
    source: Source,
    chosen: Format,
    described: Setup,
    *,
    deck: Deck,
    calibration: Calibration | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Review:
    """The plan that a file describes, as its system runs it, with findings about the file but no suggestions. ``confidence`` is
    the probability from which it fits.
    """
    situation, findings = described.situation, list(described.findings)
    broken = described.candidate.violations(situation.model, situation.request.workload, situation.cluster.devices)
    if broken:
        findings += (_broken_law(text, source, described) for text in broken)
        return Review(format=chosen.name, plan=None, findings=tuple(findings))
    stack = _stack(chosen, described)
    plan = price_candidate(situation, described.candidate, deck=deck, calibration=calibration, stack=stack)
    findings += [*_unpriced_stage_split(source, plan, described), *_ruled_out(source, chosen, plan, described, deck)]
    if plan.cluster.devices == 1:  # no launcher shards over one device
        findings = _without_launcher_finding(findings)
    assumed = {described.entry_names.get(name) for name in described.assumed if name in PLAUSIBLE_VALUES}
    known = bounds(plan, [item for item in findings if item.code != UNRESOLVED or item.entry not in assumed])
    spread = factors(calibration, plan.cluster, stack).memory_spread
    run = AssumedRun(
        candidate=described.candidate, workload=situation.request.workload, names=described.assumed,
        priced=plan.estimate, price=partial(_estimate, situation, calibration=calibration, stack=stack),
        verdict=partial(fit_of, host=plan.cluster.host_memory_bytes, confidence=confidence),
    )  # fmt: skip
    assumptions = tuple(assumption_doubts(run))
    doubts = (*assumptions, *_uncertainties(plan.estimate, plan.cluster.host_memory_bytes, known, spread, confidence))
    if not any(LAUNCH_FILE in doubt for doubt in doubts):
        findings = _without_launcher_finding(findings)
    found = Review(format=chosen.name, plan=plan, findings=tuple(findings), uncertainties=doubts, confidence=confidence)
    return replace(found, findings=(*findings, *_memory(source, plan, found, known, assumptions)))


def _estimate(
    situation: Situation, candidate: Candidate, workload: Workload, *, calibration: Calibration | None, stack: Stack | None
) -> Estimate | None:
    """The estimate of a candidate with another workload; None if they break a law."""
    if candidate.violations(situation.model, workload, situation.cluster.devices):
        return None
    other = replace(situation, request=replace(situation.request, workload=workload))
    return estimate_of(other, candidate, calibration=calibration, stack=stack)


def _without_launcher_finding(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Findings without those on what a launcher's file could change, if that cannot change the verdict."""
    return [item for item in findings if (item.code, item.entry) != ("FMT-011", LAUNCH_FILE)]


def reviewed(
    source: Source,
    chosen: Format,
    described: Setup,
    *,
    deck: Deck,
    calibration: Calibration | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Review:
    """The plan that a file describes, with findings and suggestions."""
    review = imported(source, chosen, described, deck=deck, calibration=calibration, confidence=confidence)
    allowed = tuple(name for name, usual in CONVERGENCE_SETTINGS.items() if value_of(described.candidate, name) != usual)
    request = replace(described.situation.request, backend=chosen.name, allow=allowed, confidence=confidence)
    situation = replace(described.situation, request=request)
    known, stack, context = _facts(described), _stack(chosen, described), PlanningContext(deck=deck, calibration=calibration)
    changes: tuple[Change, ...] = ()
    if review.plan is not None:
        price = partial(price_candidate, situation, deck=deck, calibration=calibration, stack=stack)
        resolve = partial(resolved_outlines, situation, context=context, stack=stack)
        explanation = explain(review.plan, PlanExplainer(deck=deck, known=known, price=price, resolve=resolve))
        complete = partial(completed, deck=deck, stack=stack)
        changes = tuple(sorted(_changes(explanation, chosen, deck, known, confidence, complete), key=_sort_key))
    try:
        first = ranked_outlines(situation, deck=deck, calibration=calibration, limit=PLANS_COMPARED)
    except InputError:  # the format expresses more than can be requested, such as adapters that the program adds itself
        first = ()
    best = _fastest(situation, first, context, stack)
    return replace(review, findings=tuple(_with_suggestions(source, review, changes, described)), changes=changes, best=best)


def _fastest(situation: Situation, plans: Sequence[Plan], context: PlanningContext, stack: Stack | None) -> Plan | None:
    """The fastest of the plans that fit, priced as the file's system runs them: for its ``stack``, if they have it."""
    candidates = [plan.candidate for plan in plans]
    given = [stack if stack and stack.name == plan.stack else backend_stack(situation, plan.candidate) for plan in plans]
    priced = zip(candidates, estimates(situation, candidates, context.calibration, given), given, strict=True)
    fitting = (found for found in priced if found[1].fit_confidence >= situation.request.confidence)
    best = min(fitting, key=lambda found: found[1].step_seconds, default=None)
    return completed(outline_of(situation, *best, context=context), context.deck, best[2]) if best else None


def _with_suggestions(source: Source, review: Review, changes: Sequence[Change], described: Setup) -> Iterator[Diagnostic]:
    """The findings; those on memory name an entry whose change makes the plan fit, if there is one."""
    expressible = [change for change in changes if change.fits and change.expressible]
    fitting = next(
        (change for change in expressible if source.has(described.entry_names.get(change.setting, "?"))),
        next(iter(expressible), None),
    )
    for found in review.findings:
        if found.do != NOTHING_FITS_ADVICE or fitting is None:
            yield replace(found, do=_advice(described, review.format)) if found.do == NOTHING_FITS_ADVICE else found
            continue
        entry = described.entry_names.get(fitting.setting, "")
        assignment = f"{fitting.setting} = {show_value(fitting.value)}"
        do = f"change {entry}: {assignment} fits" if source.has(entry) else f"{assignment} fits"
        yield finding(found.code, found.message, do, source, entry)


def _advice(described: Setup, format: str) -> str:
    """:data:`LARGE` with the command that asks for the same as the file; a plan's own cluster has no name."""
    command = plan_command(replace(described.situation.request, backend=format)) if format != "native" else ()
    return NOTHING_FITS_ADVICE.replace("strategist plan", shlex.join(command)) if command else NOTHING_FITS_ADVICE


def reasons(plan: Plan, deck: Deck) -> dict[str, str]:
    """The reason for each setting that a card decided."""
    found = reasons_by_setting(plan, deck)
    return {name.partition(".")[2]: f"{found[name][0].card}: {found[name][0].text}" for name in SETTINGS if name in found}


def _stack(chosen: Format, described: Setup) -> Stack | None:
    """The system's stack, with what the file changes of it; None for the native stack."""
    known = find_stack(str(described.stack.get("name", backend(chosen).stack)))
    return None if known is None else replace(known, **described.stack)  # type: ignore[arg-type]


def _facts(described: Setup) -> Facts:
    situation = described.situation
    return situation_facts(situation.model, situation.cluster, situation.request.workload)


def _broken_law(text: str, source: Source, described: Setup) -> Diagnostic:
    """Finding for a broken law, at the first entry of a setting that its text names; numeric entries are those to change."""
    words = text.replace(",", " ").replace("=", " ").split()
    named = [
        name
        for name in dict.fromkeys(described.entry_names[word] for word in words if word in described.entry_names)
        if name in source.entries
    ]
    entries = [name for name in named if str(source.entries[name].value).isdigit()] or named
    do = f"change {' or '.join(entries)}" if entries else "change what the law names"
    return finding("FMT-004", text, do, source, entries[0] if entries else "")


def _unpriced_stage_split(source: Source, plan: Plan, described: Setup) -> Iterator[Diagnostic]:
    """Finding for stages with numbers of layers that no setting can express."""
    stated_layers = described.stage_layers
    if stated_layers and stated_layers != plan.stage_layers:
        entry = described.entry_names.get("pp_split", "")
        text = f"{entry}: stages have {layer_words(stated_layers)} layers, and are priced with {layer_words(plan.stage_layers)}"
        yield finding("FMT-002", text, "measure it if the stages differ much", source, entry)


def _uncertainties(estimate: Estimate, host: float | None, known: Bounds, spread: float, confidence: float) -> Iterator[str]:
    """Effects of unpriced entries that could change the verdict; nothing if they cannot."""

    def verdict(need: float) -> Fit:
        return Fit.of(NormalDist().cdf(log(estimate.capacity_bytes / need) / spread), confidence) if need > 0 else Fit.FITS

    priced = Fit.of(estimate.fit_confidence, confidence)
    least_verdict, lacks_host_memory = verdict(known.min_bytes), host is not None and estimate.host_memory_bytes_per_node > host
    if least_verdict is Fit.TOO_LARGE or (host is not None and known.host_min_bytes > host):
        return
    yield from known.open
    if lacks_host_memory or least_verdict is not priced:
        yield from known.saves
    if priced is not Fit.TOO_LARGE and verdict(known.max_bytes) is not priced:
        yield from known.costs


def _memory(source: Source, plan: Plan, review: Review, known: Bounds, assumptions: Sequence[str]) -> Iterator[Diagnostic]:
    """Findings on memory of devices and hosts."""
    estimate, host = plan.estimate, plan.cluster.host_memory_bytes
    need, available = show_bytes(estimate.peak_memory_bytes), show_bytes(estimate.capacity_bytes)
    verdict = Fit.of(estimate.fit_confidence, review.confidence)
    if verdict is not Fit.FITS or review.uncertainties:
        certain = verdict is Fit.TOO_LARGE and not review.uncertainties
        bounded = certain and known.min_bytes < estimate.peak_memory_bytes
        least = f", and at least {show_bytes(known.min_bytes)} whatever the entries save that are not priced" if bounded else ""
        text = f"needs {need} a device of the {available} that can be used{least}: "
        text += "; ".join(review.uncertainties) or f"fits with probability {estimate.shown_confidence:.0%}"
        values_settle = assumptions or (known.open and review.uncertainties)
        do = "write the values into the file, or give them as options" if values_settle else NOTHING_FITS_ADVICE
        yield finding("FMT-005" if certain else "FMT-010", text, do, source)
    if host is not None and estimate.host_memory_bytes_per_node > host:
        need, available = show_bytes(estimate.host_memory_bytes_per_node), show_bytes(host)
        code = "FMT-010" if review.uncertainties else "FMT-005"
        yield finding(code, f"needs {need} of host memory a node; a node has {available}", "offload less", source)


def _ruled_out(source: Source, chosen: Format, plan: Plan, described: Setup, deck: Deck) -> Iterator[Diagnostic]:
    """Findings for cards' laws that the plan breaks.

    Other systems reduce the gradients of fp16 in fp16, which ``reduce_dtype`` does not have: no card is checked on it.
    """
    unexpressed = {"reduce_dtype"} if plan.workload.precision == "fp16" and chosen.name != "native" else set()
    columns = table([row_of(plan.candidate, plan.accumulation)])
    for drop in judge(deck, _facts(described), columns, defaults=False).dropped:
        policy = deck.card(drop.card).policy(drop.policy)
        settings = [item.path.partition(".")[2] for effect in policy.effects for item in effect.settings] if policy else []
        if set(settings) & unexpressed:
            continue
        entry = next((described.entry_names[name] for name in settings if name in described.entry_names), "")
        shown = ", ".join(f"{name} {show_value(value_of(plan.candidate, name))}" for name in settings if name in SETTING_NAMES)
        do = f"see strategist cards show {drop.card}"
        text = f"{drop.card}/{drop.policy} rules out {shown or 'this plan'}: {drop.because.rstrip('.')}"
        yield finding("FMT-006", text, do, source, entry)


def _changes(
    explanation: Explanation, chosen: Format, deck: Deck, known: Facts, confidence: float, complete: Callable[[Plan], Plan]
) -> Iterator[Change]:
    """Changes that are faster, or that fit if the plan does not; each plan once, under the first setting that leads to it.
    ``complete`` adds the reasons to a plan.
    """
    limits, found = backend(chosen), set[Candidate]()
    current = explanation.plan
    present = set(limits.refusals(current.candidate, current.model, current.workload, known))  # the file has them anyway
    for decision in explanation.decisions:
        for other in decision.why_not:
            if other.plan is None or other.plan.candidate in found or not _improves(current, other):
                continue
            plan = other.plan
            found.add(plan.candidate)
            deciding = reasons_by_setting(complete(plan), deck).get(full_name(other.setting), ())
            yield Change(
                setting=other.setting, value=other.value, text=other.text, fits=plan.estimate.fit_confidence >= confidence,
                speedup=current.estimate.step_seconds / plan.estimate.step_seconds,
                cards=tuple(dict.fromkeys(reason.card for reason in deciding)),
                expressible=present.issuperset(limits.refusals(plan.candidate, plan.model, plan.workload, known)),
                changes_convergence=other.value != CONVERGENCE_SETTINGS.get(other.setting, other.value),
            )  # fmt: skip


def _sort_key(change: Change) -> tuple[bool, bool, float]:
    """Sort key of changes: those that fit first, then those without an effect on convergence, then the fastest."""
    return not change.fits, change.changes_convergence, -change.speedup


def _improves(plan: Plan, other: WhyNot) -> bool:
    if other.plan is None or other.obstacle in (Obstacle.FORBIDDEN, Obstacle.ILLEGAL):
        return False
    return other.obstacle is Obstacle.FASTER if plan.estimate.fits else other.plan.estimate.fits
