"""Model shapes and their exact parameter counts."""

from dataclasses import replace

import pytest

from contract.samples import MLA, MODEL, MOE
from strategist.errors import InputError


def test_dense_parameter_count_equals_a_hand_count():
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert MODEL.dense_layer_parameters == layer
    assert MODEL.parameters == 4 * layer + 256 * 64 + 256 * 64 + 64
    assert MODEL.active_parameters == MODEL.parameters


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"tied_embeddings": True}, -256 * 64),
        ({"qkv_bias": True}, 4 * (64 + 2 * 32)),
        ({"output_bias": True}, 4 * 64),
        ({"ffn_bias": True}, 4 * (2 * 128 + 64)),
        ({"qk_norm": True}, 4 * 2 * 8),
        ({"attention_sinks": True}, 4 * 8),
        ({"qk_norm": True, "qk_norm_all_heads": True}, 4 * (64 + 32)),
        ({"norm": "layer"}, (2 * 4 + 1) * 64),
        ({"norm": "layer", "norm_bias": False}, 0),
        ({"layer_norms": 1}, -4 * 64),
        ({"layer_norms": 4}, 4 * 2 * 64),
        ({"embedding_norm": True}, 64),
        ({"embedding_norm": True, "norm": "layer"}, (2 * 4 + 1) * 64 + 2 * 64),
        ({"head_bias": True}, 256),
        ({"head_bias": True, "tied_embeddings": True}, 256 - 256 * 64),
        ({"activation": "xielu"}, 4 * 2),
        ({"learned_positions": 100}, 100 * 64),
        ({"ffn_matrices": 2}, -4 * 64 * 128),
        ({"ffn_matrices": 2, "ffn_bias": True}, -4 * 64 * 128 + 4 * (128 + 64)),
        ({"layers": 5}, MODEL.dense_layer_parameters),
    ],
)
def test_each_architecture_option_adds_its_parameters(change, more):
    assert replace(MODEL, **change).parameters == MODEL.parameters + more


def test_moe_parameter_count_equals_a_hand_count():
    model = replace(MODEL, moe=MOE)
    expert = 3 * 64 * 32
    shared = MODEL.attention_parameters + 2 * 64 + 64 * 8 + expert
    assert (model.moe_layers, model.dense_layers, model.expert_parameters) == (3, 1, expert)
    outside = MODEL.parameters - 3 * MODEL.dense_layer_parameters
    assert model.parameters == outside + 3 * (shared + 8 * expert)
    assert model.active_parameters == outside + 3 * (shared + 2 * expert)
    biased = replace(model, moe=replace(MOE, router_parameter_bias=True))
    assert biased.parameters == model.parameters + 3 * 8
    assert replace(model, moe=replace(MOE, shared_expert_gate=True)).parameters == model.parameters + 3 * 64
    without = replace(model, moe=replace(MOE, shared_experts=0))
    assert replace(without, moe=replace(without.moe, shared_expert_gate=True)).parameters == without.parameters


def test_latent_attention_parameter_count_equals_a_hand_count():
    query = 64 * 24 + 24 + 24 * 8 * (8 + 4)
    key_value = 64 * (16 + 4) + 16 + 16 * 8 * (8 + 8)
    assert replace(MODEL, mla=MLA).attention_parameters == query + key_value + 8 * 8 * 64


@pytest.mark.parametrize(
    "change",
    [{"layers": 0}, {"vocab_size": -1}, {"kv_heads": 3}, {"norm": "batch"}, {"ffn_matrices": 4}, {"layer_norms": 3}],
)
def test_invalid_shapes_are_refused_with_model_and_value(change):
    with pytest.raises(InputError, match=f"model small.*{next(iter(change.values()))}"):
        replace(MODEL, **change)


def test_sliding_window_excludes_full_attention_layers():
    alternating = replace(MODEL, sliding_window=8, full_attention_every=2)
    assert [alternating.window(layer) for layer in range(4)] == [8, 0, 8, 0]
    assert [replace(MODEL, sliding_window=8).window(layer) for layer in range(2)] == [8, 8]
    assert MODEL.window(0) == 0


def test_default_ffn_activation_is_silu_or_gelu_tanh():
    assert (
        MODEL.ffn_activation,
        replace(MODEL, ffn_matrices=2).ffn_activation,
        replace(MODEL, activation="gelu").ffn_activation,
    ) == (
        "silu",
        "gelu_tanh",
        "gelu",
    )


@pytest.mark.parametrize("wrong", [{"router_groups": 3}, {"router_groups": 4, "router_groups_per_token": 1}, {"router_groups": 0}])
def test_router_groups_must_divide_experts_and_cover_top_k(wrong):
    with pytest.raises(InputError, match=f"router_groups {wrong['router_groups']}, router_groups_per_token 1"):
        replace(MOE, experts=4, experts_per_token=2, **wrong)
