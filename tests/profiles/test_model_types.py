"""Model types of Hugging Face: each type of the table has the parameters of transformers' own model."""

import json
from dataclasses import replace
from itertools import cycle

import pytest

from strategist.contract.model import ModelShape
from strategist.errors import StrategistError
from strategist.profiles import huggingface, model_types

from .test_parameters import REMOTE

# Keys that a type needs beside its defaults: they are required, or transformers cannot build its own default.
NEEDED = {
    "nemotron": {"num_key_value_heads": 8},
    "hunyuan_v1_dense": {"head_dim": 128},
    "dots1": {"n_routed_experts": 16, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "deepseek_v2": {"num_experts_per_tok": 4},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0}},
}
FLAT = ("qwen2_vl", "qwen2_5_vl")
"""Types of several parts whose text keys are at the top up to transformers 4; since 5 they are inside ``text_config``."""

KINDS = [kind for kind in model_types.known() if kind not in (*REMOTE, *FLAT)]
SMALL = {
    "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
    "intermediate_size": 96, "vocab_size": 160, "max_position_embeddings": 32, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 40, "n_shared_experts": 3, "first_k_dense_replace": 2, "shared_expert_intermediate_size": 120,
    "shared_intermediate_size": 192, "intermediate_size_mlp": 112, "q_lora_rank": 24, "kv_lora_rank": 20,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 18, "n_group": 1, "topk_group": 1,
    "moe_num_shared_experts": 3, "moe_layer_start_index": 2, "num_shared_experts": 3, "expansion_ratio": 3,
    "mlp_only_layers": [0], "moe_layers": [1, 2], "word_embed_proj_dim": 64, "pad_token_id": 0, "moe_layer_end_index": 2,
    "n_routed_experts": 8,
}  # fmt: skip
"""Sizes that differ from each other, for those of a type's keys that its configuration class has."""


DIFFERENT = {
    "helium": {"head_dim": 16},
    "internlm3": {"attention_bias": True, "mlp_bias": True},
    "mpt": {"expansion_ratio": 4},
    "dbrx": {
        "hidden_size": 2048,  # experts of transformers' class always have its default
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 40, "moe_num_experts": 4, "moe_top_k": 2},
    },
}
"""Sizes of types that take no others."""

TOGETHER = ("internlm3", "dbrx")
"""Types whose flags cannot be changed one by one."""


def built(config) -> int:
    """Parameters of transformers' model of a configuration; a text part without a model of its own has a head, too."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    has_head = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    with torch.device("meta"):
        model = (AutoModelForCausalLM if has_head else AutoModel).from_config(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    # The bias of routers is in the checkpoint; transformers has it as a buffer.
    count += sum(buffer.numel() for name, buffer in model.named_buffers() if name.endswith("correction_bias"))
    tied = getattr(config, "tie_word_embeddings", False)
    return count if has_head or tied else count + config.vocab_size * config.hidden_size


def config_class(kind):
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[kind]


def read(folder, config: dict) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(config))
    return replace(huggingface.read_config(folder), name="m")


def saved(folder, config) -> ModelShape:
    config.save_pretrained(folder)
    return replace(huggingface.read_config(folder), name="m")


def flags_of(kind, config) -> list[str]:
    """Keys of the type that are true or false and count parameters, of those that the configuration class has."""
    row = model_types.row_of("config.json", kind)
    flags = {name for name, declared in ModelShape.__dataclass_fields__.items() if declared.type is bool}
    found = [entry[1:] for name, entry in row.shape.items() if name in flags and isinstance(entry, str)]
    found += {"falcon": ["new_decoder_architecture", "parallel_attn", "multi_query"], "gpt_bigcode": ["multi_query"]}.get(kind, [])
    return [key for key in dict.fromkeys(found) if hasattr(config, key)]


@pytest.mark.timeout(240)
@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_absent_keys_have_the_defaults_of_transformers(kind, tmp_path):
    needed = NEEDED.get(kind, {})
    config = config_class(kind)(**needed)
    shape = read(tmp_path, {"model_type": kind, **needed})
    assert shape.parameters == built(config)
    assert shape == saved(tmp_path, config)


@pytest.mark.timeout(240)
@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_each_key_counts_as_in_transformers(kind, tmp_path):
    small = small_config(kind)
    config = config_class(kind)(**small)
    assert saved(tmp_path, config).parameters == built(config)
    assert read(tmp_path, {"model_type": kind, **small}).parameters == built(config)
    for key in () if kind in TOGETHER else flags_of(kind, config):
        changed = config_class(kind)(**{**small, key: not getattr(config, key)})
        assert saved(tmp_path, changed).parameters == built(changed), key


def small_config(kind) -> dict:
    config = config_class(kind)()
    fixed = {name for name, value in vars(type(config)).items() if isinstance(value, property)}
    fixed |= {name for name, other in config.attribute_map.items() if other in SMALL}
    return {key: value for key, value in SMALL.items() if hasattr(config, key) and key not in fixed} | DIFFERENT.get(kind, {})


ODD = (None, 0, -1, "x", True, 1.5, [], [0], {"rope_type": "yarn", "factor": "x"}, 10**30)


def keys_of(kind) -> list[str]:
    """Keys that a row names, and those that are read of all types."""
    row, found = model_types.row_of("config.json", kind), ["rope_scaling", "layer_types", "mlp_layer_types", "text_config"]
    for entry in (*row.shape.values(), *row.shape.get("moe", {}).values(), *row.shape.get("mla", {}).values()):
        found += [entry[1:]] if isinstance(entry, str) and entry.startswith("$") else []
    return [*found, *row.only, *row.defaults]


def refusal(config: dict) -> str:
    """The error of reading a configuration; empty if it can be read."""
    try:
        shape, _ = model_types.shape_of("config.json", config, "m")
    except StrategistError as error:
        return str(error)
    return "" if shape.parameters > 0 else "no parameters"


@pytest.mark.parametrize("kind", model_types.known())
def test_an_odd_value_of_a_key_is_read_or_refused_in_one_line(kind):
    for key, odd in zip(dict.fromkeys(keys_of(kind)), cycle(ODD), strict=False):
        text = refusal({"model_type": kind, key: odd})
        assert text == "" or ("\n" not in text and text.startswith("config.json")), key


def test_no_type_is_both_read_and_refused():
    table = model_types._table()
    assert not set(table["refused"]) & set(table["types"])
    assert all(row.get("like", kind) in table["types"] for kind, row in table["types"].items())
