"""Setup: a config file completed for given devices, as a situation and a candidate that can be priced."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from strategist.contract.cluster import Cluster
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import Candidate, Knobs, KnobValue, show_value
from strategist.contract.layout import AXES, DEGREES, Layout
from strategist.contract.loss import Loss
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.model import ModelShape
from strategist.contract.request import Request
from strategist.contract.settings import SETTING_NAMES, value_of, with_settings
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.formats.finding_codes import finding
from strategist.formats.memory_effects import COMPUTE_TYPE, IMAGE_ENCODER, LAUNCHER, QUANTIZED_WEIGHTS
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source
from strategist.frozen import frozen
from strategist.profiles.model_types import TEXT_PART_ONLY
from strategist.profiles.resolved_model import BITSANDBYTES_4_BIT
from strategist.profiles.situation import Situation, situation

OPEN_CODES = ("FMT-003", "FMT-011")
"""Codes of findings that a given value settles."""


@frozen
class GivenValues:
    """Values that the user gives; they override the file.

    workload, settings: given values only.
    gpus: None if the file states the devices.
    """

    gpus: str | None = None
    model: str | None = None
    host_memory_bytes: int | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, KnobValue] = field(default_factory=dict)


@frozen
class Setup:
    """A situation and a candidate in it, which need not be legal.

    assumed: settings and fields of the workload with values that neither the file nor an option states.

    The other fields are those of ParsedConfig.
    """

    situation: Situation
    candidate: Candidate
    entry_names: Mapping[str, str]
    findings: tuple[Diagnostic, ...]
    assumed: tuple[str, ...] = ()
    stage_layers: tuple[int, ...] = ()
    stack: Mapping[str, float | str | Loss | MemoryTraits] = field(default_factory=dict)


def _situation(source: Source, found: ParsedConfig, given: GivenValues, workload: Workload) -> Situation:
    """Model and devices, as given or else as the file names them."""
    cluster = found.cluster if given.gpus is None else None
    gpus = given.gpus if cluster is None else cluster.name
    if gpus is None:
        raise InputError("--gpus", f"is missing: {source.path} does not say which", "write e.g. --gpus 8x24GB")
    model = given.model or found.model
    if model is None:
        raise InputError(f"--model with {source.path}", f"is missing: {_unknown_model(source, found)}", "write e.g. --model 32b")
    shape = model if isinstance(model, ModelShape) else None
    name = model.name if isinstance(model, ModelShape) else model
    request = Request(model=name, gpus=gpus, host_memory_bytes=given.host_memory_bytes, workload=workload)
    try:
        return situation(request, shape, cluster)
    except InputError as error:
        if given.model is not None or error.value != f"--model {model}":
            raise
        raise InputError(f"the file's model {model}", error.law, f"{error.do}; or give --model") from None


def setup(source: Source, found: ParsedConfig, given: GivenValues) -> Setup:
    """The file's settings on the given devices.

    Raises:
        InputError: the model or the devices are not given, or the devices cannot hold the degrees.
    """
    stated = {**found.workload, **given.workload}
    known = _situation(source, found, given, Workload(**{name: value for name, value in stated.items() if name != "global_batch"}))
    given_entries = _given_entries(found, given)
    if known.request.workload.train != stated.get("train", known.request.workload.train):  # the weights' own type decides
        given_entries.add(found.entry_names.get("train"))
    remaining = (item for item in found.findings if item.code not in OPEN_CODES or item.entry not in given_entries)
    findings = [
        *remaining, *_override_findings(source, found, given, known.cluster), *_model_findings(source, known, found),
        *_precision_findings(source, known, stated.get("precision"), found),
    ]  # fmt: skip
    settings = {**found.settings, **given.settings}
    layout = _layout(settings, found, known.cluster)
    batches = _batches(stated.get("global_batch"), settings.get("micro_batch"), found.accumulation, layout)
    workload = replace(known.request.workload, global_batch=batches.global_batch)
    if batches.contradiction and layout.world_size == known.cluster.devices:
        findings.append(
            finding("FMT-004", batches.contradiction, "make the three agree", source, found.entry_names.get("global_batch", ""))
        )
    settings["micro_batch"] = batches.micro_batch
    findings += _merge_subgroup(source, settings, layout, found)
    others = {name: value for name, value in settings.items() if name not in (*DEGREES, "axis_order")}
    candidate = _with_pipeline_settings(with_settings(Candidate(layout=layout, knobs=Knobs()), others), settings)
    unstated = (*(() if "seq_len" in stated else ("seq_len",)), *batches.assumed, *found.unstated)
    unstated = tuple(name for name in dict.fromkeys(unstated) if name not in given.workload and name not in given.settings)
    unresolved = [name for name, entry in found.entry_names.items() if entry in found.unresolved and entry not in given_entries]
    findings += _assumption_findings(source, [name for name in unstated if name not in unresolved], candidate, workload)
    return Setup(
        situation=replace(known, request=replace(known.request, workload=workload)),
        candidate=candidate, entry_names=found.entry_names, findings=tuple(findings),
        assumed=tuple(dict.fromkeys((*unstated, *unresolved))),
        stage_layers=found.stage_layers, stack=found.stack,
    )  # fmt: skip


def _given_entries(found: ParsedConfig, given: GivenValues) -> set[str | None]:
    """Entries of the file that given values override."""
    return {
        *(found.entry_names.get(name) for name in (*given.workload, *given.settings)),
        *(found.model_entries if given.model else ()), *(LAUNCHER if given.gpus else ()),
    }  # fmt: skip


def _unknown_model(source: Source, found: ParsedConfig) -> str:
    """Why the file's model is unknown."""
    entry = source.entries.get(found.entry_names.get("model", ""))
    if entry:
        return f"no preset is known for {entry.name} {entry.value}"
    if unresolved := [name for name in found.model_entries if name in found.unresolved]:
        return f"the file states it by {', '.join(sorted(unresolved))}, whose values are known only where it runs"
    return "the file does not say which model"


def _override_findings(source: Source, found: ParsedConfig, given: GivenValues, cluster: Cluster) -> Iterator[Diagnostic]:
    """Findings on given values that differ from those of the file."""
    unknown = {item.entry for item in found.findings if item.code == "FMT-011"}
    for given_values, file_values in ((given.workload, found.workload), (given.settings, found.settings)):
        for name, value in given_values.items():
            if name in file_values and name in found.entry_names and name not in found.unstated and file_values[name] != value:
                if found.entry_names[name] in unknown:
                    continue
                both = f"{show_value(file_values[name])} in the file and {show_value(value)} in the command"
                message = f"{name} is {both}: the command's value is used"
                yield finding("FMT-008", message, "correct one of the two", source, found.entry_names[name])
    if found.devices is not None and found.devices != cluster.devices and not {*LAUNCHER} & {*found.unresolved}:
        message = f"devices are {found.devices} in the file and {cluster.devices} in the command: the command's number is used"
        yield finding("FMT-008", message, "correct one of the two", source, found.entry_names.get("devices", ""))


def _model_findings(source: Source, known: Situation, found: ParsedConfig) -> Iterator[Diagnostic]:
    """Findings on an image encoder without a price, and on weights that are quantized on disk."""
    encoder_is_found = IMAGE_ENCODER in (item.entry for item in found.findings)
    if not encoder_is_found and any(TEXT_PART_ONLY in note for note in known.notes):
        text = f"the image encoder of {known.request.model} is not priced: its weights and images take memory and time as well"
        yield finding("FMT-009", text, "leave room for it, and measure it", source, about=IMAGE_ENCODER)
    if not known.weight_note:
        return
    if known.request.workload.train == "qlora" and known.stored_weights == BITSANDBYTES_4_BIT:
        yield finding("FMT-003", known.weight_note, "name the model with weights in 16 bits for LoRA", source)
    else:
        yield finding("FMT-002", known.weight_note, "name the model with weights in 16 bits", source, about=QUANTIZED_WEIGHTS)


def _precision_findings(source: Source, known: Situation, stated: Any, found: ParsedConfig) -> Iterator[Diagnostic]:
    """A finding on a compute type that the devices do not have."""
    used = known.request.workload.precision
    if stated is not None and used != stated:
        text = f"{known.cluster.device.name} does not multiply {stated}, which is slow there or refused: {used} is priced"
        entry = found.entry_names.get("precision", "")
        yield finding("FMT-002", text, f"set {used}", source, entry, about=COMPUTE_TYPE)


def _assumption_findings(source: Source, names: Iterable[str], candidate: Candidate, workload: Workload) -> Iterator[Diagnostic]:
    """Findings on values that a price needs and that are neither stated nor given."""
    for name in names:
        value = value_of(candidate, name) if name in SETTING_NAMES else getattr(workload, name)
        text = f"the file does not state {name}: {show_value(value)} is assumed"
        yield finding("FMT-003", text, f"give {option(name, value)}, or another value", source)


def option(name: str, value: KnobValue) -> str:
    """Option of the command line that states a setting or a field of the workload."""
    return f"--fix {name}={show_value(value)}" if name in SETTING_NAMES else f"--{name.replace('_', '-')} {show_value(value)}"


def _layout(settings: Mapping[str, KnobValue], found: ParsedConfig, cluster: Cluster) -> Layout:
    """The degrees; the spare axis takes the remaining devices. Degrees that do not match the devices break a law later."""
    degrees = {name: int(settings.get(name, 1)) for name in DEGREES}
    order = tuple(str(settings["axis_order"]).split(".")) if "axis_order" in settings else AXES
    if found.spare and found.spare not in settings:
        others = math.prod(degrees[axis] for axis in AXES if axis != found.spare)
        degrees[found.spare] = max(1, cluster.devices // others)
    return Layout(**degrees, axis_order=order)


@frozen
class Batches:
    """Batch sizes, in sequences.

    global_batch, micro_batch: of a step and of a micro-batch.
    assumed: names of the sizes that are assumed.
    contradiction: how the stated values contradict each other; empty if they agree.
    """

    global_batch: int
    micro_batch: int
    assumed: tuple[str, ...] = ()
    contradiction: str = ""


def _batches(global_batch: Any, micro_batch: Any, accumulation: int | None, layout: Layout) -> Batches:
    """Batch sizes from the stated values. Without a global batch, the accumulation is as stated, or equal to pp."""
    ranks = layout.data_ranks
    if global_batch is None:
        assumed = (*(("global_batch",) if accumulation is None else ()), *(("micro_batch",) if micro_batch is None else ()))
        micro_batch, steps = int(micro_batch or 1), accumulation or layout.pp
        return Batches(global_batch=ranks * micro_batch * steps, micro_batch=micro_batch, assumed=assumed)
    both_stated = micro_batch is not None and accumulation is not None
    micro_batch = int(micro_batch or max(1, global_batch // (ranks * (accumulation or 1))))
    if both_stated and global_batch != ranks * micro_batch * (accumulation or 1):
        total = ranks * micro_batch * (accumulation or 1)
        product = f"{ranks} data ranks x micro_batch {micro_batch} x accumulation {accumulation} = {total}"
        return Batches(
            global_batch=global_batch, micro_batch=micro_batch, contradiction=f"{product}, and global_batch is {global_batch}"
        )
    return Batches(global_batch=int(global_batch), micro_batch=micro_batch)


def _merge_subgroup(source: Source, settings: dict[str, KnobValue], layout: Layout, found: ParsedConfig) -> tuple[Diagnostic, ...]:
    """Replaces resharding to a subgroup of all ranks that share parameters by plain resharding, which is the same.

    torch's fully_shard does so if the sizes are equal. DeepSpeed, whose files state the size, also treats a larger size as that
    of all ranks (utils/groups.py: ``_create_zero_param_parallel_group``), and keeps the second shard in addition to the first.
    """
    size, ranks = int(settings.get("reshard_group_size", 1)), layout.fsdp_ranks
    entry = found.entry_names.get("reshard_group_size", "")
    named = entry.endswith("zero_hpz_partition_size")
    if settings.get("reshard_after_forward") != "subgroup" or not (size == ranks or (named and size > ranks)):
        return ()
    settings |= {"reshard_after_forward": True, "reshard_group_size": 1}
    text = f"{entry} {size}: the {ranks} ranks are one group; the second shard of the weights is not priced"
    return (finding("FMT-002", text, f"remove {entry}: it shortens gathers between nodes only", source, entry),) if named else ()


def _with_pipeline_settings(candidate: Candidate, settings: Mapping[str, KnobValue]) -> Candidate:
    """The candidate with the settings that a pipeline leaves no choice of."""
    if candidate.layout.pp > 1 and "no_sync" not in settings:
        return with_settings(candidate, {"no_sync": True})
    return candidate
