"""Card filter: one candidate of each class is judged, with the verdicts that every candidate gets when it is judged itself."""

from collections import Counter

import numpy as np
import pytest

from strategist.api.cards import load_cards
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.planning.ranking import constraints_of
from strategist.profiles.situation import situation
from strategist.rules.policy_evaluation import PART_ROWS, judge
from strategist.search.blocks import Space
from strategist.search.candidate_tables import CandidateSet, block_table, candidate_set
from strategist.search.card_filter import SearchCriteria, allowed_of
from strategist.search.facts import situation_facts
from strategist.search.space import space
from tests.search.test_pruning import random_request


def criteria_of(request: Request) -> tuple[Space, SearchCriteria]:
    """The space of a request, and the criteria of its search."""
    asked, constraints = situation(request), constraints_of(request)
    facts = situation_facts(asked.model, asked.cluster, request.workload)
    found = space(asked.model, asked.cluster, request.workload, constraints)
    return found, SearchCriteria(deck=load_cards(), facts=facts, constraints=constraints)


def narrowed_of(found: Space, criteria: SearchCriteria, *, defaults: bool) -> tuple[CandidateSet, Counter[tuple[str, str]]]:
    """What the cards leave of blocks and of combinations of knobs, each judged alone; rejections by card and policy."""
    fixed, drops = criteria.constraints.open, Counter[tuple[str, str]]()
    by_block = judge(criteria.deck, criteria.facts, block_table(found), fixed, found.rows, defaults=defaults)
    left = candidate_set(found.take(by_block.allowed))
    weights = np.repeat(np.bincount(left.blocks.grid), left.lengths)
    by_knobs = judge(criteria.deck, criteria.facts, left.knobs, fixed, weights, defaults=defaults)
    for drop in (*by_block.dropped, *by_knobs.dropped):
        drops[drop.card, drop.policy] += drop.rows
    return left.among([rows[by_knobs.allowed[rows]] for rows in left.knob_rows], left.blocks.grid), drops


def same_verdicts(request: Request, *, defaults: bool) -> bool:
    """Whether judging classes leaves the candidates, and counts the rejections, that judging each candidate does."""
    try:
        found, criteria = criteria_of(request)
    except InputError:
        return True
    left, drops = narrowed_of(found, criteria, defaults=defaults)
    table, backend = next(left.tables()), criteria.constraints.backend
    refused = backend.refused(criteria.known, table)
    excluded = refused | backend.unrequested_convergence(criteria.known, table, criteria.constraints.open)
    verdict = judge(criteria.deck, criteria.facts, table, criteria.constraints.open, among=~excluded, defaults=defaults)
    for drop in verdict.dropped:
        drops[drop.card, drop.policy] += drop.rows
    allowed = allowed_of(found, criteria, defaults=defaults)
    if not verdict.allowed.any():
        return defaults or allowed.candidates.rows == 0  # with defaults, a second pass follows
    judged, expected = next(allowed.candidates.tables()), table.take(verdict.allowed)
    same = [np.array_equal(judged.values[name], expected.values[name]) for name in table.names]
    counts = (allowed.refusals.judged, allowed.refusals.refused, allowed.refusals.excluded)
    return (
        all(same)
        and {(drop.card, drop.policy): drop.rows for drop in allowed.dropped} == drops
        and counts == (table.rows, np.count_nonzero(refused), np.count_nonzero(excluded))
    )


def differing_requests(requests: int, seed: int) -> list[Request]:
    generator = np.random.default_rng(seed)
    drawn = [random_request(generator) for _ in range(requests)]
    return [request for place, request in enumerate(drawn) if not same_verdicts(request, defaults=place % 3 > 0)]


@pytest.fixture(params=[0, PART_ROWS], ids=["by class", "one by one"])
def _judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates are judged by class, or small tables of them one by one."""
    monkeypatch.setattr("strategist.search.card_filter.PART_ROWS", request.param)


@pytest.mark.usefixtures("_judged")
def test_classes_get_the_verdicts_of_their_candidates() -> None:
    assert not differing_requests(6, seed=21)


@pytest.mark.full
@pytest.mark.parametrize(("requests", "seed"), [(50, 22), pytest.param(250, 23, marks=pytest.mark.weekly)])
@pytest.mark.usefixtures("_judged")
def test_classes_of_many_requests_get_the_verdicts_of_their_candidates(requests: int, seed: int) -> None:
    assert not differing_requests(requests, seed=seed)


@pytest.mark.parametrize("backend", ["torchtitan", "megatron-lm", "native"])
def test_a_back_end_excludes_as_many_candidates_as_if_each_was_asked(backend: str) -> None:
    request = Request(model="mixtral-8x7b", gpus="2x8xH100", backend=backend, workload=Workload(global_batch=32))
    assert same_verdicts(request, defaults=True)
