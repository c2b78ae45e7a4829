"""Verdict of an answer: whether the request fits, with figures."""

from strategist.cards.card import LAWS
from strategist.cards.deck import Deck
from strategist.contract.answer import Alternative
from strategist.contract.plan import Plan
from strategist.cost.model_states import model_state_bytes
from strategist.profiles.situation import Situation
from strategist.rules.policy_evaluation import Rejection
from strategist.rules.policy_matching import condition_names
from strategist.search.rank import Ranking
from strategist.units import show_bytes, show_count


def verdict(
    asked: Situation,
    ranking: Ranking,
    plans: tuple[Plan, ...],
    alternatives: tuple[Alternative, ...],
    deck: Deck,
    blocked: tuple[Rejection, ...],
) -> str:
    """The verdict on a request, with its figures; ``blocked`` are the laws that leave no candidate."""
    need, has = _state_sentence(asked), asked.cluster.devices * asked.cluster.device.usable_memory_bytes
    devices = f"{asked.cluster.devices} x {asked.cluster.device.name} can hold {show_bytes(has)}"
    first = f" Nearest alternative: {alternatives[0].title}." if alternatives else ""
    if blocked and not _is_memory_law(blocked[0], deck):
        laws = " ".join(f"{drop.card}/{drop.policy}: {drop.because}" for drop in blocked)
        without = " ".join(f"--without {drop.card}" for drop in blocked)
        drops = f"The cards leave none of {ranking.candidates:,} candidates. {laws} With {without} some are left."
        return f"{drops} {need}; {devices}.{first}"
    bare = f"{need}, activations not counted; {devices}."
    held = model_state_bytes(asked.model, asked.request.workload) <= has
    if not plans:
        there = asked.cluster.host_memory_bytes if asked.request.fix.get("offload") != "none" else None
        hosts = f" A node has {show_bytes(there)} of host memory." if there and not held else ""
        return f"Nothing fits. {bare}{hosts}{first}"
    best = plans[0]
    host = show_bytes(best.estimate.host_memory_bytes_per_node)
    if best.candidate.knobs.offload == "none":
        return f"It fits. {need}; {devices}."
    if "offload" in asked.request.fix:
        return f"It runs with state in host memory, as asked: {host} a node. {need}; {devices}."
    if ranking.fits_without_hosts:
        return f"It fits. {need}; {devices}. The best plan for {asked.request.objective} keeps state in host memory: {host} a node."
    alone = bare if held else f"{need}; {devices}."
    return f"It does not fit the devices alone. {alone} It runs with state in host memory: {host} a node."


def rejecting_laws(ranking: Ranking, deck: Deck) -> list[Rejection]:
    """Rejections by laws, most first. Defaults give way and never leave nothing."""
    found = []
    for drop in ranking.dropped:
        policy = deck.card(drop.card).policy(drop.policy)
        if policy is not None and any(effect.kind in LAWS for effect in policy.effects):
            found.append(drop)
    return found


def _is_memory_law(drop: Rejection, deck: Deck) -> bool:
    """Whether a law's condition is on memory."""
    card = deck.card(drop.card)
    policy = card.policy(drop.policy)
    return policy is not None and any(name.endswith("memory_bytes") for name in condition_names(card, policy))


def _state_sentence(asked: Situation) -> str:
    model, workload = asked.model, asked.request.workload
    state = model_state_bytes(model, workload)
    what = {"full": f"Full training with {workload.optimizer}", "lora": "LoRA", "qlora": "QLoRA"}[workload.train]
    each = state / model.parameters
    return f"{what} of {model.name} ({show_count(model.parameters)} parameters) keeps {show_bytes(state)}, {each:.3g} bytes each"
