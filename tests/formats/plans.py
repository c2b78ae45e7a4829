"""Plans of many kinds that a format can express, for the tests of all formats."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from strategist.cards.deck import Deck, load_deck
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.layout import AXES
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import SETTING_CHOICES, SETTING_NAMES, full_name, value_of, with_settings
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.paths import data_dir
from strategist.planning.planner import price_candidate, ranked
from strategist.profiles.situation import Situation, situation
from strategist.programs.backends import load_backend
from strategist.programs.program_backend import IN_ENVIRONMENT
from strategist.search.facts import situation_facts

SITUATIONS = (
    Request(model="8b", gpus="8xH100", workload=Workload(seq_len=4096, global_batch=64), allow=("reduce_dtype",)),
    Request(model="8b", gpus="8x24GB", workload=Workload(seq_len=2048, global_batch=32, precision="fp32")),
    Request(model="32b", gpus="8x24GB", workload=Workload(seq_len=4096, global_batch=16, train="lora"), allow=("reduce_dtype",)),
    Request(model="70b", gpus="4x8xH100", workload=Workload(seq_len=8192, global_batch=128)),
    Request(model="qwen3-30b-a3b", gpus="2x8xH100", workload=Workload(seq_len=4096, global_batch=256)),
    Request(model="1b", gpus="1xH100", workload=Workload(seq_len=2048, global_batch=8)),
)
"""Dense and MoE models, one device and several nodes, full training and LoRA, with and without free memory."""

TRIED = ("recompute", "offload", "pp_schedule", "reshard_after_forward")
"""Settings that the tests of all formats try with every value that a format supports, besides each supported degree of two."""

CHANGES = 600
"""Random changes that are tried for one situation; most of them are illegal."""


@cache
def deck() -> Deck:
    """The shipped cards."""
    return load_deck(data_dir("cards"))


ALL = tuple(range(len(SITUATIONS)))
FEW = (6, (0, 2, 4))
"""Enough plans for every run: one device and several nodes, dense and MoE models, full training and LoRA."""


def plans(format: str, count: int = 12, indices: Sequence[int] = ALL) -> list[Plan]:
    """Up to ``count`` plans for each of these situations: the best, and random variations of them."""
    return [plan for index in indices for plan in _plans(format, index, count)]


def a_plan(format: str, fits: Callable[[Plan], bool] = lambda plan: True) -> Plan:
    """The first plan that ``fits`` accepts, of the best ones if it accepts one of them: variations take seconds."""
    best = (plan for index in ALL for plan in _best(format, index))
    every = (plan for index in ALL for plan in _plans(format, index, FEW[0]))
    return next(plan for plan in chain(best, every) if fits(plan))


def best_plans(format: str, indices: Sequence[int] = ALL) -> list[Plan]:
    """The best plan for each of these situations that has one."""
    return [plan for index in indices for plan in _best(format, index)]


def _request(format: str, index: int) -> Request:
    return replace(SITUATIONS[index], backend=format, allow=("reduce_dtype",))  # FSDP of some frameworks supports no other


def _best(format: str, index: int, count: int = 1) -> tuple[Plan, ...]:
    """The first plans of a situation; none if the format cannot express the model or the train mode."""
    return _ranked(format, index, max(count, FEW[0] // 3))[:count]


@cache
def _ranked(format: str, index: int, count: int) -> tuple[Plan, ...]:
    try:
        return ranked(situation(_request(format, index)), deck=deck(), limit=count)
    except InputError:
        return ()


@cache
def _plans(format: str, index: int, count: int) -> tuple[Plan, ...]:
    request = _request(format, index)
    problem, found = situation(request), [plan.candidate for plan in _best(format, index, count // 3)]
    if index == 0:
        found += [candidate for candidate in _each(problem, _best(format, index)) if candidate not in found]
    draws, values = random.Random(f"{format} {index}"), _values(format)
    for _ in range(CHANGES if found else 0):
        if len(found) >= count:
            break
        changed = _changed(draws, draws.choice(found), values)
        if changed not in found and _expressible(format, changed, problem):
            found.append(changed)
    return tuple(price_candidate(problem, candidate, deck=deck()) for candidate in found)


def _each(problem: Situation, best: Sequence[Plan]) -> Iterator[Candidate]:
    """Candidates with each value of the settings that must all be tried: the best plan or an earlier candidate with that change, if
    one is legal and the value has an effect in it, otherwise the best of those with the value.
    """
    request = problem.request
    limits, found = load_backend(request.backend).limits, [plan.candidate for plan in best]
    tried: list[tuple[str, KnobValue]] = [(name, 2) for name in AXES if 2 in limits.get(full_name(name), (2,))]
    tried += [(name, value) for name in TRIED for value in limits.get(full_name(name), ())]
    for name, value in tried if best else ():
        for changed in (changed for base in found for changed in _with_value(base, name, value)):
            if _expressible(request.backend, changed, problem) and replace(best[0], candidate=changed).matters(name):
                break
        else:
            try:
                changed = ranked(situation(replace(request, fix={name: value})), deck=deck(), limit=1)[0].candidate
            except InputError:  # impossible in this situation
                continue
        found.append(changed)
        yield changed


def _with_value(candidate: Candidate, name: str, value: KnobValue) -> Iterator[Candidate]:
    """The candidate with another value; a degree is taken from another axis, or given to it, and some schedules need two stages a
    rank.
    """
    if name not in AXES:
        yield with_settings(candidate, {name: value})
        yield with_settings(candidate, {name: value, "pp_virtual_stages": 2})
    for other in AXES if name in AXES else ():
        degrees = value_of(candidate, name) * value_of(candidate, other)
        if other != name and degrees % value == 0:
            changed = with_settings(candidate, {name: value, other: degrees // value})
            yield with_settings(changed, {"no_sync": changed.layout.pp > 1 or candidate.knobs.no_sync})


def _values(format: str) -> dict[str, tuple[KnobValue, ...]]:
    """Settings that the format can express with several values, and these values."""
    limits = load_backend(format).limits
    known = {name: limits.get(full_name(name), SETTING_CHOICES.get(name, (1, 2, 4, 8))) for name in SETTING_NAMES}
    return {name: values for name, values in known.items() if len(values) > 1 and full_name(name) not in IN_ENVIRONMENT}


def _changed(draws: random.Random, candidate: Candidate, values: dict[str, tuple[KnobValue, ...]]) -> Candidate:
    """The candidate with one to four random changes; a degree moves from one axis to another."""
    for _ in range(draws.randint(1, 4)):
        name = draws.choice(list(values))
        if name in AXES:
            other = draws.choice([axis for axis in AXES if axis != name])
            if (degree := value_of(candidate, other)) % 2 == 0:
                candidate = with_settings(candidate, {name: 2 * value_of(candidate, name), other: degree // 2})
        else:
            candidate = with_settings(candidate, {name: draws.choice(values[name])})
    if candidate.layout.pp > 1:
        candidate = with_settings(candidate, {"no_sync": True})
    return candidate


def _expressible(format: str, candidate: Candidate, problem: Situation) -> bool:
    workload = problem.request.workload
    if candidate.violations(problem.model, workload, problem.cluster.devices):
        return False
    return load_backend(format).runs(candidate, problem.model, workload, situation_facts(problem.model, problem.cluster, workload))
