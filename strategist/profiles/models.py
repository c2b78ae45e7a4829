"""Models by name: presets, sizes, Hugging Face configurations and shape files, all as a ModelShape."""

import os
from dataclasses import replace
from pathlib import Path

from strategist.contract.model import ModelShape
from strategist.errors import InputError
from strategist.files import yaml_file
from strategist.frozen import frozen
from strategist.profiles import catalog, model_names
from strategist.profiles.model_types import TEXT_PART_ONLY

ACCEPTED = (
    "give a preset (strategist models list), a size such as 32b, a Hugging Face config.json or its folder, a Hub id (org/name), or"
    " a YAML shape"
)


@frozen
class ResolvedModel:
    """A shape. ``note``: where it comes from, if the name leaves that open."""

    shape: ModelShape
    note: str = ""


def presets() -> tuple[str, ...]:
    """Names of all presets."""
    return tuple(name for stem in catalog.profile_stems("models") for name in _family(stem).data["presets"])


def resolve_model(name: str) -> ResolvedModel:
    """The model of a name: a preset, a size, a file or folder, or a Hub id.

    Raises:
        InputError: no model has this name.
        FileError: the named file is not a valid model.
    """
    if not name.strip():
        raise InputError(f"--model {name!r}", "a model is needed", ACCEPTED)
    path = Path(os.path.expanduser(name))
    if path.suffix.lower() in (".yaml", ".yml"):
        return ResolvedModel(shape=_shape_file(path))
    if "/" not in name and path.suffix.lower() != ".json" and (found := _preset(name)):
        return found
    from strategist.profiles import huggingface

    if path.suffix.lower() == ".json" or ("/" in name and os.path.exists(path)):
        return _read(huggingface.read(path))
    if "/" in name and (cached := huggingface.cached_config(name)):
        return _read(huggingface.read(cached), name, f"{name} is read from {cached}")
    if found := _preset(name):
        named = "/" in name and name != hub_name(found.shape.name)  # exports name a preset's own id, and the given one of others
        return replace(found, shape=replace(found.shape, name=name)) if named else found
    if os.path.exists(path):
        return _read(huggingface.read(path))
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        try:
            return _read(huggingface.from_hub(name), name, f"{name} is read from its config.json on the Hugging Face Hub")
        except InputError as error:
            raise InputError(error.value, error.law, f"{_hint(name)}{error.do}") from None
    if "/" in name:
        raise InputError(f"--model {name}", "there is no such file or folder", f"{_hint(name)}{ACCEPTED}")
    raise catalog.unknown(f"--model {name}", "is not a known model", name, _all_names(), ACCEPTED)


def _read(found: tuple[ModelShape, str], name: str = "", source: str = "") -> ResolvedModel:
    """The shape of a configuration under ``name`` (empty: its own), with notes on where it comes from and what was assumed."""
    shape, note = found
    return ResolvedModel(shape=replace(shape, name=name or shape.name), note="; ".join(filter(None, (source, note))))


def find_preset(name: str) -> ModelShape | None:
    """The preset of that name, alias or size; None without one. Files are not read."""
    found = _preset(name)
    return found.shape if found else None


def hub_name(name: str) -> str:
    """The Hub id of a preset; the preset's own name without one."""
    return next((hub_id for hub_id, preset in model_names.hub_presets().items() if preset == name), name)


def _preset(name: str) -> ResolvedModel | None:
    """The preset of that size, alias or name; None without one."""
    names = model_names.table()
    if size := catalog.find(name, names["sizes"]):
        preset = names["sizes"][size]
        note = f"{name} is resolved to {preset}; name another preset or a config.json to change it"
        return ResolvedModel(shape=_load_preset(preset), note=note)
    if alias := model_names.find_hub_id(name) if "/" in name else catalog.find(name, names["aliases"]):
        if preset := names["text_parts"].get(alias):
            note = f"{TEXT_PART_ONLY} {name} is planned, which has the shape of the preset {preset}"
            return ResolvedModel(shape=_load_preset(preset), note=note)
        preset = names["aliases"][alias]
        return ResolvedModel(shape=_load_preset(preset), note=f"{name} has the shape of the preset {preset}")
    for stem in _stems_for(name):
        if preset := catalog.find(name, _family(stem).data["presets"]):
            return ResolvedModel(shape=_load_preset(preset))
    return None


def _hint(name: str) -> str:
    """``did you mean llama3-8b? Else `` of a model whose name resembles a preset's; else nothing."""
    found = model_names.similar_preset(name.rstrip("/").rpartition("/")[2])
    return f"did you mean {found}? Else " if found else ""


def _stems_for(name: str) -> list[str]:
    """Preset files whose name is a prefix of ``name``."""
    normalized = catalog.normalized_name(name)
    return [stem for stem in catalog.profile_stems("models") if normalized.startswith(catalog.normalized_name(stem))]


def _family(stem: str) -> yaml_file.Document:
    document = catalog.shipped("models", stem)
    document.mapping_with_keys(("source", "common", "presets"))
    document.mapping(("presets",))
    return document


def _load_preset(preset: str) -> ModelShape:
    for stem in _stems_for(preset):
        document = _family(stem)
        if preset in document.data["presets"]:
            data = {"name": preset, **document.data.get("common", {}), **document.data["presets"][preset]}
            return catalog.decoded(ModelShape, document, data, preset, ("presets", preset))
    raise InputError(f"preset {preset}", "profiles/models/names.yaml names it, no file holds it", "correct that file")


def _shape_file(path: Path) -> ModelShape:
    """The shape in a YAML file with the fields of ModelShape; ``source`` is free text, ``name`` defaults to the file's name."""
    document = yaml_file.load(path)
    data = {key: value for key, value in document.mapping().items() if key != "source"}
    return catalog.decoded(ModelShape, document, {"name": path.stem, **data}, path.name)


def _all_names() -> tuple[str, ...]:
    names = model_names.table()
    return (*presets(), *names["sizes"], *(alias for alias in names["aliases"] if "/" not in alias))
