"""Model types of Hugging Face: the ModelShape that a configuration describes, by the table of model types.

The table is ``profiles/hugging_face/model_types.yaml``; its head explains its keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from typing import Any

from strategist.contract.model import MLAShape, ModelShape, MoEShape
from strategist.errors import FileError, InputError, did_you_mean
from strategist.frozen import frozen
from strategist.profiles import catalog
from strategist.profiles.huggingface_keys import activation_of, rope_scaling_of, rope_theta_of, sliding_windows

Fields = dict[str, Any]
TABLE_KEYS = ("other_names", "common", "refused", "types")
YAML = "describe the shape in a YAML file with the fields of ModelShape and pass its path"
TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which models of several parts have the configuration of their text part."""

TEXT_PART_ONLY = "only the text part of"
"""Beginning of the note on a model with images."""


@frozen
class ModelType:
    """A row of the table, with the shape fields that all types share."""

    name: str
    shape: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, list[Any]] = field(default_factory=dict)


class Config:
    """Typed access to one ``config.json`` with the defaults of its model type; errors name the key.

    ``absent``: keys without a value in the file whose default was read.
    """

    def __init__(self, path: object, data: Mapping[str, Any], model_type: ModelType, other_names: Mapping[str, list[str]]) -> None:
        self.path, self.data, self.model_type, self.other_names = path, data, model_type, other_names
        self.absent: dict[str, Any] = {}

    def value(self, key: str) -> Any:
        """The value of a key or of one of its other names, else the default; None without one. ``a.b`` is ``b`` inside ``a``."""
        found = [value for name in (key, *self.other_names.get(key, ())) if (value := self._inside(name)) is not MISSING]
        if found:
            return next((value for value in found if value is not None), None)
        default = self.model_type.defaults.get(key)
        if default is not None:
            self.absent[key] = default
        return default

    def _inside(self, name: str) -> Any:
        inner: Any = self.data
        for part in name.split("."):
            inner = inner.get(part, MISSING) if isinstance(inner, Mapping) else MISSING
        return inner

    def size(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number of at least ``minimum``; ``default`` if it is null or absent.

        Raises:
            FileError: it is something else, or absent without a default.
        """
        value = self.value(key)
        if value is None and default is None:
            raise FileError(self.path, f"key {key!r} is missing: a {self.model_type.name} configuration needs it; add it")
        if value is None:
            return default or 0
        if type(value) is not int or value < minimum:
            law = "a positive whole number is needed" if minimum else "a whole number is needed"
            raise FileError(self.path, f"key {key!r} is {value!r}: {law}; correct it")
        return value

    def flag(self, key: str) -> bool:
        value = self.value(key)
        if value is not None and type(value) is not bool:
            raise FileError(self.path, f"key {key!r} is {value!r}: true or false is needed; correct it")
        return bool(value)

    def number(self, key: str, default: float) -> float:
        value = self.value(key)
        if value is not None and type(value) not in (int, float):
            raise FileError(self.path, f"key {key!r} is {value!r}: a number is needed; correct it")
        return default if value is None else float(value)


def known() -> tuple[str, ...]:
    """Model types that can be read."""
    return tuple(_table()["types"])


def shape_of(path: object, data: Mapping[str, Any], name: str) -> tuple[ModelShape, str]:
    """The shape that the content of a ``config.json`` describes, and a note on what was assumed or left out.

    Raises:
        FileError: a value is missing or invalid, by key.
        InputError: the model type cannot be read.
    """
    part = next((part for key in TEXT_PARTS if isinstance(part := data.get(key), Mapping)), None)
    tied = {key: data[key] for key in ("tie_word_embeddings",) if key in data}
    text = data if part is None else tied | dict(part)
    config = Config(path, text, row_of(path, text.get("model_type")), _table()["other_names"])
    try:
        shape = ModelShape(name=name, **_fields(config))
    except InputError as error:
        raise FileError(path, f"{error.value}: {error.law}; correct it") from None
    notes = [f"{TEXT_PART_ONLY} this {data.get('model_type')} is planned"] if part or "vision_config" in data else []
    if assumed := ", ".join(f"{key} {config.absent[key]}" for key in SIZES if key in config.absent):
        notes.append(f"{assumed} by default of {config.model_type.name} in transformers")
    return shape, f"{path}: {'; '.join(notes)}" if notes else ""


SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
"""Keys whose default is worth a note."""


def _table() -> Mapping[str, Any]:
    return catalog.shipped("hugging_face", "model_types").mapping_with_keys(("source", *TABLE_KEYS))


def row_of(path: object, name: object) -> ModelType:
    """The row of a model type, with the fields that it shares with others.

    Raises:
        InputError: there is none; gives the reason.
    """
    table = _table()
    kind = str(name)
    if reason := table["refused"].get(kind):
        raise InputError(f"{path}: model_type {name!r}", f"has {reason}, which no ModelShape describes", "choose another model")
    if name not in tuple(table["types"]):
        hint = did_you_mean(kind, table["types"], count=3)
        law = f"is none of the {len(table['types'])} that can be read"
        raise InputError(f"{path}: model_type {name!r}", law, f"{hint}{hint and ' Else '}{YAML}")
    row = table["types"][kind]
    base = table["types"].get(row.get("like"), row)
    return ModelType(
        name=kind,
        shape=table["common"] | base.get("shape", {}),
        defaults=row.get("defaults", {}),
        only=base.get("only", {}),
    )


def _fields(config: Config) -> Fields:
    """All fields of ModelShape but its name."""
    for key, allowed in config.model_type.only.items():
        value = config.value(key)
        if value is not None and value not in allowed:
            choice = " or ".join(map(repr, allowed))
            raise FileError(config.path, f"key {key!r} is {value!r}: a ModelShape describes models with {choice} only; {YAML}")
    shape = config.model_type.shape
    separate = ("moe", "mla", "ffn_size", "rope_theta", "activation", "sliding_window", "full_attention_every")
    found = _values(config, ModelShape, {name: entry for name, entry in shape.items() if name not in separate})
    heads, hidden = found["heads"], found["hidden_size"]
    found = {"kv_heads": heads, "head_size": hidden // heads, "ffn_size": _ffn_size(config, hidden)} | found
    if "mla" in shape:
        mla = MLAShape(**{"query_rank": 0} | _values(config, MLAShape, shape["mla"]))
        found |= {"mla": mla, "head_size": mla.rope_head_size + mla.nope_head_size}
    if "moe" in shape:
        found["moe"] = _experts(config, shape["moe"])
    if adjust := ADJUSTMENTS.get(config.model_type.name):
        found |= adjust(config, found)
    window, every = sliding_windows(config.path, config.value, shape, found["layers"])
    return found | {
        "rope_theta": rope_theta_of(config.value, shape["rope_theta"]),
        "rope_scaling": rope_scaling_of(config.value),
        "activation": activation_of(config.value, shape["activation"], gated=shape.get("ffn_matrices", 3) == 3),
        "sliding_window": window,
        "full_attention_every": every,
    }


def _ffn_size(config: Config, hidden: int) -> int:
    """Width of the feed-forward; ``ffn_per_hidden`` of the row is the usual multiple of the hidden size."""
    shape = config.model_type.shape
    usual = shape["ffn_per_hidden"] * hidden if "ffn_per_hidden" in shape else None
    return config.size(shape["ffn_size"][1:], default=usual)


OPTIONAL = frozenset({"kv_heads", "head_size", "query_rank"})
"""Fields without a default in their class that a configuration may leave open."""


def _values(config: Config, cls: type, entries: Mapping[str, Any]) -> Fields:
    """Fields of ``cls`` by the entries of a row; without those that the configuration leaves open."""
    found: Fields = {}
    for declared in (declared for declared in fields(cls) if declared.name in entries):
        name, entry = declared.name, entries[declared.name]
        if not (isinstance(entry, str) and entry.startswith("$")):
            found[name] = entry
            continue
        key, has_default = entry[1:], declared.default is not MISSING
        if config.value(key) is None and (has_default or name in OPTIONAL):
            continue
        if declared.type is bool:
            found[name] = config.flag(key)
        elif declared.type is float:
            found[name] = config.number(key, 0.0)
        else:
            found[name] = config.size(key, minimum=0 if has_default else 1)
    return found


def _experts(config: Config, entries: Mapping[str, Any]) -> MoEShape:
    """The experts of a row. ``shared_width``: elements of all shared experts together."""
    separate = ("first_dense_layers", "shared_width")
    found = _values(config, MoEShape, {name: entry for name, entry in entries.items() if name not in separate})
    found["first_dense_layers"] = _first_dense_layers(config, entries)
    if "shared_width" in entries:
        key, width = entries["shared_width"][1:], found["expert_ffn_size"]
        shared = config.size(key, default=0, minimum=0)
        if shared % width:
            law = f"shared experts as wide as a multiple of the {width} of an expert can be read"
            raise FileError(config.path, f"key {key!r} is {shared}: only {law}; {YAML}")
        found["shared_experts"] = shared // width
        found["shared_expert_gate"] = bool(shared and entries.get("shared_expert_gate"))
    found.setdefault("balance_coefficient", _balance(config, found["experts_per_token"]))
    return MoEShape(**found)


def _first_dense_layers(config: Config, entries: Mapping[str, Any]) -> int:
    """Number of dense layers before those with experts, from a number or from a list of layers.

    Raises:
        FileError: dense layers and layers with experts alternate.
    """
    layers, key = config.size("num_hidden_layers"), entries.get("first_dense_layers", "$")[1:]
    kinds, listed = config.value("mlp_layer_types"), config.value(key)
    if isinstance(kinds, list):
        key, listed = "mlp_layer_types", [layer for layer, kind in enumerate(kinds) if kind == "dense"]
    if not isinstance(listed, list):
        return min(config.size(key, default=0, minimum=0), layers)
    first = len(listed) if key != "moe_layers" else layers - len(listed)  # moe_layers: those with experts
    if listed != list(range(first) if key != "moe_layers" else range(first, layers)):
        raise FileError(config.path, f"key {key!r}: only models whose dense layers come first can be read; {YAML}")
    return first


def _balance(config: Config, experts_per_token: int) -> float:
    """Weight of each layer's auxiliary loss, such that all layers together weigh as much as transformers' loss.

    That is ``router_aux_loss_coef`` if ``output_router_logits`` is true, else 0. With balanced experts, transformers' loss, one
    for all layers, equals the experts per token; ours, one per layer, equals 1.
    """
    if not config.flag("output_router_logits"):
        return 0.0
    weight = config.number("router_aux_loss_coef", 0.0)
    return round(weight * experts_per_token / config.size("num_hidden_layers"), 12)


def _falcon(config: Config, found: Fields) -> Fields:
    """Falcon's three variants (modeling_falcon.py of transformers): 7B, 40B and 180B, RW."""
    new, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn")
    grouped = config.size("num_key_value_heads", default=found["heads"]) if new else found["heads"]
    norms = config.size("num_ln_in_parallel_attn", default=2) if new else 1 if parallel else 2
    return {"kv_heads": 1 if config.flag("multi_query") and not new else grouped, "layer_norms": norms}


def _gpt_bigcode(config: Config, found: Fields) -> Fields:
    return {"kv_heads": 1 if config.flag("multi_query") else found["heads"]}


OPT_POSITION_OFFSET = 2
"""Positions of OPT's embedding that no token has (modeling_opt.py of transformers)."""


def _opt(config: Config, found: Fields) -> Fields:
    width = config.size("word_embed_proj_dim", default=found["hidden_size"])
    if width != found["hidden_size"]:
        law = f"only embeddings as wide as the hidden size, {found['hidden_size']}, can be read"
        raise FileError(config.path, f"key 'word_embed_proj_dim' is {width}: {law}; {YAML}")
    return {"learned_positions": config.size("max_position_embeddings") + OPT_POSITION_OFFSET}


ADJUSTMENTS: Mapping[str, Callable[[Config, Fields], Fields]] = {
    "falcon": _falcon, "gpt_bigcode": _gpt_bigcode, "opt": _opt,
}  # fmt: skip
"""Fields that more than one key gives, by model type."""
