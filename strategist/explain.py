"""Why a plan is as it is: for each setting the card or the cost that decided it, and what the other values would bring."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from strategist.cards.deck import Deck
from strategist.contract.explanation import Alternative, Decision, Explanation, Obstacle
from strategist.contract.knobs import CHOICES, Candidate, KnobValue, show_value
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.plan import Plan, Reason
from strategist.expr.columns import row_of, table
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import SETTINGS
from strategist.rules.judge import judge
from strategist.units import show_bytes

Price = Callable[[Candidate], Plan]
"""One candidate with its price, whatever the cards say."""

NEAR = 0.005
"""Share of the step below which two plans count as equally fast."""

SHARING_AXES = ("dp_shard", "dp_replicate", "pp", "cp", "tp")
"""Where devices are taken from, or given to, when the degree of another axis changes; in the order of trying."""


def explain(plan: Plan, *, deck: Deck, known: Facts, price: Price) -> Explanation:
    """Every setting of the plan with what decided it; ``known`` are the facts of its model, cluster and workload."""
    spoken = {name: _reasons(plan, deck, name) for name in SETTINGS}
    decisions = []
    for full in SETTINGS:
        name = full.partition(".")[2]
        if not _matters(plan, name):
            continue
        value = _value(plan.candidate, name)
        alternatives = tuple(why_not(plan, name, other, deck=deck, known=known, price=price) for other in _others(plan, name))
        legal = tuple(item for item in alternatives if item.obstacle is not Obstacle.ILLEGAL)
        decisions.append(Decision(setting=name, value=value, reasons=spoken[full], alternatives=legal))
    about = {reason for decision in decisions for reason in decision.reasons}
    others = tuple(reason for reason in plan.reasons if reason not in about)
    return Explanation(plan=plan, decisions=tuple(decisions), others=others)


def why_not(plan: Plan, name: str, value: KnobValue, *, deck: Deck, known: Facts, price: Price) -> Alternative:
    """What the plan would be with one setting otherwise, and what stands against that.

    Other settings follow where they must: a higher degree takes devices from another axis. Of several ways the best counts.
    """
    if _value(plan.candidate, name) == value:
        return Alternative(setting=name, value=value, obstacle=Obstacle.EQUAL, text="the plan has it", plan=plan)
    tried = list(_variants(plan.candidate, name, value))
    legal = [item for item in tried if not _violations(plan, item)]
    if not legal:
        broken = _violations(plan, tried[0])[0] if tried else f"no layout of {plan.cluster.devices} devices has it"
        return Alternative(setting=name, value=value, obstacle=Obstacle.ILLEGAL, text=broken)
    found = [_judged(plan, name, value, price(item), deck, known) for item in legal]
    return min(found, key=_badness)


def _judged(plan: Plan, name: str, value: KnobValue, other: Plan, deck: Deck, known: Facts) -> Alternative:
    """What stands first against a legal plan."""
    obstacle, text = _forbidden(plan, other, deck, known) or _too_large(other) or _slower(plan, other)
    changed = _changes(plan.candidate, other.candidate, besides=name)
    return Alternative(setting=name, value=value, obstacle=obstacle, text=text + changed, plan=other)


def _badness(alternative: Alternative) -> tuple[int, float]:
    """Alternatives that could be had first, the fastest of them; then those that are nearest to it."""
    hard = (Obstacle.HOST_TOO_SMALL, Obstacle.TOO_LARGE, Obstacle.FORBIDDEN)
    rank = hard.index(alternative.obstacle) + 1 if alternative.obstacle in hard else 0
    if alternative.plan is None:
        return rank, 0.0
    estimate = alternative.plan.estimate
    return rank, estimate.peak_memory_bytes if alternative.obstacle is Obstacle.TOO_LARGE else estimate.step_seconds


def _forbidden(plan: Plan, other: Plan, deck: Deck, known: Facts) -> tuple[Obstacle, str] | None:
    """The policy that drops the other plan; it stands beside the plan, which counts for none, so that defaults (set) have
    something to leave."""
    rows = [row_of(item.candidate, item.accumulation) for item in (plan, other)]
    judgement = judge(deck, known, table(rows), weights=np.array([0, 1]))
    if judgement.allowed[1]:
        return None
    [drop] = judgement.dropped
    return Obstacle.FORBIDDEN, f"{drop.card}/{drop.policy} rules it out: {drop.because}"


def _too_large(other: Plan) -> tuple[Obstacle, str] | None:
    estimate, host = other.estimate, other.cluster.host_memory_bytes
    if not estimate.fits:
        over = estimate.peak_memory_bytes - estimate.capacity_bytes
        need = f"needs {show_bytes(estimate.peak_memory_bytes)} of {show_bytes(estimate.capacity_bytes)}"
        return Obstacle.TOO_LARGE, f"{need} a device, {show_bytes(over)} too much"
    if host is not None and estimate.host_memory_bytes_per_node > host:
        need = show_bytes(estimate.host_memory_bytes_per_node)
        return Obstacle.HOST_TOO_SMALL, f"needs {need} of host memory a node, {show_bytes(host)} are there"
    return None


def _slower(plan: Plan, other: Plan) -> tuple[Obstacle, str]:
    ratio = other.estimate.step_seconds / plan.estimate.step_seconds
    memory = other.estimate.peak_memory_bytes - plan.estimate.peak_memory_bytes
    size = f", {show_bytes(abs(memory))} {'more' if memory > 0 else 'less'} memory" if abs(memory) >= 1 else ""
    if abs(ratio - 1) < NEAR:
        return Obstacle.EQUAL, f"as fast{size}"
    if ratio >= 2:
        return Obstacle.SLOWER, f"takes {ratio:.1f} times as long{size}"
    if ratio > 1:
        return Obstacle.SLOWER, f"{ratio - 1:.1%} slower{size}"
    return Obstacle.FASTER, f"{1 - ratio:.1%} faster{size}"


def _violations(plan: Plan, candidate: Candidate) -> tuple[str, ...]:
    return candidate.violations(plan.model, plan.workload, plan.cluster.devices)


def _reasons(plan: Plan, deck: Deck, full: str) -> tuple[Reason, ...]:
    """The reasons of the plan whose policy speaks of the setting; risks are about none."""
    cards = {card.id: card for card in deck.cards}
    found = []
    for reason in plan.reasons:
        policy = cards[reason.card].policy(reason.policy) if reason.card in cards and reason.effect != "risk" else None
        paths = {setting.path for effect in policy.effects for setting in effect.settings} if policy else set()
        if full in paths:
            found.append(reason)
    return tuple(found)


def _others(plan: Plan, name: str) -> Iterator[KnobValue]:
    """Values besides the plan's own: all of a closed knob, half and twice of a number."""
    value = _value(plan.candidate, name)
    if name in CHOICES:
        yield from (choice for choice in CHOICES[name] if choice is not value and choice != value)
    elif isinstance(value, int):
        yield from (number for number in (value // 2, value * 2) if number >= 1 and number != value)


def _value(candidate: Candidate, name: str) -> Any:
    return getattr(candidate.layout if name in DEGREES else candidate.knobs, name)


def _matters(plan: Plan, name: str) -> bool:
    """Whether the setting changes anything, given the others."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    if name in ("ep", "etp"):
        return plan.model.moe is not None
    if name == "reshard_group_size":
        return knobs.reshard_after_forward == "subgroup"
    needs = {
        "reshard_after_forward": layout.fsdp_ranks > 1,
        "sequence_parallel": layout.tp > 1,
        "loss_parallel": layout.tp > 1,
        "pp_schedule": layout.pp > 1,
        "pp_virtual_stages": layout.pp > 1,
        "postpone_gradient_sync": layout.pp > 1 or plan.accumulation > 1,
    }
    return needs.get(name, True)


def _variants(candidate: Candidate, name: str, value: KnobValue) -> Iterator[Candidate]:
    """Candidates with the setting, and with what has to follow it."""
    for changed in _layouts(candidate, name, value) if name in DEGREES else (_with_knobs(candidate, **{name: value}),):
        for followed in _followed(changed, candidate.layout):
            if _value(followed, name) == value:
                yield followed


def _layouts(candidate: Candidate, name: str, value: Any) -> Iterator[Candidate]:
    layout = candidate.layout
    alone = replace(candidate, layout=replace(layout, **{name: value}))
    if name in ("ep", "etp"):
        yield alone
        return
    devices = layout.world_size
    for axis in SHARING_AXES:
        others = alone.layout.world_size // getattr(alone.layout, axis)
        if axis != name and devices % others == 0:
            yield replace(candidate, layout=replace(alone.layout, **{axis: devices // others}))


def _followed(candidate: Candidate, before: Layout) -> Iterator[Candidate]:
    """The candidate, and with knobs that its layout or another knob asks for."""
    layout, knobs = candidate.layout, candidate.knobs
    yield candidate
    if layout.pp > 1 and not knobs.postpone_gradient_sync:
        candidate = _with_knobs(candidate, postpone_gradient_sync=True)
    if layout.pp == 1 and before.pp > 1:
        candidate = _with_knobs(candidate, pp_virtual_stages=1, pp_schedule="1f1b")
    if knobs.pp_schedule == "interleaved_1f1b" and knobs.pp_virtual_stages == 1:
        candidate = _with_knobs(candidate, pp_virtual_stages=2)
    for tensor in _tensor_knobs(layout.tp, before.tp):
        with_tensor = _with_knobs(candidate, **tensor)
        yield with_tensor
        if knobs.reshard_after_forward == "subgroup" and (layout != before or knobs.reshard_group_size == 1):
            sizes = (size for size in range(2, layout.fsdp_ranks) if layout.fsdp_ranks % size == 0)
            yield from (_with_knobs(with_tensor, reshard_group_size=size) for size in sizes)


def _tensor_knobs(tp: int, before: int) -> list[dict[str, bool]]:
    """What a tensor-parallel degree that comes or goes brings and takes."""
    if (tp > 1) == (before > 1):
        return [{}]
    if tp == 1:
        return [{"sequence_parallel": False, "loss_parallel": False}]
    return [{"sequence_parallel": True, "loss_parallel": loss} for loss in (True, False)]


def _with_knobs(candidate: Candidate, **values: Any) -> Candidate:
    return replace(candidate, knobs=replace(candidate.knobs, **values))


def _changes(before: Candidate, after: Candidate, besides: str) -> str:
    """What else had to change, as words in brackets."""
    names = (name.partition(".")[2] for name in SETTINGS)
    moved = [
        f"{name} {show_value(_value(after, name))}"
        for name in names
        if name != besides and _value(before, name) != _value(after, name)
    ]
    return f" (with {', '.join(moved)})" if moved else ""
