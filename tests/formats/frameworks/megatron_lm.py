"""Megatron-Core's configuration of each given argument script, as JSON: ``megatron_lm.py SCRIPT...``.

The function that converts arguments (``core_transformer_config_from_args``) is not part of the package; a field has the value of
the flag with its name, except for the few renamed here.
"""

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from megatron.core import utils
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from packaging.version import Version

RENAMED = {
    "num_experts": "num_moe_experts", "fp8_format": "fp8", "norm_epsilon": "layernorm_epsilon",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
}  # fmt: skip
PRINTED = (
    "num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size", "tensor_model_parallel_size",
    "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size",
    "sequence_parallel", "recompute_granularity", "recompute_num_layers", "fp8", "num_moe_experts", "moe_router_topk",
    "moe_ffn_hidden_size", "moe_grouped_gemm", "qk_layernorm",
)  # fmt: skip


def flags_of(path: str) -> dict[str, str]:
    """Flags by name; an empty value for those without one."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    words = shlex.split("\n".join(line for line in lines if line.startswith(("  --", "  '--"))), comments=True)
    return {word.partition("=")[0][2:].replace("-", "_"): word.partition("=")[2] for word in words}


def config(flags: dict[str, str]) -> TransformerConfig:
    """Megatron-Core's configuration from the flags; raises if they contradict each other."""
    known = {field.name: str(field.type) for field in dataclasses.fields(TransformerConfig)}
    values: dict[str, Any] = {}
    for flag, text in flags.items():
        name = RENAMED.get(flag, flag)
        if name in known:
            kind = known[name]
            words = kind.startswith("<class 'str") or "str" in kind
            values[name] = (text or True) if words else True if not text else float(text) if "float" in kind else int_or(text)
    half = torch.bfloat16 if "bf16" in flags else torch.float16 if "fp16" in flags else torch.float32
    gated = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu} if "swiglu" in flags else {}
    plain = {"add_bias_linear": "disable_bias_linear" not in flags, "pipeline_dtype": half, "params_dtype": half}
    return TransformerConfig(**{**values, **gated, **plain})


def stage_layers(config: TransformerConfig) -> list[int]:
    """Layers that Megatron-Core builds on each stage, in model order."""
    virtual, listed = config.virtual_pipeline_model_parallel_size, config.pipeline_model_parallel_layout
    places = [(stage, rank) for stage in range(virtual or 1) for rank in range(config.pipeline_model_parallel_size)]
    if listed is not None:
        return [listed.layout[rank][stage].count(LayerType.decoder) for stage, rank in places]
    return [get_num_layers_to_build(config, vp_stage=stage if virtual else None, pp_rank=rank) for stage, rank in places]


def int_or(text: str) -> int | str:
    """A whole number, or the text itself."""
    return int(text) if text.lstrip("-").isdigit() else text


if __name__ == "__main__":
    utils._te_version = Version("2.9")  # TransformerEngine needs CUDA; only its version is read
    found = [config(flags_of(path)) for path in sys.argv[1:]]
    shown = [{name: getattr(item, name) for name in PRINTED} for item in found]
    print(json.dumps([known | {"stage_layers": stage_layers(item)} for known, item in zip(shown, found, strict=True)]))
