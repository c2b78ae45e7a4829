"""TorchTitan's models: the preset of each flavour, and the registered configuration to begin from.

Flavours: torchtitan/models/*/__init__.py of 0.3.0; llama2 and llama4 are those of older versions.
"""

import math
from dataclasses import replace
from functools import cache
from pathlib import PurePath
from typing import NamedTuple

from strategist.contract.model import ModelShape
from strategist.formats.torchtitan_entries import FAMILIES, registered
from strategist.profiles.models import find_preset

PRESETS = {
    "llama3": {"1B": "llama3.2-1b", "3B": "llama3.2-3b", "8B": "llama3-8b", "70B": "llama3-70b", "405B": "llama3-405b"},
    "qwen3": {
        "0.6B": "qwen3-0.6b", "1.7B": "qwen3-1.7b", "4B": "qwen3-4b", "8B": "qwen3-8b", "14B": "qwen3-14b", "32B": "qwen3-32b",
        "30B-A3B": "qwen3-30b-a3b", "235B-A22B": "qwen3-235b-a22b",
    },
    "deepseek_v3": {"671B": "deepseek-v3"},
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
    "kimi_k2_5": {"moonlight-16B-A3B": "moonlight-16b-a3b"},
    "llama2": {"7B": "llama2-7b", "13B": "llama2-13b", "70B": "llama2-70b"},
    "llama4": {"17bx16e": "llama4-scout"},
}  # fmt: skip
"""Flavours with a preset of the same shape."""


class Base(NamedTuple):
    """A flavour of a family, and a registered configuration (``function``) to begin from.

    exact: whether the configuration is of that flavour.
    names: names of the configuration's optimizers.
    """

    family: str
    flavour: str
    function: str
    exact: bool
    names: tuple[str, ...]


def preset(family: str, flavour: str, assets: str) -> str | None:
    """The preset of a flavour, otherwise the preset named like the folder of its weights (``assets``); None without one.

    A flavour of the user's own may have the tokenizer of another size, so its name must be part of the folder's.
    """
    if found := PRESETS.get(family.rpartition(".")[2], {}).get(flavour):
        return found
    folder = PurePath(assets).name
    shape = find_preset(folder) if folder and flavour.lower() in folder.lower() else None
    return shape.name if shape else None


def base_of(model: ModelShape) -> Base | None:
    """The flavour with the model's shape, and the nearest registered configuration; None if TorchTitan has none."""
    folders = {called: folder for folder, called in FAMILIES.items()}
    for family, flavours in PRESETS.items():
        folder = folders.get(family, family)
        for flavour in flavours if folder in registered() else ():
            shape = _shape(folder, flavour)
            if shape is not None and replace(shape, name=model.name) == model:
                return _nearest(folder, flavour)
    return None


def _nearest(family: str, flavour: str) -> Base:
    """A plain registered configuration of the flavour, otherwise of the one most like it."""
    candidates = {
        function: entries for function, entries in registered()[family].items()
        if not entries.get("model.converters") and not function.startswith("sft")
        and not str(entries["model.flavor"]).startswith("debug")
    }  # fmt: skip
    function = min(
        candidates, key=lambda name: _distance(_shape(family, flavour), _shape(family, str(candidates[name]["model.flavor"])))
    )
    entries = candidates[function]
    return Base(family, flavour, function, entries["model.flavor"] == flavour, tuple(entries["optimizer.name"]))


@cache
def _shape(family: str, flavour: str) -> ModelShape | None:
    """The preset of a flavour; None without one."""
    return find_preset(PRESETS.get(FAMILIES.get(family, family), {}).get(flavour, ""))


def _distance(model: ModelShape | None, other: ModelShape | None) -> tuple[bool, float]:
    """How unlike two models are: whether only one has experts, then the logarithm of the ratio of their parameters."""
    if model is None or other is None:
        return True, math.inf
    return (model.moe is None) != (other.moe is None), abs(math.log(other.parameters / model.parameters))
