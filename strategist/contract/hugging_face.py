"""Checks that a Hugging Face model folder has the architecture of a plan's model."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strategist.contract.model import ModelShape
from strategist.errors import FileError, InputError

KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_size": ("head_dim",),
    "vocab_size": ("vocab_size",),
    "tied_embeddings": ("tie_word_embeddings",),
}
"""Fields of a ModelShape by the keys of ``config.json`` that hold them.

A missing key is not compared: the model type implies its value.
"""

DENSE_KEYS = {"ffn_size": ("intermediate_size", "n_inner", "ffn_dim")}
"""Keys of models without experts; with experts, the same keys may mean the width of the dense or of the expert feed-forward."""


def read_config(folder: str) -> dict[str, Any]:
    """The ``config.json`` of a folder; of a model with several parts, the ``text_config`` in it.

    Raises:
        FileError: there is none.
    """
    data = read_json(Path(os.path.expanduser(folder)) / "config.json")
    inner = data.get("text_config")
    return inner if isinstance(inner, dict) else data


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileError: the file cannot be read, or does not hold a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(path, f"cannot be read: {error}; name another file") from None
    if not isinstance(data, dict):
        raise FileError(path, "is not a JSON object; name another file")
    return data


def check_architecture(folder: str, model: ModelShape) -> None:
    """Raises an error if the architecture in the folder differs from ``model``; the message names the first difference.

    Raises:
        FileError: the folder has no configuration.
        InputError: a size differs.
    """
    if text := next(disagreements(model, folder), ""):
        raise InputError("--hf", text, f"plan again with --model {shlex.quote(folder)}")


def disagreements(model: ModelShape, folder: str) -> Iterator[str]:
    """Differences between the configuration in ``folder`` and ``model``, each as a sentence with both values.

    Raises:
        FileError: the folder has no configuration.
    """
    config = read_config(folder)
    keys = KEYS if model.moe is not None else KEYS | DENSE_KEYS
    if model.mla is not None:
        keys = {name: names for name, names in keys.items() if name not in ("kv_heads", "head_size")}
    for field, names in keys.items():
        name = next((name for name in names if config.get(name) is not None), None)
        if name is not None and config[name] != getattr(model, field):
            yield f"{name} {config[name]} in {folder}: the plan's model {model.name} has {field} {getattr(model, field)}"
