"""Hardware files: devices and their boxes (typical nodes), with quantities as numbers or with units."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

from strategist import units
from strategist.contract.cluster import Device, Link
from strategist.errors import InputError, StrategistError
from strategist.files import yaml_file
from strategist.frozen import frozen
from strategist.profiles import catalog
from strategist.units import GIB

_UNITS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bytes_per_second", units.RATES),
    ("_seconds", units.SECONDS),
    ("peak_flops", units.FLOPS),
    ("_watts", units.WATTS),
)

_REMARK = re.compile(r"\([^)]*\)")
_VENDORS = re.compile(r"\b(NVIDIA|GeForce|Tesla|AMD|Instinct|Radeon( PRO)?)\b", re.IGNORECASE)
_SIZE = re.compile(r"([0-9]+)Gi?B", re.IGNORECASE)
_VARIANT_WORD = re.compile(r"[0-9]+Gi?B|[0-9]+W|SXM[0-9]?|PCIe|OAM|HBM[0-9]e?", re.IGNORECASE)
"""Words of a name besides the chip: memory, power, form of the board."""

_SLICE = re.compile(r"(?<![a-z])MIG(?![a-z])", re.IGNORECASE)
"""A slice of a GPU: ``MIG 1g.10gb`` as CUDA names it, ``nvidia.com/mig-1g.10gb`` as Kubernetes does."""

MEMORY_TOLERANCE = 0.07
"""Share by which published memory sizes of one device differ: GB or GiB, total or usable."""


PCIE_SHARING = 2.0
"""Host rate of a device that copies alone, relative to all at once.

A PCIe switch serves two devices: PCIe 4.0 x16 gives 21 to 25 GB/s to one alone, and about 12 to each if all copy.
"""


@frozen
class Box:
    """The node that is assumed around a device, with fields of Cluster.

    note: description for users.
    host_memory_bytes: of a typical node; None if that differs too much to assume a value.
    """

    gpus_per_node: int
    intra: Link
    inter: Link
    host_bytes_per_second: float
    host_optimizer_bytes_per_second: float
    note: str
    host_memory_bytes: int | None = None
    source: str = ""
    host_line_bytes_per_second: float | None = None

    def shared_by(self, count: int) -> "Box":
        """The box with ``count`` devices that copy at once.

        Fewer devices have larger shares of the PCIe roots, up to ``PCIE_SHARING`` times the rate of each when all copy. Between two
        devices without peer access, a ring is as fast as one transfer; four are hardly faster than all (2.8 GB/s on 4 x RTX
        4090, fitted to github.com/IST-DASLab/llmq's runs of DeepSpeed).
        """
        unused_factor = max(self.gpus_per_node / count, 1.0)
        host = self.host_bytes_per_second * min(unused_factor, PCIE_SHARING)
        if self.intra.fabric != "pcie_via_host" or count > 2:
            return replace(self, host_bytes_per_second=host)
        ring = max(self.intra.pair_bytes_per_second, self.intra.bytes_per_second)
        return replace(self, host_bytes_per_second=host, intra=replace(self.intra, bytes_per_second=ring))


def device_names() -> tuple[str, ...]:
    """Names of all shipped devices, which are those of their files."""
    return catalog.profile_stems("hardware")


def other_names() -> dict[str, dict[str, str]]:
    """Devices by other names. ``memory``: by memory size; ``aliases``: by another spelling."""
    return catalog.shipped("hardware", "names").mapping_with_keys(("memory", "aliases"))


def find_device(name: str) -> str | None:
    """The shipped device of that name or alias; None without one."""
    aliases = other_names()["aliases"]
    if alias := catalog.find(name, aliases):
        return aliases[alias]
    return catalog.find(name, device_names())


@cache
def find_measured_device(gpu: str, memory_gb: float | None = None) -> str | None:
    """The shipped device that published measurements call ``gpu``, with the memory (GB) that they state, if any.

    Remarks in parentheses, the vendor, and words that only narrow a chip down (``SXM4``, ``40GB``) are optional; a whole alias
    names its device. None if no device of that chip has that memory: a wrong device is worse than none.
    """
    words = _VENDORS.sub(" ", _REMARK.sub(" ", gpu)).replace("-", " ").split()
    if memory_gb is None and (exact := find_device(" ".join(words))):
        return exact
    chip_words = [word for word in words if not _VARIANT_WORD.fullmatch(word)]
    name = " ".join(chip_words)
    stem = find_device(name) or next((item for item in device_names() if _chip(item) == catalog.normalized_name(name)), None)
    if stem is None:
        return None
    sizes = [float(match[1]) for word in words if (match := _SIZE.fullmatch(word))]
    stated_gb, pcie = memory_gb or next(iter(sizes), None), "pcie" in (word.lower() for word in words)
    family = [item for item in device_names() if _chip(item) == _chip(stem)]
    if any(("pcie" in item) != ("pcie" in stem) for item in family):
        family = [item for item in family if ("pcie" in item) == (pcie or "pcie" in stem)]
    if stated_gb is None:
        return stem if stem in family else family[0]
    deviations = {item: abs(load_device(item)[0].memory_bytes / GIB / stated_gb - 1) for item in family}
    nearest = min(deviations, key=lambda item: (deviations[item], item != stem))
    return nearest if deviations[nearest] <= MEMORY_TOLERANCE else None


def _chip(stem: str) -> str:
    """A device's name without words that narrow it down: ``a100`` of ``a100-pcie-80gb``."""
    return catalog.normalized_name("-".join(word for word in stem.split("-") if not _VARIANT_WORD.fullmatch(word)))


def unknown_device(value: str, name: str) -> InputError:
    """The error for an unknown device."""
    if _SLICE.search(name):
        law = "a MIG slice has a share of its GPU's compute, memory and bandwidth, and shipped profiles are of whole GPUs"
        return InputError(value, law, "measure the slice with strategist profile -o slice.yaml, and pass that file")
    names, do = device_names(), "describe it in a cluster file and pass its path (strategist hardware list: all names)"
    return catalog.unknown(value, f"no device is named {name!r}", name, (*names, *other_names()["aliases"]), do, listed=names)


def device_data(stem: str) -> tuple[yaml_file.Document, dict[str, Any], dict[str, Any]]:
    """A shipped hardware file, with the fields of its device and of its box; quantities are numbers."""
    document = catalog.shipped("hardware", stem)
    document.mapping_with_keys(("device", "box"))
    return document, quantities(document, ("device",)), quantities(document, ("box",))


def load_device(stem: str) -> tuple[Device, Box]:
    """A shipped device and its box.

    Raises:
        FileError: the file is invalid; with the position.
    """
    document, device, box = device_data(stem)
    return (
        catalog.decoded(Device, document, device, "device", ("device",)),
        catalog.decoded(Box, document, box, "box", ("box",)),
    )


def quantities(document: yaml_file.Document, key_path: yaml_file.KeyPath) -> dict[str, Any]:
    """The mapping at ``key_path`` with quantities (texts with a unit) as numbers; the field's name determines the unit.

    Raises:
        FileError: a quantity without a number or unit.
    """
    data = {}
    for key, value in document.mapping(key_path).items():
        value_path = [*key_path, key]
        if isinstance(value, dict) and key != "peak_flops":
            data[key] = quantities(document, value_path)
        elif isinstance(value, dict):
            data[key] = {name: _quantity(document, [*value_path, name], key, item) for name, item in value.items()}
        else:
            data[key] = _quantity(document, value_path, key, value)
    return data


def _quantity(document: yaml_file.Document, key_path: yaml_file.KeyPath, field: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _in_range(document, key_path, field, value)
    if not isinstance(value, str):
        return value
    try:
        for suffix, unit_sizes in _UNITS:
            if field.endswith(suffix):
                return _in_range(document, key_path, field, units.parse_quantity(value, unit_sizes, field))
        return units.parse_memory_bytes(value, field) if field.endswith("_bytes") else value
    except StrategistError as error:
        raise document.error(key_path, str(error)) from None


def _in_range(document: yaml_file.Document, key_path: yaml_file.KeyPath, field: str, value: float) -> float:
    """The value, if it is in range: rates, sizes and times above 0, efficiencies at most 1."""
    if field.endswith(("_per_second", "_bytes", "_seconds", "_flops", "_watts", "efficiency")) and value <= 0:
        raise document.error(key_path, f"{field} {value} must be above 0; correct it")
    if field.endswith("efficiency") and value > 1:
        raise document.error(key_path, f"{field} {value} must be at most 1; write a share")
    return value
