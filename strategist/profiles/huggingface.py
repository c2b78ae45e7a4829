"""Hugging Face ``config.json`` files as a ModelShape, from a path, the local cache or the Hub."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from strategist.contract.model import MLAShape, ModelShape, MoEShape
from strategist.errors import FileError, InputError
from strategist.profiles.architecture import facts

HUB_TIMEOUT_SECONDS, MAX_BYTES = 5.0, 2**20


class Config:
    """Typed access to one ``config.json``; a missing key or wrong type is an error with the key's name."""

    def __init__(self, path: object, data: dict[str, Any]) -> None:
        self.path, self.data = path, data

    def size(self, *keys: str, default: int | None = None) -> int:
        """The positive integer of the first of ``keys`` that exists and is not null."""
        for key in keys:
            value = self.data.get(key)
            if value is not None:
                if type(value) is not int or value < 1:
                    raise FileError(self.path, f"key {keys[0]!r} is {value!r}: a positive whole number is needed; correct it")
                return value
        if default is None:
            raise FileError(
                self.path, f"key {keys[0]!r} is missing: a {self.data.get('model_type')} configuration needs it; add it"
            )
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.data.get(key)
        if value is not None and type(value) is not bool:
            raise FileError(self.path, f"key {key!r} is {value!r}: true or false is needed; correct it")
        return default if value is None else value

    def number(self, key: str, default: float) -> float:
        value = self.data.get(key)
        if value is not None and type(value) not in (int, float):
            raise FileError(self.path, f"key {key!r} is {value!r}: a number is needed; correct it")
        return default if value is None else float(value)

    def must_be(self, key: str, allowed: tuple[Any, ...], reason: str) -> None:
        """Rejects a value that means another architecture."""
        if (value := self.data.get(key)) not in allowed:
            raise FileError(self.path, f"key {key!r} is {value!r}: {reason}; correct it")

    @property
    def rope_theta(self) -> float:
        """The base of RoPE; the key is at the top up to transformers 4, and inside ``rope_parameters`` since 5."""
        parameters = self.data.get("rope_parameters")
        nested = parameters.get("rope_theta") if isinstance(parameters, dict) else None
        value = self.data.get("rope_theta", nested)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 10000.0


Fields = dict[str, Any]


def _decoder(config: Config) -> Fields:
    """Fields that all Llama-like decoders share."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    return {
        "layers": config.size("num_hidden_layers"),
        "hidden_size": hidden,
        "heads": heads,
        "kv_heads": config.size("num_key_value_heads", default=heads),
        "head_size": config.size("head_dim", default=hidden // heads),
        "ffn_size": config.size("intermediate_size"),
        "vocab_size": config.size("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "rope_theta": config.rope_theta,
    }


def _llama(config: Config) -> Fields:
    bias = config.flag("attention_bias")
    return {**_decoder(config), "qkv_bias": bias, "output_bias": bias, "ffn_bias": config.flag("mlp_bias")}


AUXILIARY_LOSS = 0.001
"""Default of ``router_aux_loss_coef`` in transformers."""


def _balance(config: Config) -> float:
    """Weight of each layer's auxiliary loss, such that all layers together weigh as much as transformers' loss.

    That is ``router_aux_loss_coef`` if ``output_router_logits`` is true, else 0. With balanced experts, transformers' loss, one
    for all layers, equals the experts per token; ours, one per layer, equals 1.
    """
    if not config.flag("output_router_logits"):
        return 0.0
    experts_per_token = config.size("num_experts_per_tok", "experts_per_token")
    return round(config.number("router_aux_loss_coef", AUXILIARY_LOSS) * experts_per_token / config.size("num_hidden_layers"), 12)


def _mixtral(config: Config) -> Fields:
    moe = MoEShape(
        experts=config.size("num_local_experts"),
        experts_per_token=config.size("num_experts_per_tok"),
        expert_ffn_size=config.size("intermediate_size"),
        balance_coefficient=_balance(config),
    )
    return {**_decoder(config), "moe": moe}


def _gemma(config: Config) -> Fields:
    return {**_decoder(config), "tied_embeddings": config.flag("tie_word_embeddings", default=True)}


def _qwen2(config: Config) -> Fields:
    return {**_decoder(config), "qkv_bias": True}


def _qwen3(config: Config) -> Fields:
    bias = config.flag("attention_bias")
    head_size = config.size("head_dim", default=128)
    return {**_decoder(config), "head_size": head_size, "qk_norm": True, "qkv_bias": bias, "output_bias": bias}


def _qwen3_moe(config: Config) -> Fields:
    config.must_be("decoder_sparse_step", (None, 1), "only models with experts in every layer can be read")
    config.must_be("mlp_only_layers", (None, []), "only models with experts in every layer can be read")
    moe = MoEShape(
        experts=config.size("num_experts", "num_local_experts"),
        experts_per_token=config.size("num_experts_per_tok"),
        expert_ffn_size=config.size("moe_intermediate_size"),
        router_normalised=config.flag("norm_topk_prob"),
        balance_coefficient=_balance(config),
    )
    bias = config.flag("attention_bias")
    return {**_decoder(config), "qk_norm": True, "qkv_bias": bias, "output_bias": bias, "moe": moe}


def _deepseek_v3(config: Config) -> Fields:
    config.must_be("attention_bias", (None, False), "only attention without biases can be read")
    mla = MLAShape(
        query_rank=0 if config.data.get("q_lora_rank", "") is None else config.size("q_lora_rank"),
        key_value_rank=config.size("kv_lora_rank"),
        rope_head_size=config.size("qk_rope_head_dim"),
        nope_head_size=config.size("qk_nope_head_dim"),
        value_head_size=config.size("v_head_dim"),
    )
    moe = MoEShape(
        experts=config.size("n_routed_experts", "num_local_experts"),
        experts_per_token=config.size("num_experts_per_tok"),
        expert_ffn_size=config.size("moe_intermediate_size"),
        shared_experts=config.size("n_shared_experts"),
        first_dense_layers=config.size("first_k_dense_replace"),
        router_balance_bias=True,
        router_score="sigmoid",
        router_normalised=config.flag("norm_topk_prob", default=True),
        router_groups=config.size("n_group", default=1),
        router_groups_per_token=config.size("topk_group", default=1),
        routed_scale=config.number("routed_scaling_factor", 1.0),
        balance_coefficient=config.number("aux_loss_alpha", 0.0),
    )
    return {**_decoder(config), "head_size": mla.rope_head_size + mla.nope_head_size, "mla": mla, "moe": moe}


def _gpt_oss(config: Config) -> Fields:
    moe = MoEShape(
        experts=config.size("num_local_experts"),
        experts_per_token=config.size("num_experts_per_tok", "experts_per_token"),
        expert_ffn_size=config.size("intermediate_size"),
        router_parameter_bias=True,
        balance_coefficient=_balance(config),
    )
    bias = config.flag("attention_bias", default=True)
    head_size = config.size("head_dim", default=64)
    extra = {"head_size": head_size, "qkv_bias": bias, "output_bias": bias, "ffn_bias": True, "attention_sinks": True, "moe": moe}
    return {**_decoder(config), **extra}


_WITH_BIASES = {"ffn_matrices": 2, "qkv_bias": True, "output_bias": True, "ffn_bias": True, "norm": "layer"}


def _gpt2(config: Config) -> Fields:
    hidden, heads = config.size("n_embd", "hidden_size"), config.size("n_head", "num_attention_heads")
    return {
        "layers": config.size("n_layer", "num_hidden_layers"),
        "hidden_size": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_size": hidden // heads,
        "ffn_size": config.size("n_inner", default=4 * hidden),
        "vocab_size": config.size("vocab_size"),
        "learned_positions": config.size("n_positions", "max_position_embeddings"),
        "tied_embeddings": config.flag("tie_word_embeddings", default=True),
        **_WITH_BIASES,
    }


def _gpt_neox(config: Config) -> Fields:
    config.must_be("attention_bias", (None, True), "only attention with biases can be read")
    return {**_decoder(config), **_WITH_BIASES}


READERS: dict[str, Callable[[Config], Fields]] = {
    "llama": _llama, "mistral": _decoder, "mixtral": _mixtral, "gemma": _gemma, "phi3": _decoder,
    "qwen2": _qwen2, "qwen3": _qwen3, "qwen3_moe": _qwen3_moe,
    "deepseek_v3": _deepseek_v3, "gpt_oss": _gpt_oss, "gpt2": _gpt2, "gpt_neox": _gpt_neox,
}  # fmt: skip
"""Readers by model type."""


def read_config(path: Path) -> ModelShape:
    """The shape in a ``config.json``, or in that of the folder ``path``.

    Raises:
        FileError: no readable configuration, or a missing key, by name.
        InputError: a model type without a reader.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}; name another file") from None
    except UnicodeDecodeError:
        raise FileError(file, "is not UTF-8 text; name another file") from None
    return _shape(file, text, file.resolve().parent.name if file.name == "config.json" else file.stem)


def _shape(file: object, text: str, name: str) -> ModelShape:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(file, f"is not JSON: {error}; correct it") from None
    if not isinstance(data, dict):
        raise FileError(file, f"a configuration is a JSON object, not {type(data).__name__}; name another file")
    kind = data.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise InputError(
            f"{file}: model_type {kind!r}", f"is not among those that can be read ({', '.join(READERS)})",
            "describe the shape in a YAML file with the fields of ModelShape and pass its path",
        )  # fmt: skip
    fields = READERS[kind](Config(file, data))
    architecture_facts = facts(file, data, layers=fields["layers"], gated=fields.get("ffn_matrices", 3) == 3)
    return ModelShape(name=name, **fields, **architecture_facts)


def hub_cache() -> Path:
    """Where the Hub's client keeps its files: HF_HUB_CACHE, else hub inside :func:`home`."""
    folder = os.environ.get("HF_HUB_CACHE")
    return Path(folder).expanduser() if folder else home() / "hub"


def home() -> Path:
    """Where Hugging Face's libraries keep the user's files: HF_HOME, else huggingface below XDG_CACHE_HOME, else below ~/.cache."""
    folder = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(folder).expanduser()


def cached_config(hub_id: str) -> Path | None:
    """The ``config.json`` of ``hub_id`` in the local cache, of the main branch if possible; None without one."""
    folder = hub_cache() / f"models--{hub_id.replace('/', '--')}"
    try:
        main = folder / "snapshots" / (folder / "refs" / "main").read_text().strip() / "config.json"
    except OSError:
        main = None
    if main is not None and main.is_file():
        return main
    return max(folder.glob("snapshots/*/config.json"), default=None)


def from_hub(hub_id: str) -> ModelShape:
    """The shape of a model on the Hub; only its ``config.json`` is fetched, without a token.

    Raises:
        InputError: it cannot be fetched.
        FileError: it cannot be read as a model.
    """
    # Imported here: it is slow, and needed only for models that are not on this machine.
    from urllib.request import urlopen

    if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("", "0", "false", "no", "off"):
        raise _unreachable(hub_id, "HF_HUB_OFFLINE is set")
    url = f"{os.environ.get('HF_ENDPOINT') or 'https://huggingface.co'}/{quote(hub_id)}/resolve/main/config.json"
    try:
        with urlopen(url, timeout=HUB_TIMEOUT_SECONDS) as response:
            text = response.read(MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:  # refused, unknown host, timeout, an HTTP status, no text
        raise _unreachable(hub_id, f"{url}: {str(error).partition(chr(10))[0]}") from None
    return _shape(url, text, hub_id)


def _unreachable(hub_id: str, reason: str) -> InputError:
    law = f"is not in {hub_cache()} and cannot be fetched ({reason})"
    return InputError(
        f"--model {hub_id}",
        law,
        f"run hf download {shlex.quote(hub_id)} config.json where it can be, or pass the path of a config.json",
    )
