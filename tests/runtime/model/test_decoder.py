"""The native decoder: exact parameter counts, causal attention, and initial weights that do not depend on ranks."""

from dataclasses import replace

import pytest
import torch
from strategist_runtime import capability
from strategist_runtime.model.attention_metadata import MetadataBuilder
from strategist_runtime.model.attention_sinks import SinkCore
from strategist_runtime.model.decoder import Decoder, balance_biases
from strategist_runtime.model.feed_forward import ACTIVATIONS
from strategist_runtime.model.rotary import Rotary, rotary_of
from strategist_runtime.weights import seeded

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.workload import Workload
from strategist.profiles.models import find_preset, presets
from strategist.programs.backends import load_backend

from ..cases import MODELS

CPU = torch.device("cpu")
pytestmark = pytest.mark.torch


def materialised(shape, seq_len=16, seed=0):
    with torch.device("meta"):
        model = Decoder(shape)
    seeded.materialise(model, shape, seq_len, seed, CPU)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_the_decoder_has_the_parameters_of_its_shape(name):
    shape = MODELS[name]
    assert sum(parameter.numel() for parameter in materialised(shape).parameters()) == shape.parameters


def is_trained_here(name):
    candidate = Candidate(layout=Layout(), knobs=Knobs())
    return not load_backend("native").unsupported_settings(candidate, find_preset(name), Workload(), "cpu")


@pytest.mark.parametrize("name", [*filter(is_trained_here, presets())])
def test_each_preset_that_this_runtime_trains_has_the_parameters_of_its_shape(name):
    shape = find_preset(name)
    few = replace(shape, layers=3, moe=shape.moe and replace(shape.moe, first_dense_layers=min(1, shape.moe.first_dense_layers)))
    with torch.device("meta"):
        model = Decoder(few)
    found = [*model.parameters(), *(buffer for _, buffer in balance_biases([model], few))]
    assert sum(tensor.numel() for tensor in found) == few.parameters


def test_a_layer_norm_may_have_no_bias():
    shape = replace(MODELS["tiny"], norm="layer", norm_bias=False)
    model = materialised(shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters
    assert not [name for name, _ in model.named_parameters() if "norm.bias" in name]


def test_initial_weights_depend_on_the_seed():
    first, same, other = (materialised(MODELS["tiny"], seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_a_shard_of_a_matrix_has_the_values_of_the_whole_matrix(monkeypatch):
    monkeypatch.setattr(seeded, "BLOCK_ELEMENTS", 40)  # blocks of 4 rows, so that windows cross them
    whole, window = torch.empty(30, 10), torch.empty(9, 3)
    seeded._draw(seeded.Window(local=whole, shape=whole.shape, lengths=(30, 10), offsets=(0, 0)), "name", 1.0, seeded.HOST)
    seeded._draw(seeded.Window(local=window, shape=whole.shape, lengths=(9, 3), offsets=(6, 5)), "name", 1.0, seeded.HOST)
    assert torch.equal(window, whole[6:15, 5:8])
    assert whole.unique().numel() == whole.numel()


def test_attention_is_causal():
    model = materialised(MODELS["qwen"])
    tokens = torch.arange(16)[None] % 64
    changed = tokens.clone()
    changed[0, 10:] = 7
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_rotary_scores_depend_on_relative_positions_only():
    rotary = Rotary(32, 8, 10000.0, CPU)
    query, key = torch.randn(1, 1, 1, 8).expand(1, 32, 1, 8), torch.randn(1, 1, 1, 8).expand(1, 32, 1, 8)
    scores = rotary.rotate(query)[0, :, 0] @ rotary.rotate(key)[0, :, 0].T
    torch.testing.assert_close(scores[5, 2], scores[25, 22])
    assert not torch.isclose(scores[5, 2], scores[5, 4])


def test_attention_depends_on_the_order_of_earlier_tokens():
    model, tokens = materialised(replace(MODELS["tiny"], layers=1), seq_len=4), torch.tensor([[5, 9, 7, 3]])
    assert not torch.allclose(model(tokens)[0, -1], model(tokens[:, [1, 0, 2, 3]])[0, -1])


@pytest.mark.parametrize("name", ["query", "key"])
def test_qk_norm_makes_logits_independent_of_query_and_key_scale(name):
    model, tokens = materialised(replace(MODELS["qwen"], qkv_bias=False), seq_len=8), torch.arange(8)[None]
    before = model(tokens)
    with torch.no_grad():
        for layer in model.layers.values():
            getattr(layer.attention, name).weight.mul_(100.0)
    torch.testing.assert_close(model(tokens), before, rtol=1e-3, atol=1e-4)


def test_tied_embedding_and_head_share_one_weight():
    model = materialised(replace(MODELS["tiny"], tied_embeddings=True))
    assert model.head.weight is model.embedding.weight


def test_supported_activations_equal_the_implemented_ones():
    assert set(capability.ACTIVATIONS) == set(ACTIVATIONS)


def test_attention_sinks_take_part_in_each_softmax():
    """Against explicit scores, with and without a mask."""
    core, heads, tokens, size = SinkCore(4), 4, 6, 8
    query, key, value = torch.randn(2, heads, tokens, size), torch.randn(2, 2, tokens, size), torch.randn(2, 2, tokens, size)
    with torch.no_grad():
        core.sinks.copy_(torch.randn(heads))
    sees = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    for mask in (sees, sees.triu(-2)):
        scores = query @ key.repeat_interleave(2, dim=1).transpose(-1, -2) * size**-0.5
        scores = scores.masked_fill(~mask, -torch.inf)
        sinks = core.sinks.view(1, heads, 1, 1).expand(2, -1, tokens, 1)
        shares = torch.cat((scores, sinks), dim=-1).softmax(-1)[..., :-1]
        wanted = shares @ value.repeat_interleave(2, dim=1)
        torch.testing.assert_close(core(query, key, value, None if mask is sees else mask[None, None]), wanted)
    core(query, key, value).sum().backward()
    assert core.sinks.grad.abs().min() > 0


def test_a_sliding_window_masks_distant_tokens():
    shape = replace(MODELS["tiny"], layers=1, sliding_window=4)
    model = materialised(shape)
    tokens = torch.arange(16)[None] % 64
    changed = tokens.clone()
    changed[0, 3] = 50
    before, after = model(tokens), model(changed)
    assert not torch.allclose(before[:, 3:7], after[:, 3:7])
    torch.testing.assert_close(before[:, 7:], after[:, 7:])


def test_latent_attention_scores_depend_on_relative_positions_only():
    rotary = rotary_of(MODELS["latent"], 32, CPU)
    query, key = torch.randn(1, 1, 1, 4).expand(1, 32, 1, 4), torch.randn(1, 1, 1, 4).expand(1, 32, 1, 4)
    scores = rotary.rotate(query)[0, :, 0] @ rotary.rotate(key)[0, :, 0].T
    torch.testing.assert_close(scores[5, 2], scores[25, 22])


@pytest.mark.gpu
def test_sinks_with_a_block_mask_on_a_gpu_equal_those_with_a_dense_mask():
    tokens, window = 256, 100
    places = {place: torch.arange(tokens, device=place) for place in ("cpu", "cuda")}
    masks = {place: MetadataBuilder(None, order, window=window).default.window_mask for place, order in places.items()}
    core, given = SinkCore(4), [torch.randn(2, heads, tokens, 32) for heads in (4, 2, 2)]
    with torch.no_grad():
        core.sinks.copy_(torch.randn(4))
    wanted = core(*given, masks["cpu"])
    found = core.cuda()(*(each.cuda() for each in given), masks["cuda"])
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-3, atol=1e-3)
