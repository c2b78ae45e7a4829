"""Mixtures of several weighted sources: the sample at a position depends on the position only."""

import pytest
import torch
from hypothesis import given, strategies as st
from strategist_runtime.data.mixture import Mixture, Shuffled, mixture
from strategist_runtime.data.reader import Reader

from .test_token_datasets import Numbered

pytestmark = pytest.mark.torch


class Endless(Numbered):
    """An endless text whose samples are their own positions."""

    def __init__(self):
        super().__init__(samples=None)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 300))
def test_each_source_is_read_in_order_and_in_proportion_to_its_weight(weights, places):
    mixed = Mixture([Endless() for _ in weights], weights)
    seen = [mixed.locate(number) for number in range(places)]
    for text, weight in enumerate(weights):
        own = [inside for source, inside in seen if source == text]
        assert own == list(range(len(own)))
        assert abs(len(own) - places * weight / sum(weights)) <= len(weights)


def test_unweighted_sources_are_read_in_proportion_to_their_size():
    mixed = mixture([Numbered(30), Numbered(10)], [None, None], seed=0)
    seen = [mixed.locate(number)[0] for number in range(40)]
    assert (seen.count(0), seen.count(1)) == (30, 10)
    own = [mixed.sample(number).ids[0].item() for number in range(40) if mixed.locate(number)[0] == 0]
    assert sorted(own) == list(range(30))  # one epoch of the source
    assert own != list(range(30))


def test_a_small_source_with_a_large_weight_is_repeated():
    mixed = mixture([Numbered(4), Numbered(1000)], [3.0, 1.0], seed=0)
    own = [mixed.sample(number).ids[0].item() for number in range(32) if mixed.locate(number)[0] == 0]
    assert len(own) == 24
    assert all(sorted(own[first : first + 4]) == [0, 1, 2, 3] for first in range(0, 24, 4))


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_samples_of_a_step_do_not_depend_on_the_number_of_ranks(ranks):
    mixed = mixture([Numbered(7), Numbered(5), Numbered(11)], [1.0, 2.0, 4.0], seed=3)
    whole = Reader(dataset=mixed, rank=0, ranks=1).read(40, 8).tokens
    parts = [Reader(dataset=mixed, rank=rank, ranks=ranks).read(40, 8).tokens for rank in range(ranks)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_single_source_is_read_without_a_mixture():
    alone = mixture([Numbered(9)], [None], seed=5)
    assert isinstance(alone, Shuffled)
    assert [alone.number(place) for place in range(18)] == [
        Shuffled(dataset=Numbered(9), seed=5).number(place) for place in range(18)
    ]
