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
    situation: Situation,
    ranking: Ranking,
    plans: tuple[Plan, ...],
    alternatives: tuple[Alternative, ...],
    deck: Deck,
    blocked: tuple[Rejection, ...],
) -> str:
    """The verdict on a request, with its figures; ``blocked`` are the laws that leave no candidate."""
    state_sentence, usable_bytes = (
        _state_sentence(situation),
        situation.cluster.devices * situation.cluster.device.usable_memory_bytes,
    )
    devices = f"{situation.cluster.devices} x {situation.cluster.device.name} can hold {show_bytes(usable_bytes)}"
    first = f" Nearest alternative: {alternatives[0].title}." if alternatives else ""
    if blocked and not _is_memory_law(blocked[0], deck):
        laws = " ".join(f"{drop.card}/{drop.policy}: {drop.because}" for drop in blocked)
        without = " ".join(f"--without {drop.card}" for drop in blocked)
        drops = f"The cards leave none of {ranking.candidates:,} candidates. {laws} With {without} some are left."
        return f"{drops} {state_sentence}; {devices}.{first}"
    without_activations = f"{state_sentence}, activations not counted; {devices}."
    state_fits = model_state_bytes(situation.model, situation.request.workload) <= usable_bytes
    if not plans:
        host_memory = situation.cluster.host_memory_bytes if situation.request.fix.get("offload") != "none" else None
        hosts = f" A node has {show_bytes(host_memory)} of host memory." if host_memory and not state_fits else ""
        tight = any("--confidence" in other.flags for other in alternatives)
        surely = f" with a probability of {100 * situation.request.confidence:g}%" if tight else ""
        return f"Nothing fits{surely}. {without_activations}{hosts}{first}"
    if plans[0].candidate.knobs.offload == "none":
        return f"It fits. {state_sentence}; {devices}."
    if "offload" in situation.request.fix:
        return f"It runs with state in host memory, as asked. {state_sentence}; {devices}."
    if ranking.fits_without_hosts:
        preferred = f"The best plan for {situation.request.objective} keeps state in host memory."
        return f"It fits. {state_sentence}; {devices}. {preferred}"
    on_devices = without_activations if state_fits else f"{state_sentence}; {devices}."
    return f"It does not fit the devices alone. {on_devices} It runs with state in host memory."


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


def _state_sentence(situation: Situation) -> str:
    model, workload = situation.model, situation.request.workload
    state = model_state_bytes(model, workload)
    subject = {"full": f"Full training with {workload.optimizer}", "lora": "LoRA", "qlora": "QLoRA"}[workload.train]
    bytes_per_parameter = state / model.parameters
    trained = f"{subject} of {model.name} ({show_count(model.parameters)} parameters)"
    return f"{trained} keeps {show_bytes(state)}, {bytes_per_parameter:.3g} bytes each"
