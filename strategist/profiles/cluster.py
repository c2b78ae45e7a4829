"""Clusters by name: ``8x24GB``, ``64xH100``, ``16x8xH100``, ``local``, or a cluster file."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.contract.cluster import Cluster, Device
from strategist.errors import InputError
from strategist.files import yaml_file
from strategist.profiles import catalog, hardware, heterogeneous_clusters
from strategist.units import show_bytes

FORMS = "write 8x24GB, 8xRTX4090, 64xH100, 16x8xH100 (nodes x GPUs x device), local, or the path of a cluster file"
MAX_DIGITS = 6

_NAME = re.compile(r"[A-Za-z][\w-]{2,}")
_REORDERED = re.compile(r"\s*(?:([0-9]+)[\s*x]*)?([A-Za-z][\w -]*?)(?:\s*[*x]\s*([0-9]+))?\s*")
_COUNT_AND_DEVICE = re.compile(r"\s*([^x\s]+)\s*x\s*(?:([0-9]+)\s*x\s*)?(\S.*?)?\s*", re.IGNORECASE)
_EXAMPLES = {"16GB": "T4", "24GB": "RTX3090", "32GB": "V100-32GB", "48GB": "A6000", "80GB": "A100-80GB"}
_SEVERAL = re.compile(r"(?:[,;+&/]|\band\b)\s*[0-9]+\s*x", re.IGNORECASE)
_MEMORY = re.compile(r"([0-9]+)\s*Gi?B?", re.IGNORECASE)


def resolve_cluster(text: str, host_memory_bytes: int | None = None) -> Cluster:
    """The cluster that ``text`` describes. ``host_memory_bytes`` is per node; None if it was not given.

    Raises:
        InputError: the text describes no cluster; names the wrong part.
        FileError: the cluster file is invalid.
    """
    if text.strip().lower() == "local":
        cluster = _local()
    elif Path(text).suffix.lower() in (".yaml", ".yml"):
        cluster = _from_file(Path(os.path.expanduser(text)))
    else:
        cluster = _from_counts(text, host_memory_bytes)
    return cluster if host_memory_bytes is None else replace(cluster, host_memory_bytes=host_memory_bytes)


def scaled(cluster: Cluster, nodes: int, gpus_per_node: int) -> Cluster:
    """The cluster in another size; all nodes are like the slowest if they differ."""
    return replace(
        cluster, name=f"{nodes}x{gpus_per_node}x{cluster.device.name}", nodes=nodes, gpus_per_node=gpus_per_node, groups=()
    )


def _from_counts(text: str, host_memory_bytes: int | None) -> Cluster:
    value = f"--gpus {text.strip() or repr(text)}"
    match = _COUNT_AND_DEVICE.fullmatch(text)
    if match is None:
        if _NAME.fullmatch(text) and hardware.find_device(text) is None:
            raise hardware.unknown_device(value, text)
        raise InputError(value, "a count and a device are needed", f"{_reordered_hint(text)}{FORMS}")
    first, second, name = _parts(match)
    count = _count(value, first)
    per_node = None if second is None else _count(value, second)
    if not name:
        raise InputError(value, "the device is missing after the count", FORMS)
    device, box, assumed = _device(value, name)
    nodes, per_node = _nodes(value, count, box.gpus_per_node, device) if per_node is None else (count, per_node)
    notes = [*assumed, f"a node is assumed to be {per_node} x {device.name}: {box.note}; write a cluster file to change it"]
    if box.host_memory_bytes and host_memory_bytes is None:
        node_devices = max(per_node, box.gpus_per_node)
        host_memory_bytes = box.host_memory_bytes * node_devices // box.gpus_per_node
        memory_note = f"a node of {node_devices} x {device.name} has {show_bytes(host_memory_bytes)} of host memory"
        notes.append(f"{memory_note}; no plan needs more; --host-memory gives another value")
    cluster = _assemble("".join(text.split()), nodes, per_node, device, box, tuple(notes))
    return replace(cluster, host_memory_bytes=host_memory_bytes)


def _parts(match: re.Match[str]) -> tuple[str, str | None, str | None]:
    """Count, devices of a node if they are given, and device of ``2x8xH100``.

    A device's own name may have an x after digits (``2x7900XTX``): all behind the first x is the device if that is known, or if
    the second x is written in the other case and the rest is not known.
    """
    count, per_node, name = match.groups()
    if per_node is None or not name or _is_device(name):
        return count, per_node, name
    rest = match.string[match.end(1) :].strip()
    whole = rest[1:].strip()
    second_separator = whole[len(per_node) :].strip()[0]
    return (count, None, whole) if _is_device(whole) or second_separator != rest[0] else (count, per_node, name)


def _is_device(name: str) -> bool:
    return _MEMORY.fullmatch(name) is not None or hardware.find_device(name) is not None


def _reordered_hint(text: str) -> str:
    """``did you mean 8xA100? Else `` for a count and a device in another order or form, such as ``8 A100``; otherwise empty."""
    match = _REORDERED.fullmatch(text)
    if match is None or hardware.find_device(match[2]) is None:
        return ""
    return f"did you mean {int(match[1] or match[3] or 1) or 1}x{''.join(match[2].split())}? Else "


def _count(value: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        do = f"{_reordered_hint(value.removeprefix('--gpus '))}{FORMS}"
        raise InputError(value, f"{text} is not a positive whole number of devices", do)
    if len(text) > MAX_DIGITS:
        raise InputError(value, f"a count has at most {MAX_DIGITS} digits", "ask for fewer devices")
    return int(text)


def _device(value: str, name: str) -> tuple[Device, hardware.Box, tuple[str, ...]]:
    """A device by name or by memory size, its box, and notes on what was assumed."""
    if stem := hardware.find_device(name):
        return *hardware.load_device(stem), ()
    memory = _MEMORY.fullmatch(name)
    sizes = hardware.other_names()["memory"]
    if memory is None and _SEVERAL.search(name):
        do = "describe them in a cluster file with a group for each (examples/cluster-unlike-nodes.yaml), and pass its path"
        raise InputError(value, "names several kinds of devices, and a count takes one", do)
    if memory is None:
        if f"{name}GB" in sizes:
            raise InputError(value, f"no device is named {name!r}", f"did you mean {name}GB? Else {FORMS}")
        raise hardware.unknown_device(value, name)
    size = f"{memory[1]}GB"
    if size not in sizes:
        do = f"name the device (strategist hardware list), describe it in a cluster file, or take one of {', '.join(sizes)}"
        raise InputError(value, f"no device is assumed for {size}", do)
    device, box = hardware.load_device(sizes[size])
    other = f"name another device to change it, as in 8x{_EXAMPLES.get(size, 'H100-SXM')}"
    return device, box, (f"{size} is resolved to {device.name}; {other}",)


def _nodes(value: str, count: int, size: int, device: Device) -> tuple[int, int]:
    """Nodes and devices per node for a plain number of devices: whole boxes, or part of one."""
    if count <= size:
        return 1, count
    if count % size:
        lower, higher = count // size * size, (count // size + 1) * size
        raise InputError(
            value, f"{device.name} comes {size} to a node, and {count} is not a multiple of {size}",
            f"take {lower} or {higher}, or write nodes x GPUs x device, as in {higher // size}x{size}x{device.name}",
        )  # fmt: skip
    return count // size, size


def _assemble(name: str, nodes: int, per_node: int, device: Device, box: hardware.Box, assumed: tuple[str, ...]) -> Cluster:
    box = box.shared_by(per_node)
    return Cluster(
        name=name,
        nodes=nodes,
        gpus_per_node=per_node,
        device=device,
        intra=box.intra,
        inter=box.inter,
        host_bytes_per_second=box.host_bytes_per_second,
        host_optimizer_bytes_per_second=box.host_optimizer_bytes_per_second,
        host_line_bytes_per_second=box.host_line_bytes_per_second,
        assumed=assumed,
    )


def _local() -> Cluster:
    """This machine: its measured profile if that still matches the hardware, else the detected devices with shipped figures."""
    from strategist.profiles import local_machine

    detected, path = _detected(), local_machine.profile_path()
    if not path.is_file():
        return replace(
            detected, assumed=(*detected.assumed, "the figures are not this machine's own: strategist profile measures them")
        )
    measured = _from_file(path)
    if (measured.device.name, measured.gpus_per_node) == (detected.device.name, detected.gpus_per_node):
        return replace(measured, name="local", assumed=(f"measured on this machine: {path}", *measured.assumed))
    measured_devices = f"{measured.gpus_per_node} x {measured.device.name}"
    return replace(
        detected,
        assumed=(*detected.assumed, f"{path} was measured with {measured_devices} and is not used: strategist profile again"),
    )


def _detected() -> Cluster:
    """The devices of this machine: its GPUs, otherwise one CPU rank per core."""
    from strategist.profiles import local_machine

    value, memory = "--gpus local", local_machine.host_memory_bytes()
    if gpus := local_machine.gpu_names():
        if len(set(gpus)) > 1:
            kinds = ", ".join(sorted(set(gpus)))
            raise InputError(
                value, f"the GPUs here differ ({kinds}), and a plan needs equal ones", "describe some of them in a cluster file"
            )
        stem = hardware.find_device(gpus[0])
        if stem is None:
            raise hardware.unknown_device(value, gpus[0])
        device, box = hardware.load_device(stem)
        count, note = len(gpus), f"this machine has {len(gpus)} x {gpus[0]}; links are those of a typical box: {box.note}"
    else:
        device, box = hardware.load_device("cpu")
        count = local_machine.cores()
        overhead = device.memory_bytes - device.usable_memory_bytes
        share = memory // count
        device = replace(device, memory_bytes=share, usable_memory_bytes=max(share - overhead, share // 2))
        note = f"no GPU was found: {count} CPU ranks, one per core, with {show_bytes(share)} each"
    return replace(_assemble("local", 1, count, device, box, (note,)), host_memory_bytes=memory)


_BOX_FIELDS = (
    "gpus_per_node", "intra", "inter", "host_bytes_per_second", "host_optimizer_bytes_per_second", "host_line_bytes_per_second",
)  # fmt: skip
_LINE_FIELDS = ("line_bytes_per_second", "in_switch", "reduce_bytes_per_second", "meshed_devices")
"""Fields that belong to the link of the box, and not to another link that a cluster file describes."""
_GROUP_KEYS = (
    "nodes", "device", "speed", "intra", "inter",
    "host_bytes_per_second", "host_optimizer_bytes_per_second", "host_line_bytes_per_second",
)  # fmt: skip
_FILE_KEYS = (
    "groups", "name", "device", "nodes", "gpus_per_node", "intra", "inter",
    "host_bytes_per_second", "host_optimizer_bytes_per_second", "host_line_bytes_per_second", "host_memory_bytes", "source",
    "node_seconds_between_failures", "restart_seconds", "storage_bytes_per_second", "devices_share_one_gpu",
)  # fmt: skip


def _from_file(path: Path) -> Cluster:
    """A cluster from a file: equal nodes, or ``groups`` of nodes that share the other fields."""
    document = yaml_file.load(path)
    document.mapping_with_keys(_FILE_KEYS)
    data = hardware.quantities(document, ())
    if "groups" not in data:
        return _equal_nodes(document, data, (), path)
    if "nodes" in data:
        raise document.error(["nodes"], "the groups say how many nodes there are: leave nodes out")
    entries = data.pop("groups")
    if not isinstance(entries, list) or not entries:
        raise document.error(["groups"], "groups is a list of kinds of nodes; write e.g. - {nodes: 2, device: H100}")
    members = [_group(document, index, data, path) for index in range(len(entries))]
    try:
        return heterogeneous_clusters.join_clusters(data.get("name", path.stem), members)
    except InputError as error:
        raise document.error(["groups"], str(error)) from None


def _group(document: yaml_file.Document, index: int, shared: dict[str, Any], path: Path) -> tuple[Cluster, float]:
    """The nodes of one group as a cluster of their own, and their relative speed."""
    key_path = ("groups", index)
    document.mapping_with_keys(_GROUP_KEYS, key_path)
    group_fields = hardware.quantities(document, key_path)
    speed = group_fields.pop("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, int | float):
        raise document.error([*key_path, "speed"], f"speed {speed!r} is not a number from 0 to 1; write e.g. 0.8")
    for fabric in ("intra", "inter"):
        if isinstance(group_fields.get(fabric), dict):
            group_fields[fabric] = {**shared.get(fabric, {}), **group_fields[fabric]}
    return _equal_nodes(document, {**shared, **group_fields}, key_path, path), float(speed)


def _equal_nodes(document: yaml_file.Document, data: dict[str, Any], key_path: yaml_file.KeyPath, path: Path) -> Cluster:
    """A cluster of equal nodes. ``device`` is a name, or a name with other fields; missing fields come from the device's box."""
    data.pop("source", None)
    device, box = _file_device(document, data.get("device"), key_path)
    fields: dict[str, Any] = {"name": path.stem, "nodes": 1, **{key: box[key] for key in box if key in _BOX_FIELDS}, **data}
    fields.pop("source", None)
    fields["device"] = device
    for fabric in ("intra", "inter"):
        if isinstance(data.get(fabric), dict):
            fields[fabric] = {**_box_link(box.get(fabric, {}), data[fabric]), **data[fabric]}
    assumed_fields = [key for key in ("gpus_per_node", "intra", "inter", "host_bytes_per_second") if key in box and key not in data]
    if assumed_fields:
        fields["assumed"] = [f"{path.name} leaves {', '.join(assumed_fields)} to the typical box: {box['note']}"]
    return catalog.decoded(Cluster, document, fields, path.name, key_path)


def _box_link(box_link: dict[str, Any], file_link: dict[str, Any]) -> dict[str, Any]:
    """Fields of a box's link that hold for a file's ``file_link``: no line's if that is named, no all-reduce rate if that has a
    rate.
    """
    omitted = _LINE_FIELDS if "name" in file_link else ("reduce_bytes_per_second",) if "bytes_per_second" in file_link else ()
    return {key: value for key, value in box_link.items() if key not in omitted}


def _file_device(
    document: yaml_file.Document, device: Any, key_path: yaml_file.KeyPath = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a cluster file's device and of its box. If no device of that name is shipped, the file must hold all fields."""
    if device is None:
        raise document.error(key_path, "key 'device' is missing; add a device's name, or its name with other fields of it")
    device_fields = device if isinstance(device, dict) else {"name": device}
    name = device_fields.get("name")
    if not isinstance(name, str):
        raise document.error([*key_path, "device"], "device needs a name; add it")
    stem = hardware.find_device(name)
    if stem is None and not isinstance(device, dict):
        raise document.error([*key_path, "device"], str(hardware.unknown_device(f"device {name}", name)))
    if stem is None:
        return device_fields, {}
    _, shipped, box = hardware.device_data(stem)
    return {**shipped, **device_fields, "name": shipped["name"]}, box
