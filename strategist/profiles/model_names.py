"""Other names of presets: sizes, aliases and Hub ids, with variants and copies of these, which have the same shape."""

import re
from functools import cache
from typing import Any

from strategist.profiles import catalog

_SIZE = re.compile(r"\d[bm]$")
SECTIONS = ("sizes", "aliases", "text_parts", "variants", "stored", "copies")


def table() -> dict[str, Any]:
    """The table of names.

    Raises:
        FileError: the file is not a valid table.
    """
    return catalog.shipped("models", "names").mapping_with_keys(SECTIONS)


@cache
def hub_presets() -> dict[str, str]:
    """The preset of each Hub id of the table, by the id."""
    names = table()
    return {name: preset for name, preset in (names["aliases"] | names["text_parts"]).items() if "/" in name}


def find_hub_id(hub_id: str) -> str | None:
    """The id of the table that ``hub_id`` is a spelling, a variant or a copy of; None without one."""
    if found := catalog.find(hub_id, hub_presets()):
        return found
    organisation, _, model = hub_id.rpartition("/")
    owners = _ids_by_base_name().get(_base_name(model), {})
    if catalog.find(organisation, table()["copies"]):
        return next(iter(owners.values()), None)
    return owners.get(organisation.lower())


def similar_preset(model: str) -> str | None:
    """The preset with the most similar name: of the same base name, else of the longest known name with a size that begins the
    given name. None without one.
    """
    names = {_base_name(name.rpartition("/")[2]): preset for name, preset in (table()["aliases"] | hub_presets()).items()}
    base_name = _base_name(model)
    begins = [name for name in names if _SIZE.search(name) and re.match(rf"{re.escape(name)}(?!\d)", base_name)]
    return names.get(base_name) or (names[max(begins, key=len)] if begins else None)


def stored_weights(hub_id: str) -> str:
    """How the weights of a variant are quantized on disk, by the end of its id; empty if they are not."""
    stored = table()["stored"]
    ends = [end for end in stored if re.search(rf"[-_]{re.escape(end)}$", hub_id, re.IGNORECASE)]
    return str(stored[max(ends, key=len)]) if ends else ""


@cache
def _ids_by_base_name() -> dict[str, dict[str, str]]:
    """Ids of the table by base name, then by organisation in lower case."""
    found: dict[str, dict[str, str]] = {}
    for hub_id in hub_presets():
        organisation, _, model = hub_id.rpartition("/")
        found.setdefault(_base_name(model), {}).setdefault(organisation.lower(), hub_id)
    return found


def _base_name(model: str) -> str:
    """A model's normalized name without the ends that leave its shape as it is."""
    return catalog.normalized_name(_variant_ends().sub("", model))


@cache
def _variant_ends() -> re.Pattern[str]:
    variants = "|".join(map(re.escape, table()["variants"]))
    return re.compile(rf"([-_]({variants}))+$", re.IGNORECASE)
