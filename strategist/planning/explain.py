"""Explanation of a plan: for each setting the card or price that decided it, and the effect of its other values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Protocol

import numpy as np

from strategist.cards.card import Card, EffectKind, Phase, Policy
from strategist.cards.deck import Deck, PolicyRef
from strategist.cards.flow import Step
from strategist.contract.estimate import DEFAULT_CONFIDENCE
from strategist.contract.explanation import EQUAL_MARGIN, Advice, Decision, ExplainedStep, Explanation, Nearest, Obstacle, WhyNot
from strategist.contract.knobs import Candidate, KnobValue, show_value
from strategist.contract.options import OPTION_NAMES, Options
from strategist.contract.plan import Plan, Reason
from strategist.contract.progress import counted
from strategist.contract.settings import CONVERGENCE_SETTINGS, SETTING_NAMES, full_name, value_of
from strategist.expr.columns import row_of, table
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import SETTINGS, setting, show_fact
from strategist.frozen import frozen
from strategist.planning.variants import other_values, variants
from strategist.rules.policy_evaluation import judge
from strategist.rules.policy_matching import affected_settings, condition_holds, condition_names, preconditions_hold, selects_row
from strategist.search.facts import estimate_facts
from strategist.search.needed_candidates import NEAR_TIE
from strategist.units import show_bytes, show_seconds

Resolve = Callable[[Sequence[Candidate]], Sequence[Plan]]
"""Candidates with their options resolved by the cards, as plans. Comparisons read no reasons, back ends and ids of them."""


class Search(Protocol):
    """The search that produced the plan."""

    def best_with(self, name: str, value: KnobValue) -> Candidate | None:
        """The best searched candidate with the value; None if none is allowed and fits."""

    def resolve(self, candidates: Sequence[Candidate]) -> Sequence[Plan]:
        """Searched candidates with their options resolved."""

    def nearest_with(self, name: str, value: KnobValue) -> Nearest:
        """The best plan of the same request with the value fixed."""


EQUAL_PRICE = "their prices are equal"
NO_EFFECT = "nothing in this plan depends on it"

_DEFAULTS = vars(Options())


@frozen
class PlanExplainer:
    """Everything that a plan is compared with: the deck, facts of its model, cluster and workload, prices, and its search.
    Without a search, other values are priced with the plan's own other settings.

    price: prices a candidate as it is.
    complete: adds what ``resolve`` leaves out to the plans of an answer; without it they stay as they are compared.
    """

    deck: Deck
    known: Facts
    price: Callable[[Candidate], Plan]
    resolve: Resolve
    complete: Callable[[Plan], Plan] = lambda plan: plan
    search: Search | None = None

    def completed(self, found: WhyNot) -> WhyNot:
        """The alternative with its plan complete."""
        return replace(found, plan=self.complete(found.plan)) if found.plan else found


@frozen
class _Other:
    """Another value of a setting, and candidates with it: the best that was ``searched``; without one, legal ``variants`` of the
    plan, or the law that all of them break.
    """

    name: str
    value: KnobValue
    searched: Candidate | None = None
    variants: tuple[Candidate, ...] = ()
    law: str = ""


def explain(plan: Plan, explainer: PlanExplainer) -> Explanation:
    """Every setting of the plan with what decided it.

    A setting with a single legal value that no card mentions is not a decision.
    """
    deck = explainer.deck
    row = {**explainer.known, **row_of(plan.candidate, plan.accumulation)}
    steps = deck.flow.active_steps(row) if deck.flow else ()
    step_of = {path: step.id for step in steps for path in step.decides}
    names = [full.partition(".")[2] for full in sorted(SETTINGS, key=_position_in(steps))]
    others = {
        name: [_other(plan, name, value, explainer.search) for value in other_values(plan, name)]
        for name in names
        if plan.matters(name)
    }
    compared = _Compared.of([other for found in others.values() for other in found], explainer)
    decisions, reasons = list[Decision](), reasons_by_setting(plan, deck)
    for name, found in counted(tuple(others.items()), "settings"):
        alternatives, full = tuple(_alternative(plan, other, compared.plans(other), explainer) for other in found), full_name(name)
        decisions += _decision(plan, name, alternatives, reasons.get(full, ()), step_of.get(full, ""))
    about = {reason for decision in decisions for reason in decision.reasons}
    return Explanation(
        plan=plan,
        decisions=tuple(decisions),
        others=tuple(reason for reason in plan.reasons if reason not in about),
        flow=deck.flow.id if deck.flow else "",
        steps=tuple(_explained_step(step) for step in steps),
        advice=tuple(_advice(deck, {decision.setting for decision in decisions})),
        deck=deck.explanation_digest,
    )


def _decision(plan: Plan, name: str, alternatives: Sequence[WhyNot], reasons: tuple[Reason, ...], step: str) -> Iterator[Decision]:
    """What decided a setting, in a ``step`` of the deck's flow; none if it has one legal value and no card mentions it."""
    value = value_of(plan.candidate, name)
    legal = tuple(item for item in alternatives if item.obstacle is not Obstacle.ILLEGAL)
    if reasons or legal or value != _DEFAULTS.get(name, value):
        changes_convergence = value != CONVERGENCE_SETTINGS.get(name, value)
        yield Decision(
            setting=name, value=value, reasons=reasons, why_not=legal, step=step, changes_convergence=changes_convergence
        )


def _position_in(steps: tuple[Step, ...]) -> Callable[[str], int]:
    """Sort key of settings: the order in which steps of the flow name them; the others come last."""
    order = [path for step in steps for path in step.decides]
    return lambda full: order.index(full) if full in order else len(order)


def _explained_step(step: Step) -> ExplainedStep:
    return ExplainedStep(
        id=step.id, title=str(step.title) or step.id, rule=str(step.rule), cards=step.cards, because=str(step.because)
    )


def _advice(deck: Deck, decided: set[str]) -> Iterator[Advice]:
    """Advice on the decided settings from cards without effects, which name them in their control points."""
    for card in deck.cards:
        settings = [] if card.acts else [setting(point.path or point.name) for point in card.control_points]
        decided_names = tuple(name.name.partition(".")[2] for name in settings if name and name.name.partition(".")[2] in decided)
        if decided_names:
            texts = [*(str(policy.because) for policy in card.policies), *(str(risk.text) for risk in card.risks)]
            yield Advice(card=card.id, settings=decided_names, intent=str(card.intent), texts=tuple(filter(None, texts)))


def _other(plan: Plan, name: str, value: KnobValue, search: Search | None) -> _Other:
    """The best searched candidate with the value; without one, the plan with the value and what follows from it."""
    best = search.best_with(name, value) if search else None
    return _Other(name=name, value=value, searched=best) if best else _variants_with(plan, name, value)


@frozen
class _Compared:
    """Plans of all candidates that a plan is compared with, priced together."""

    searched: Mapping[Candidate, Plan]
    variants: Mapping[Candidate, Plan]

    @staticmethod
    def of(others: Sequence[_Other], explainer: PlanExplainer) -> "_Compared":
        """The plans of all candidates of ``others``."""
        searched = tuple(dict.fromkeys(other.searched for other in others if other.searched))
        variants = tuple(dict.fromkeys(variant for other in others for variant in other.variants))
        found = explainer.search.resolve(searched) if explainer.search else ()
        return _Compared(
            searched=dict(zip(searched, found, strict=True)), variants=dict(zip(variants, explainer.resolve(variants), strict=True))
        )

    def plans(self, other: _Other) -> list[Plan]:
        """The plans of one value."""
        return [self.searched[other.searched]] if other.searched else [self.variants[variant] for variant in other.variants]


def _alternative(plan: Plan, other: _Other, plans: Sequence[Plan], explainer: PlanExplainer) -> WhyNot:
    """The best of the plans with another value. A faster one is only named as the plan that fixing the value gives."""
    found = _closest(plan, other, plans, explainer)
    if found.obstacle is Obstacle.FASTER and explainer.search:
        return why_not(plan, other.name, other.value, explainer)
    return explainer.completed(found)


def _closest(plan: Plan, other: _Other, plans: Sequence[Plan], explainer: PlanExplainer) -> WhyNot:
    """The best of the plans with another value, and the obstacle to it."""
    if not plans:
        return WhyNot(setting=other.name, value=other.value, obstacle=Obstacle.ILLEGAL, text=other.law)
    return min((_comparison(plan, other.name, other.value, item, explainer) for item in plans), key=_sort_key)


def why_not(plan: Plan, name: str, value: KnobValue, explainer: PlanExplainer) -> WhyNot:
    """The best plan with another value of one setting, and the obstacle to it.

    Options have no price and are judged with the plan's own other settings.
    """
    if value_of(plan.candidate, name) == value:
        return WhyNot(setting=name, value=value, obstacle=Obstacle.EQUAL, text="the plan has it", plan=plan)
    if explainer.search is None or name in OPTION_NAMES:
        return _closest_alternative(plan, name, value, explainer)
    found = explainer.search.nearest_with(name, value)
    if found.cards:
        options = " ".join(f"--without {card}" for card in found.cards)
        text = f"{found.cards[0]}/{found.policy} rules it out: {found.because} With {options} there are candidates"
        return WhyNot(setting=name, value=value, obstacle=Obstacle.FORBIDDEN, text=text, card=found.cards[0], policy=found.policy)
    if found.plan is None:
        closest = _closest_alternative(plan, name, value, explainer)
        illegal = WhyNot(setting=name, value=value, obstacle=Obstacle.ILLEGAL, text=found.law)
        return closest if closest.text == NO_EFFECT else illegal
    comparison = _comparison(plan, name, value, found.plan, explainer, best=True)
    ranked = explainer.search.best_with(name, value) if comparison.obstacle in _AVAILABLE else None
    most_seconds = (1 + NEAR_TIE) * found.plan.estimate.step_seconds
    was_ranked = ranked is not None and explainer.search.resolve([ranked])[0].estimate.step_seconds <= most_seconds
    if comparison.obstacle not in (*_AVAILABLE, Obstacle.FORBIDDEN) or (was_ranked and comparison.obstacle is Obstacle.EQUAL):
        return comparison
    availability = "the search ranked it by its price alone, without simulation" if was_ranked else "it was not searched"
    return replace(comparison, text=f"{comparison.text}; {availability}; --fix {name}={show_value(value)} gets it")


_AVAILABLE = (Obstacle.EQUAL, Obstacle.FASTER)
"""Obstacles of values that are available."""


def _closest_alternative(plan: Plan, name: str, value: KnobValue, explainer: PlanExplainer) -> WhyNot:
    """The plan with one setting changed, and the obstacle to it.

    Other settings follow where they must: a higher degree takes devices from another axis. Of several candidates the best counts.
    """
    other = _variants_with(plan, name, value)
    if name in OPTION_NAMES:
        return _closest(plan, other, [explainer.price(item) for item in other.variants], explainer)
    return explainer.completed(_closest(plan, other, explainer.resolve(other.variants), explainer))


def _variants_with(plan: Plan, name: str, value: KnobValue) -> _Other:
    """The legal candidates with the value that differ from the plan in nothing else, apart from what follows from it."""
    candidate = plan.candidate if name in OPTION_NAMES else replace(plan.candidate, options=Options())
    found = list(variants(candidate, name, value))
    legal = tuple(item for item in found if not _violations(plan, item))
    law = _violations(plan, found[0])[0] if found and not legal else f"no layout of {plan.cluster.devices} devices has it"
    return _Other(name=name, value=value, variants=legal, law=law)


def _comparison(plan: Plan, name: str, value: KnobValue, other: Plan, explainer: PlanExplainer, *, best: bool = False) -> WhyNot:
    """The first obstacle to a legal plan. ``best``: the other plan is the best with the value, however much else differs."""
    if not (plan.matters(name) or other.matters(name)):
        return WhyNot(setting=name, value=value, obstacle=Obstacle.EQUAL, text=NO_EFFECT, plan=other)
    other_changes = _changes(plan.candidate, other.candidate, excluded=name)
    if name in OPTION_NAMES:
        obstacle, text = Obstacle.EQUAL, EQUAL_PRICE
    else:
        obstacle, text = _too_large(plan, other) or _slower(plan, other)
    if best:
        text = f"{_summary(name, value, other)}: {text}"
    if name in CONVERGENCE_SETTINGS and value != CONVERGENCE_SETTINGS[name]:
        text += f"; it may change the trained model, so it needs --allow {name}"
    row = {**explainer.known, **estimate_facts(other.estimate), **row_of(other.candidate, other.accumulation)}
    violated = (
        _violated_option_policy(name, explainer.deck, row)
        if name in OPTION_NAMES
        else _violated_policy(plan, other, explainer.deck, explainer.known)
    )
    if violated is None:
        return WhyNot(setting=name, value=value, obstacle=obstacle, text=text + other_changes, plan=other)
    text = f" {text[0].upper()}{text[1:]}{other_changes}" if best else other_changes
    return _forbidden_alternative(
        WhyNot(setting=name, value=value, obstacle=Obstacle.FORBIDDEN, text=text, plan=other), *violated, row
    )


def _summary(name: str, value: KnobValue, other: Plan) -> str:
    """Time, memory and fit of the best plan with a value, in words."""
    estimate = other.estimate
    memory = f"{show_bytes(estimate.peak_memory_bytes)} of {show_bytes(estimate.capacity_bytes)} a device"
    fit = f"{estimate.fit.value}, probability {estimate.shown_confidence:.0%}"
    return f"the best plan with {name}={show_value(value)} takes {show_seconds(estimate.step_seconds)} a step and {memory} ({fit})"


def _forbidden_alternative(alternative: WhyNot, card: Card, policy: Policy, row: Facts) -> WhyNot:
    """The alternative with the policy that rules it out and the facts that the policy depends on."""
    facts = {name: row.get(name) for name in condition_names(card, policy)}
    values = ", ".join(f"{name} is {show_fact(name, value)}" for name, value in facts.items())
    text = f"{card.id}/{policy.id} rules it out: {policy.because}" + (f" Here {values}." if values else "")
    return replace(alternative, text=text + alternative.text, card=card.id, policy=policy.id, facts=facts)


def _sort_key(alternative: WhyNot) -> tuple[int, float]:
    """Sort key of alternatives: available ones first, fastest first; then those nearest to being available."""
    hard = (Obstacle.HOST_TOO_SMALL, Obstacle.TOO_LARGE, Obstacle.FORBIDDEN)
    rank = hard.index(alternative.obstacle) + 1 if alternative.obstacle in hard else 0
    if alternative.plan is None:
        return rank, 0.0
    estimate = alternative.plan.estimate
    return rank, estimate.peak_memory_bytes if alternative.obstacle is Obstacle.TOO_LARGE else estimate.step_seconds


def _violated_policy(plan: Plan, other: Plan, deck: Deck, known: Facts) -> tuple[Card, Policy] | None:
    """The policy that drops the other plan. Both plans are judged together (this one with weight 0), so that defaults have
    something to leave. Options are resolved after the ranking and drop nothing.
    """
    rows = [
        {name: value for name, value in row_of(item.candidate, item.accumulation).items() if not name.startswith("options.")}
        for item in (plan, other)
    ]
    judgement = judge(deck, known, table(rows), weights=np.array([0, 1]))
    if judgement.allowed[1]:
        return None
    [drop] = judgement.dropped
    card = deck.card(drop.card)
    policy = card.policy(drop.policy)
    return None if policy is None else (card, policy)


def _violated_option_policy(name: str, deck: Deck, row: Facts) -> tuple[Card, Policy] | None:
    """The law or default that an option of the other plan violates."""
    for ref in deck.policy_refs.get(full_name(name), ()):
        if _violates(ref, row):
            return ref.card, ref.policy
    return None


def _violates(ref: PolicyRef, row: Facts) -> bool:
    if ref.policy.phase is not Phase.PLAN or not (preconditions_hold(ref.card, row) and condition_holds(ref.policy, row)):
        return False
    if ref.effect.kind in (EffectKind.REQUIRE, EffectKind.SET):
        return not selects_row(ref.effect, row)
    return ref.effect.kind is EffectKind.FORBID and selects_row(ref.effect, row)


def _too_large(plan: Plan, other: Plan) -> tuple[Obstacle, str] | None:
    """The other plan's memory as an obstacle: it must fit with the plan's probability, or with the default one if that is lower."""
    estimate, host_bytes = other.estimate, other.cluster.host_memory_bytes
    needs = f"needs {show_bytes(estimate.peak_memory_bytes)} of {show_bytes(estimate.capacity_bytes)} a device"
    if not estimate.fits:
        excess = estimate.peak_memory_bytes - estimate.capacity_bytes
        return Obstacle.TOO_LARGE, f"{needs}, {show_bytes(excess)} too much"
    if estimate.fit_confidence < min(DEFAULT_CONFIDENCE, plan.estimate.fit_confidence):
        return Obstacle.TOO_LARGE, f"{needs} and fits with probability {estimate.shown_confidence:.0%} only"
    if host_bytes is not None and estimate.host_memory_bytes_per_node > host_bytes:
        needs = show_bytes(estimate.host_memory_bytes_per_node)
        return Obstacle.HOST_TOO_SMALL, f"needs {needs} of host memory a node, {show_bytes(host_bytes)} are there"
    return None


def _slower(plan: Plan, other: Plan) -> tuple[Obstacle, str]:
    """The other plan's time as an obstacle. Within a near tie the plan itself may be slower: back ends, host memory and cards'
    preferences decided.
    """
    ratio = other.estimate.step_seconds / plan.estimate.step_seconds
    memory = other.estimate.peak_memory_bytes - plan.estimate.peak_memory_bytes
    memory_words = f", {show_bytes(abs(memory))} {'more' if memory > 0 else 'less'} memory" if abs(memory) >= 1 else ""
    if abs(ratio - 1) < EQUAL_MARGIN:
        return Obstacle.EQUAL, f"as fast{memory_words}"
    if ratio > 1:
        words = f"takes {ratio:.1f} times as long" if ratio >= 2 else f"{ratio - 1:.1%} slower"
        return Obstacle.SLOWER, f"{words}{_largest_increase(plan, other)}{memory_words}"
    if 1 / ratio <= 1 + NEAR_TIE:
        tie = f"within the {NEAR_TIE:.0%} in which back ends, host memory and cards' preferences decide"
        return Obstacle.EQUAL, f"{1 - ratio:.1%} faster, {tie}{memory_words}"
    return Obstacle.FASTER, f"{1 - ratio:.1%} faster{memory_words}"


def _largest_increase(plan: Plan, other: Plan) -> str:
    """The part of the step that grows most from the plan to a slower one, in words."""
    before, after = plan.estimate.time, other.estimate.time
    increases = {item.name: getattr(after, item.name) - getattr(before, item.name) for item in fields(before)}
    part = max(increases, key=lambda name: increases[name])
    return f", {part.replace('_', ' ')} {show_seconds(increases[part])} more" if increases[part] > 0 else ""


def _violations(plan: Plan, candidate: Candidate) -> tuple[str, ...]:
    return candidate.violations(plan.model, plan.workload, plan.cluster.devices)


def reasons_by_setting(plan: Plan, deck: Deck) -> Mapping[str, tuple[Reason, ...]]:
    """The plan's reasons by the full name of each setting that their policies affect; risks are not included."""
    cards = {card.id: card for card in deck.cards}
    found: dict[str, list[Reason]] = {}
    for reason in plan.reasons:
        card = cards.get(reason.card) if reason.effect != "risk" else None
        policy = card.policy(reason.policy) if card else None
        for name in affected_settings(card, policy) if card and policy else ():
            found.setdefault(name, []).append(reason)
    return {name: tuple(reasons) for name, reasons in found.items()}


def _changes(before: Candidate, after: Candidate, excluded: str) -> str:
    """All other changed settings, as words in brackets; without options that follow from a priced setting."""
    names = [name for name in SETTING_NAMES if name != excluded and (name not in OPTION_NAMES or excluded in OPTION_NAMES)]
    changed = [f"{name} {show_value(value_of(after, name))}" for name in names if value_of(before, name) != value_of(after, name)]
    return f" (with {', '.join(changed)})" if changed else ""
