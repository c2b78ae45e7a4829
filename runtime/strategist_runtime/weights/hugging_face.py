"""Names and places of a decoder's parameters in Hugging Face's files by model type, with fused and transposed tensors.

Taken from the tensors that transformers 5 writes; a test compares losses with its models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strategist.contract.model import ModelShape
from strategist.errors import InputError

LAYER, EXPERT = "{layer}", "{expert}"


@dataclass(frozen=True, kw_only=True)
class TensorLocation:
    """The place of a parameter in a tensor of the files: it begins at row ``first`` of the tensor's ``rows`` (None: the parameter
    is the whole tensor).

    ``transposed``: rows and columns are swapped in the file. A name with ``{expert}`` stands for one tensor per expert.
    """

    name: str
    first: int = 0
    rows: int | None = None
    transposed: bool = False

    @property
    def stacked(self) -> bool:
        return EXPERT in self.name

    def of_expert(self, number: int) -> "TensorLocation":
        """The location of one of the stacked experts."""
        return replace(self, name=self.name.replace(EXPERT, str(number)))


@dataclass(frozen=True, kw_only=True)
class ParameterNames:
    """The file's name of each of our modules, and of parameters that are not a module's weight or bias.

    ``fused``: the file's modules that contain several of ours, row after row. ``transposed``: those stored as [in, out].
    """

    modules: Mapping[str, str]
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: frozenset[str] = frozenset()

    def location(self, shape: ModelShape, name: str) -> TensorLocation | None:
        """The location of the parameter of this plain name; None if these files do not have it."""
        layer, short = _split(name)
        if full_name := self.modules.get(short):
            return TensorLocation(name=full_name.replace(LAYER, layer))
        module, _, kind = short.rpartition(".")
        if not (file_module := self.modules.get(module)):
            return None
        if module == "attention.query" and shape.mla is not None and not shape.mla.query_rank:
            file_module = f"{_SELF}.q_proj"
        location = TensorLocation(
            name=f"{file_module.replace(LAYER, layer)}.{kind}", transposed=file_module in self.transposed and kind == "weight"
        )
        if file_module not in self.fused:
            return location
        sizes = [_outputs(shape, member) for member in self.fused[file_module]]
        return replace(location, first=sum(sizes[: self.fused[file_module].index(module)]), rows=sum(sizes))


def names_of(model_type: str, folder: str) -> ParameterNames:
    """The parameter names of a model type.

    Raises:
        InputError: the model type is not supported.
    """
    if model_type not in PARAMETER_NAMES:
        raise InputError(
            f"{folder}: model_type {model_type!r}", f"has weights that cannot be read; these can: {', '.join(PARAMETER_NAMES)}",
            "choose another model",
        )  # fmt: skip
    return PARAMETER_NAMES[model_type]


def _split(name: str) -> tuple[str, str]:
    """The layer's number (empty outside of layers) and the rest of a plain name."""
    if not name.startswith("layers."):
        return "", name
    _, layer, short = name.split(".", 2)
    return layer, short


def _outputs(shape: ModelShape, module: str) -> int:
    """Rows of the weight of a module that is part of a fused one."""
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    return {"attention.query": queries, "attention.key": keys, "attention.value": keys}.get(module, shape.ffn_size)


_OUTSIDE = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_NORMS = {
    "attention_norm": "model.layers.{layer}.input_layernorm",
    "feed_forward_norm": "model.layers.{layer}.post_attention_layernorm",
}
_SELF, _MLP = "model.layers.{layer}.self_attn", "model.layers.{layer}.mlp"
_ATTENTION = {
    "attention.query": f"{_SELF}.q_proj", "attention.key": f"{_SELF}.k_proj", "attention.value": f"{_SELF}.v_proj",
    "attention.output": f"{_SELF}.o_proj", "attention.query_norm": f"{_SELF}.q_norm", "attention.key_norm": f"{_SELF}.k_norm",
}  # fmt: skip
_LATENT = {
    "attention.query_down": f"{_SELF}.q_a_proj", "attention.query_norm": f"{_SELF}.q_a_layernorm",
    "attention.query": f"{_SELF}.q_b_proj", "attention.latent": f"{_SELF}.kv_a_proj_with_mqa",
    "attention.latent_norm": f"{_SELF}.kv_a_layernorm", "attention.key_value": f"{_SELF}.kv_b_proj",
    "attention.output": f"{_SELF}.o_proj",
}  # fmt: skip
_DENSE = {"feed_forward.gate": f"{_MLP}.gate_proj", "feed_forward.up": f"{_MLP}.up_proj", "feed_forward.down": f"{_MLP}.down_proj"}
_EXPERTS = {
    "feed_forward.router": f"{_MLP}.gate",
    "feed_forward.experts.gate": f"{_MLP}.experts.{EXPERT}.gate_proj.weight",
    "feed_forward.experts.up": f"{_MLP}.experts.{EXPERT}.up_proj.weight",
    "feed_forward.experts.down": f"{_MLP}.experts.{EXPERT}.down_proj.weight",
}
_SHARED = {
    "feed_forward.router.balance_bias": f"{_MLP}.gate.e_score_correction_bias",
    "feed_forward.shared.gate": f"{_MLP}.shared_experts.gate_proj",
    "feed_forward.shared.up": f"{_MLP}.shared_experts.up_proj",
    "feed_forward.shared.down": f"{_MLP}.shared_experts.down_proj",
}
_SPARSE = "model.layers.{layer}.block_sparse_moe"
_MIXTRAL = {
    "feed_forward.router": f"{_SPARSE}.gate",
    "feed_forward.experts.gate": f"{_SPARSE}.experts.{EXPERT}.w1.weight",
    "feed_forward.experts.up": f"{_SPARSE}.experts.{EXPERT}.w3.weight",
    "feed_forward.experts.down": f"{_SPARSE}.experts.{EXPERT}.w2.weight",
}
_H = "transformer.h.{layer}"
_GPT2 = {
    "embedding": "transformer.wte", "positions": "transformer.wpe", "norm": "transformer.ln_f",
    "attention_norm": f"{_H}.ln_1", "feed_forward_norm": f"{_H}.ln_2",
    "attention.query": f"{_H}.attn.c_attn", "attention.key": f"{_H}.attn.c_attn", "attention.value": f"{_H}.attn.c_attn",
    "attention.output": f"{_H}.attn.c_proj", "feed_forward.up": f"{_H}.mlp.c_fc", "feed_forward.down": f"{_H}.mlp.c_proj",
}  # fmt: skip
_QKV = ("attention.query", "attention.key", "attention.value")
_LLAMA = ParameterNames(modules={**_OUTSIDE, **_NORMS, **_ATTENTION, **_DENSE})
_PHI3_QKV, _PHI3_UP = f"{_SELF}.qkv_proj", f"{_MLP}.gate_up_proj"

PARAMETER_NAMES: dict[str, ParameterNames] = {
    "llama": _LLAMA, "mistral": _LLAMA, "qwen2": _LLAMA, "qwen3": _LLAMA,
    "phi3": ParameterNames(
        modules={
            **_LLAMA.modules, **dict.fromkeys(_QKV, _PHI3_QKV),
            "feed_forward.gate": _PHI3_UP, "feed_forward.up": _PHI3_UP,
        },
        fused={_PHI3_QKV: _QKV, _PHI3_UP: ("feed_forward.gate", "feed_forward.up")},
    ),
    "gpt2": ParameterNames(
        modules=_GPT2,
        fused={f"{_H}.attn.c_attn": _QKV},
        transposed=frozenset(f"{_H}.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")),
    ),
    "mixtral": ParameterNames(modules={**_OUTSIDE, **_NORMS, **_ATTENTION, **_MIXTRAL}),
    "qwen3_moe": ParameterNames(modules={**_OUTSIDE, **_NORMS, **_ATTENTION, **_EXPERTS}),
    "deepseek_v3": ParameterNames(modules={**_OUTSIDE, **_NORMS, **_LATENT, **_DENSE, **_EXPERTS, **_SHARED}),
}  # fmt: skip
"""Parameter names by the model_type of config.json."""
