"""Evidence for policies from measured trials: in which trials each applied, and which pairs of trials support or contradict it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from strategist.cards.card import Card, Effect, EffectKind, Phase, Policy
from strategist.cards.deck import Deck
from strategist.contract.evidence import Pair, PolicyEvidence
from strategist.contract.knobs import KnobValue
from strategist.contract.measurement import Outcome
from strategist.expr.vocabulary import REQUEST, SETTINGS, VOCABULARY
from strategist.frozen import frozen
from strategist.rules.observe_policies import propose
from strategist.rules.policy_matching import condition_holds, preconditions_hold, selects_row

FASTER_MARGIN = 0.02
"""Relative difference by which a step must be shorter to count as faster."""

DEMANDING_EFFECTS = (EffectKind.REQUIRE, EffectKind.SET, EffectKind.PREFER)

_COMPARED = (*SETTINGS, *(name for name, entry in VOCABULARY.items() if entry.phase == REQUEST))


@frozen
class Trial:
    """A measured trial. ``known``: all its values by vocabulary name; ``seconds``: its step time, None when it failed;
    ``proposed_by``: such as ``card:FSDP-002/policy``.
    """

    known: Mapping[str, Any]
    seconds: float | None
    name: str = ""
    proposed_by: str = ""


def evidence(deck: Deck, trials: Sequence[Trial]) -> tuple[PolicyEvidence, ...]:
    """Evidence for each policy that at least one pair of trials supports or contradicts.

    The trials of a pair differ only in the policy's settings, and one of them has what the policy requests or forbids. If such a
    setting is a degree of the layout, the other degrees may also differ, because their product is the number of devices, and so may
    the options, which cards resolve for each layout. A trial that ran beats a trial that failed. A trial that the policy proposed
    is compared with the most similar earlier trial for which it would propose it.
    """
    return tuple(_evidence(ref, trials, pairs) for ref in _policy_refs(deck) if (pairs := tuple(_pairs(*ref, trials))))


def survey(deck: Deck, trials: Sequence[Trial]) -> tuple[PolicyEvidence, ...]:
    """Evidence for every policy that acts on settings, with or without pairs."""
    return tuple(_evidence(ref, trials, tuple(_pairs(*ref, trials))) for ref in _policy_refs(deck))


def _policy_refs(deck: Deck) -> Iterator[tuple[Card, Policy]]:
    kinds = (*DEMANDING_EFFECTS, EffectKind.FORBID, EffectKind.TRY)
    for card in deck.cards:
        yield from ((card, policy) for policy in card.policies if any(effect.kind in kinds for effect in policy.effects))


def _evidence(ref: tuple[Card, Policy], trials: Sequence[Trial], pairs: tuple[Pair, ...]) -> PolicyEvidence:
    card, policy = ref
    confirmed = sum(pair.confirms for pair in pairs)
    return PolicyEvidence(
        card=card.id,
        policy=policy.id,
        applied=sum(_was_applied(card, policy, trial) for trial in trials),
        taken=sum(trial.proposed_by == proposer(card.id, policy.id) for trial in trials),
        confirmed=confirmed,
        contradicted=len(pairs) - confirmed,
        pairs=pairs,
    )


def proposer(card: str, policy: str) -> str:
    """Name of a policy as proposer of a trial, in ledgers and histories."""
    return f"card:{card}/{policy}"


def _was_applied(card: Card, policy: Policy, trial: Trial) -> bool:
    if policy.phase is Phase.OBSERVE:
        return propose(card, policy, trial.known) is not None
    if not (condition_holds(policy, trial.known) and preconditions_hold(card, trial.known)):
        return False
    meets_demand = any(
        effect.kind in DEMANDING_EFFECTS and effect.settings and selects_row(effect, trial.known) for effect in policy.effects
    )
    avoids_forbidden = (
        effect.kind is EffectKind.FORBID and effect.settings and not selects_row(effect, trial.known) for effect in policy.effects
    )
    return meets_demand or any(avoids_forbidden)


def _pairs(card: Card, policy: Policy, trials: Sequence[Trial]) -> Iterator[Pair]:
    if policy.phase is Phase.OBSERVE:
        yield from _proposed_pairs(card, policy, trials)
        return
    for effect in policy.effects:
        if effect.kind in DEMANDING_EFFECTS and effect.settings:
            yield from _demanded_pairs(card, policy, effect, trials)
        elif effect.kind is EffectKind.FORBID:
            yield from _forbidden_pairs(card, policy, effect, trials)


def _demanded_pairs(card: Card, policy: Policy, effect: Effect, trials: Sequence[Trial]) -> Iterator[Pair]:
    """Pairs in which one trial has what the policy requests and the other does not."""
    free = _difference_filter({setting.path for setting in effect.settings})
    selected = [selects_row(effect, trial.known) for trial in trials]
    eligible = [condition_holds(policy, trial.known) and preconditions_hold(card, trial.known) for trial in trials]
    for left, right in combinations(range(len(trials)), 2):
        followed, ignored = (left, right) if selected[left] else (right, left)
        if selected[left] != selected[right] and eligible[followed] and _are_comparable(trials[followed], trials[ignored], free):
            yield from _compared_pair(trials[followed], trials[ignored])


def _forbidden_pairs(card: Card, policy: Policy, effect: Effect, trials: Sequence[Trial]) -> Iterator[Pair]:
    """Pairs of a trial that the policy forbids and one that it allows.

    A forbidden trial that ran out of memory counts alone if there is no counterpart.
    """

    def is_forbidden(trial: Trial) -> bool:
        return selects_row(effect, trial.known) and condition_holds(policy, trial.known) and preconditions_hold(card, trial.known)

    names = {setting.path for setting in effect.settings} or (policy.when.names if policy.when else frozenset())
    free = _difference_filter(names)
    for forbidden in filter(is_forbidden, trials):
        siblings = [trial for trial in trials if _are_comparable(trial, forbidden, free) and not is_forbidden(trial)]
        for sibling in siblings:
            yield from _compared_pair(sibling, forbidden)
        if not siblings and forbidden.known.get("observed.outcome") == Outcome.OOM:
            yield Pair(
                confirms=True, followed="", ignored=forbidden.name, followed_seconds=None, ignored_seconds=None, differs={}
            )  # fmt: skip


def _proposed_pairs(card: Card, policy: Policy, trials: Sequence[Trial]) -> Iterator[Pair]:
    """Pairs of a trial that the policy proposed and the most similar earlier trial for which it would propose the same change."""
    for index, trial in enumerate(trials):
        if trial.proposed_by != proposer(card.id, policy.id):
            continue
        proposing_trials = [earlier for earlier in reversed(trials[:index]) if _would_propose(card, policy, earlier, trial)]
        if proposing_trials:
            nearest = min(proposing_trials, key=lambda earlier: len(_differs(trial, earlier)))
            yield from _compared_pair(trial, nearest)


def _would_propose(card: Card, policy: Policy, earlier: Trial, trial: Trial) -> bool:
    proposal = propose(card, policy, earlier.known)
    return proposal is not None and all(trial.known.get(path) == value for path, value in proposal.changes.items())


def _difference_filter(names: Iterable[str]) -> Callable[[str], bool]:
    """Predicate of names that may differ in a pair about settings of these ``names``.

    Options depend on the other settings, so they may differ unless the pair is about options.
    """
    free = {*names} | ({"knobs.micro_batch"} if "knobs.accumulation" in names else set())
    parts = {name.partition(".")[0] for name in free}
    groups = (*(["layout."] if "layout" in parts else []), *(["options."] if "options" not in parts else []))
    return lambda name: name in free or name.startswith(groups)


def _are_comparable(left: Trial, right: Trial, free: Callable[[str], bool]) -> bool:
    return all(left.known.get(name) == right.known.get(name) or free(name) for name in _COMPARED)


def _compared_pair(followed: Trial, ignored: Trial) -> Iterator[Pair]:
    """The pair, unless both trials are equally good."""
    followed_is_faster = _is_faster(followed.seconds, ignored.seconds)
    if followed_is_faster is not None:
        yield Pair(
            confirms=followed_is_faster,
            followed=followed.name,
            ignored=ignored.name,
            followed_seconds=followed.seconds,
            ignored_seconds=ignored.seconds,
            differs=_differs(followed, ignored),
        )


def _differs(left: Trial, right: Trial) -> dict[str, tuple[KnobValue | None, KnobValue | None]]:
    values = ((name, left.known.get(name), right.known.get(name)) for name in SETTINGS)
    return {name: (left_value, right_value) for name, left_value, right_value in values if left_value != right_value}


def _is_faster(seconds: float | None, other_seconds: float | None) -> bool | None:
    if seconds is None or other_seconds is None:
        return None if seconds is other_seconds else other_seconds is None
    if abs(seconds - other_seconds) <= FASTER_MARGIN * max(seconds, other_seconds):
        return None
    return seconds < other_seconds
