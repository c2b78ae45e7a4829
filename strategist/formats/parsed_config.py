"""Parsed config: the settings in another system's file, before the devices are known."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from strategist.contract.cluster import Cluster
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.contract.loss import Loss
from strategist.contract.model import ModelShape


@dataclass(frozen=True, kw_only=True)
class ParsedConfig:
    """What is said, and what the system does by itself where its file says nothing.

    settings: by bare name; degrees that are left out are 1, all else is as torch has it.
    workload: fields of Workload.
    model: a name or path that :func:`strategist.profiles.models.resolve_model` knows, a shape, or None.
    spare: the axis that takes the devices which no other axis has, and that ``settings`` therefore leaves out; empty for none.
    accumulation: micro-batches of a step on a data rank, where the file says those instead of the step's sequences.
    devices: how many there are, where the file says it.
    cluster: which they are, where the file says that; it counts unless others are given.
    stage_layers: layers of each stage of a pipeline, where the file says them; the price may be of others.
    stack: facts of the framework that are otherwise than its profile says, as fields of Stack.
    model_entries: names of entries that describe the model, and whose values only a run knows.
    said: names of entries by setting or field of the workload, for findings to point at.
    unsaid: settings and fields of the workload that the program decides elsewhere; a price assumes them, by the value in
        ``settings`` or ``workload`` where there is one, unless they are given.
    nearest: settings that have no value for what the file says, and hold the nearest; no card is asked about them.
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
    stack: Mapping[str, float | str | Loss] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()
    findings: tuple[Diagnostic, ...] = ()
