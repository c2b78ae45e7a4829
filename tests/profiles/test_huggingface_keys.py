"""Facts of config.json in several spellings: activation, RoPE, sliding windows."""

import pytest

from strategist.contract.model import RopeScaling
from strategist.errors import FileError
from strategist.profiles.model_types import shape_of

SIZES = {
    "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip
HALF = ["sliding_attention", "full_attention"] * 2


def read(model_type, **data):
    return shape_of("config.json", {**SIZES, "model_type": model_type, **data}, "m")[0]


def test_details_absent_from_the_config_have_the_defaults_of_transformers():
    shape = read("llama")
    assert (shape.norm_epsilon, shape.activation, shape.rope_scaling, shape.sliding_window) == (1e-6, "", None, 0)
    assert read("gpt2").norm_epsilon == 1e-5


@pytest.mark.parametrize("key", ["rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "norm_epsilon"])
def test_norm_epsilon_is_read_under_each_of_its_keys(key):
    assert read("llama", **{key: 3e-5}).norm_epsilon == 3e-5


@pytest.mark.parametrize(
    ("model_type", "config", "name"),
    [
        ("llama", {"hidden_act": "silu"}, ""),
        ("llama", {"hidden_act": "gelu"}, "gelu"),
        ("gpt2", {"activation_function": "gelu_new"}, ""),
        ("gpt_neox", {"hidden_act": "gelu"}, "gelu"),
        ("llama", {"hidden_act": "relu2"}, "relu2"),
        ("gemma", {"hidden_act": "gelu"}, "gelu_tanh"),
        ("apertus", {}, "xielu"),
    ],
)
def test_activation_functions_by_name(model_type, config, name):
    assert read(model_type, **config).activation == name


def test_rope_scaling_is_read_from_both_spellings():
    llama = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    wanted = RopeScaling(kind="llama3", factor=8.0, original_positions=8192)
    assert read("llama", rope_scaling={"rope_type": "llama3", **llama}).rope_scaling == wanted
    assert read("llama", rope_parameters={"rope_type": "llama3", "rope_theta": 1.0, **llama}).rope_scaling == wanted
    deepseek = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
    assert read("llama", rope_scaling=deepseek).rope_scaling == RopeScaling(
        kind="yarn", factor=40.0, original_positions=4096, magnitude=1.0, magnitude_all=1.0
    )
    assert read("qwen2_vl", rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}).rope_scaling is None
    assert read("llama", rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 1.0}).rope_scaling is None


@pytest.mark.parametrize(
    ("config", "theta"),
    [
        ({"model_type": "llama"}, 1e4),
        ({"model_type": "llama", "rope_theta": 5e5}, 5e5),
        ({"model_type": "llama", "rope_parameters": {"rope_theta": 7.0}}, 7.0),
        ({"model_type": "llama", "rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 5e5),
        ({"model_type": "mixtral"}, 1e6),
        ({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {"rope_theta": 9.0}, "sliding_attention": {}}}, 9.0),
    ],
)
def test_the_base_of_rope(config, theta):
    assert read(**config).rope_theta == theta


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"model_type": "mistral"}, (4096, 0)),
        ({"model_type": "mistral", "sliding_window": None}, (0, 0)),
        ({"model_type": "llama", "sliding_window": 4096}, (0, 0)),
        ({"model_type": "qwen3", "sliding_window": 128, "use_sliding_window": False}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True, "max_window_layers": 4}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True, "max_window_layers": 0}, (128, 0)),
        ({"model_type": "gpt_oss"}, (128, 2)),
        ({"model_type": "gpt_oss", "layer_types": HALF}, (128, 2)),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 4}, (0, 0)),
        ({"model_type": "mistral", "layer_types": ["sliding_attention"] * 4}, (4096, 0)),
        ({"model_type": "gemma2"}, (4096, 2)),
        ({"model_type": "gemma3_text", "sliding_window": 512}, (512, 6)),
        ({"model_type": "exaone4", "sliding_window_pattern": "LG", "layer_types": HALF}, (4096, 2)),
    ],
)
def test_sliding_windows(config, window):
    shape = read(**config)
    assert (shape.sliding_window, shape.full_attention_every) == window


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2}, "layer_types"),
        ({"max_window_layers": 2}, "max_window_layers"),
    ],
)
def test_irregular_sliding_window_layers_are_refused(config, words):
    with pytest.raises(FileError, match=words):
        read("qwen2", use_sliding_window=True, sliding_window=8, **config)


def test_a_pattern_of_windows_that_is_no_number_is_refused():
    with pytest.raises(FileError, match=r"sliding_window_pattern.*'LG'"):
        read("exaone4", sliding_window_pattern="LG")
