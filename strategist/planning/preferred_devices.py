"""Preferred devices: how many of the requested devices a plan uses, and after which allowed change of the workload."""

from strategist.alternatives.convergence import variants
from strategist.alternatives.fewer_devices import unused_devices_note, with_fewer_devices
from strategist.errors import InputError
from strategist.planning.ranking import PlanningContext, ranking_of
from strategist.profiles.situation import Situation
from strategist.search.needed_candidates import NEAR_TIE
from strategist.search.rank import Places, Ranking
from strategist.search.simulated_reranking import SEARCHED_PLACES


def best_size(situation: Situation, context: PlanningContext, kinds: int) -> tuple[Situation, Ranking, str]:
    """The number of devices that the objective prefers, its ranking, and a note on unused devices; all devices unless the objective
    saves cost or energy.

    Fewer devices must save more than a near tie, because they are slower.
    """
    best = full = _best_variant(situation, context, kinds)
    if not throughput(*full):
        return *full, ""
    for smaller in with_fewer_devices(situation):
        try:
            found = _best_variant(smaller, context, kinds)
        except InputError:  # no legal candidate on so few devices
            continue
        if _tokens_per_cost(*found) > (1 + NEAR_TIE) * _tokens_per_cost(*best):
            best = found
    gain, slowdown = _tokens_per_cost(*best) / _tokens_per_cost(*full), throughput(*full) / throughput(*best)
    return *best, unused_devices_note(situation, best[0], gain, slowdown, NEAR_TIE)


def _best_variant(situation: Situation, context: PlanningContext, kinds: int) -> tuple[Situation, Ranking]:
    """The situation whose best plan has the highest throughput: as requested, or after an allowed change of its workload."""
    if situation.request.objective == "energy" and situation.cluster.device.power_watts is None:
        law = f"the power limit of a {situation.cluster.device.name} is unknown"
        raise InputError("--objective energy", law, "add power_watts to the device in a cluster file")
    places = Places(first=SEARCHED_PLACES, kinds=kinds)
    rankings = ((variant, ranking_of(variant, context, places)) for variant in variants(situation))
    return max(rankings, key=lambda found: throughput(*found))


def _tokens_per_cost(situation: Situation, ranking: Ranking) -> float:
    """Tokens of the best plan per second, per dollar (per device-second if devices have no price) or per joule; 0 without a
    plan.
    """
    if not len(ranking.order):
        return 0.0
    row, priced = int(ranking.order[0]), ranking.priced
    cost = float(priced.step_seconds[row])
    if situation.request.objective == "cost":
        cost *= priced.price_per_second or situation.cluster.devices
    if situation.request.objective == "energy" and priced.energy_joules_per_step is not None:
        cost = float(priced.energy_joules_per_step[row])
    return situation.request.workload.tokens_per_step / cost


def throughput(situation: Situation, ranking: Ranking) -> float:
    """Tokens/s of the best plan; 0 if nothing fits."""
    if not len(ranking.order):
        return 0.0
    return situation.request.workload.tokens_per_step / float(ranking.priced.step_seconds[ranking.order[0]])
