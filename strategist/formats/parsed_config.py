"""Parsed config: the settings in another system's file, before the devices are known."""

from collections.abc import Mapping
from dataclasses import field

from strategist.contract.cluster import Cluster
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.contract.loss import Loss
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.model import ModelShape
from strategist.frozen import frozen


@frozen
class ParsedConfig:
    """Settings in a file, with the system's defaults for the others.

    settings: by bare name; a missing degree is 1, any other missing setting has torch's default.
    workload: fields of Workload.
    model: a name or path for :func:`strategist.profiles.models.resolve_model`, a shape, or None.
    spare: the axis that takes all devices that no other axis has; ``settings`` leaves it out. Empty for none.
    accumulation: micro-batches per step and data rank, if the file states these instead of the global batch.
    devices: their number, if the file states it.
    cluster: the cluster, if the file states it; used unless another is given.
    stage_layers: layers of each pipeline stage, if the file states them; the price may assume others.
    stack: fields of Stack that differ from the framework's profile.
    model_entries: names of entries that describe the model and whose values are known only at run time.
    entry_names: names of entries by setting or field of the workload, for findings to point at.
    unstated: settings and workload fields that the program decides elsewhere. Unless they are given, a price assumes the value in
        ``settings`` or ``workload``, if there is one.
    unresolved: names of entries whose values are known only at run time.
    """

    settings: Mapping[str, KnobValue] = field(default_factory=dict)
    workload: Mapping[str, int | str] = field(default_factory=dict)
    model: str | ModelShape | None = None
    spare: str = ""
    accumulation: int | None = None
    devices: int | None = None
    cluster: Cluster | None = None
    stage_layers: tuple[int, ...] = ()
    model_entries: tuple[str, ...] = ()
    stack: Mapping[str, float | str | Loss | MemoryTraits] = field(default_factory=dict)
    entry_names: Mapping[str, str] = field(default_factory=dict)
    unstated: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    findings: tuple[Diagnostic, ...] = ()
