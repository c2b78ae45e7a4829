"""The model: as many parameters as its shape says, causal, and weights that know no ranks."""

from dataclasses import replace

import pytest
import torch
from strategist_runtime.model import weights
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.model.rotary import Rotary

from .cases import MODELS

CPU = torch.device("cpu")
pytestmark = pytest.mark.torch


def built(shape, seq_len=16, seed=0):
    with torch.device("meta"):
        model = Decoder(shape)
    weights.materialise(model, shape, seq_len, seed, CPU)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_it_has_the_parameters_of_its_shape(name):
    shape = MODELS[name]
    assert sum(parameter.numel() for parameter in built(shape).parameters()) == shape.parameters


def test_equal_seeds_give_equal_weights_and_others_do_not():
    first, same, other = (built(MODELS["tiny"], seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_a_window_of_a_matrix_is_drawn_as_the_whole_is(monkeypatch):
    monkeypatch.setattr(weights, "BLOCK_ELEMENTS", 40)  # blocks of 4 rows, so that windows cross them
    whole, window = torch.empty(30, 10), torch.empty(9, 3)
    weights._draw(whole, (30, 10), (0, 0), 10, "name", 1.0)
    weights._draw(window, (9, 3), (6, 5), 10, "name", 1.0)
    assert torch.equal(window, whole[6:15, 5:8])
    assert whole.unique().numel() == whole.numel()


def test_no_token_sees_the_ones_after_it():
    model = built(MODELS["qwen"])
    tokens = torch.arange(16)[None] % 64
    changed = tokens.clone()
    changed[0, 10:] = 7
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_attention_depends_on_how_far_apart_tokens_are_only():
    rotary = Rotary(32, 8, 10000.0, CPU)
    query, key = torch.randn(1, 1, 1, 8).expand(1, 32, 1, 8), torch.randn(1, 1, 1, 8).expand(1, 32, 1, 8)
    scores = rotary.turn(query)[0, :, 0] @ rotary.turn(key)[0, :, 0].T
    torch.testing.assert_close(scores[5, 2], scores[25, 22])
    assert not torch.isclose(scores[5, 2], scores[5, 4])


def test_tied_models_have_one_matrix_for_both_ends():
    model = built(replace(MODELS["tiny"], tied_embeddings=True))
    assert model.head.weight is model.embedding.weight
