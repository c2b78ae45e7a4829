"""Architecture details of config.json besides sizes: epsilon, activation, rope scaling, sliding windows."""

import pytest

from strategist.contract.model import RopeScaling
from strategist.errors import FileError
from strategist.profiles.architecture import facts


def facts_of(gated=True, **data):
    return facts("config.json", data, layers=4, gated=gated)


def test_details_absent_from_the_config_have_the_defaults_of_transformers():
    assert facts_of(model_type="llama") == {
        "norm_epsilon": 1e-6, "activation": "", "rope_scaling": None, "sliding_window": 0, "full_attention_every": 0,
    }  # fmt: skip
    assert facts_of(model_type="gpt2")["norm_epsilon"] == 1e-5


@pytest.mark.parametrize("key", ["rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"])
def test_norm_epsilon_is_read_under_each_of_its_keys(key):
    assert facts_of(model_type="llama", **{key: 3e-5})["norm_epsilon"] == 3e-5


@pytest.mark.parametrize(
    ("gated", "config", "name"),
    [
        (True, {"hidden_act": "silu"}, ""),
        (True, {"hidden_act": "gelu"}, "gelu"),
        (False, {"activation_function": "gelu_new"}, ""),
        (False, {"hidden_act": "gelu"}, "gelu"),
        (True, {"hidden_act": "relu2"}, "relu2"),
        (True, {"model_type": "gemma", "hidden_act": "gelu"}, "gelu_tanh"),
    ],
)
def test_activation_functions_by_name(gated, config, name):
    assert facts_of(gated, **config)["activation"] == name


def test_rope_scaling_is_read_from_both_spellings():
    llama = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    wanted = RopeScaling(kind="llama3", factor=8.0, original_positions=8192)
    assert facts_of(rope_scaling={"rope_type": "llama3", **llama})["rope_scaling"] == wanted
    assert facts_of(rope_parameters={"rope_type": "llama3", "rope_theta": 1.0, **llama})["rope_scaling"] == wanted
    deepseek = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
    assert facts_of(rope_scaling=deepseek)["rope_scaling"] == RopeScaling(
        kind="yarn", factor=40.0, original_positions=4096, magnitude=1.0, magnitude_all=1.0
    )
    assert facts_of(rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 1.0})["rope_scaling"] is None


@pytest.mark.parametrize(
    ("config", "window"),
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
def test_sliding_windows(config, window):
    shape = facts_of(**config)
    assert (shape["sliding_window"], shape["full_attention_every"]) == window


def test_irregular_sliding_window_layers_are_refused():
    types = ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]
    with pytest.raises(FileError, match="layer_types"):
        facts_of(model_type="qwen2", use_sliding_window=True, sliding_window=8, layer_types=types)
