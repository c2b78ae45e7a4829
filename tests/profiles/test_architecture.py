"""What configurations say beside sizes: epsilon, activation, stretched rotary positions, windows."""

import pytest

from strategist.contract.model import RopeScaling
from strategist.errors import FileError
from strategist.profiles.architecture import facts


def found(gated=True, **data):
    return facts("config.json", data, layers=4, gated=gated)


def test_what_is_not_said_is_what_transformers_takes():
    assert found(model_type="llama") == {
        "norm_epsilon": 1e-6, "activation": "", "rope_scaling": None, "sliding_window": 0, "full_attention_every": 0,
    }  # fmt: skip
    assert found(model_type="gpt2")["norm_epsilon"] == 1e-5


@pytest.mark.parametrize("key", ["rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"])
def test_the_epsilon_of_norms_by_its_names(key):
    assert found(model_type="llama", **{key: 3e-5})["norm_epsilon"] == 3e-5


@pytest.mark.parametrize(
    ("gated", "said", "name"),
    [
        (True, {"hidden_act": "silu"}, ""),
        (True, {"hidden_act": "gelu"}, "gelu"),
        (False, {"activation_function": "gelu_new"}, ""),
        (False, {"hidden_act": "gelu"}, "gelu"),
        (True, {"hidden_act": "relu2"}, "relu2"),
        (True, {"model_type": "gemma", "hidden_act": "gelu"}, "gelu_tanh"),
    ],
)
def test_activations_by_their_names(gated, said, name):
    assert found(gated, **said)["activation"] == name


def test_stretched_positions_of_both_spellings():
    llama = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    wanted = RopeScaling(kind="llama3", factor=8.0, original_positions=8192)
    assert found(rope_scaling={"rope_type": "llama3", **llama})["rope_scaling"] == wanted
    assert found(rope_parameters={"rope_type": "llama3", "rope_theta": 1.0, **llama})["rope_scaling"] == wanted
    deepseek = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
    assert found(rope_scaling=deepseek)["rope_scaling"] == RopeScaling(
        kind="yarn", factor=40.0, original_positions=4096, magnitude=1.0, magnitude_all=1.0
    )
    assert found(rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 1.0})["rope_scaling"] is None


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ({"model_type": "mistral"}, (4096, 0)),
        ({"model_type": "mistral", "sliding_window": None}, (0, 0)),
        ({"model_type": "qwen3", "sliding_window": 128, "use_sliding_window": False}, (0, 0)),
        ({"model_type": "gpt_oss"}, (128, 2)),
        ({"model_type": "gpt_oss", "layer_types": ["sliding_attention", "full_attention"] * 2}, (128, 2)),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 4}, (0, 0)),
        ({"model_type": "mistral", "layer_types": ["sliding_attention"] * 4}, (4096, 0)),
    ],
)
def test_windows(said, window):
    shape = found(**said)
    assert (shape["sliding_window"], shape["full_attention_every"]) == window


def test_windows_of_no_regular_layers_are_refused():
    types = ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]
    with pytest.raises(FileError, match="layer_types"):
        found(model_type="qwen2", use_sliding_window=True, sliding_window=8, layer_types=types)
