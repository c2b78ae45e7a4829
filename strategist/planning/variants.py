"""Variants of a plan: other values of one setting, and candidates with one of them and the changes that follow from it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from strategist.contract.knobs import LOOPED, V_SHAPED, Candidate, KnobValue
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.options import OPTION_NAMES
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_CHOICES, value_of, with_settings

SHARING_AXES = ("dp_shard", "dp_replicate", "pp", "cp", "tp")
"""Axes that take or give devices when the degree of another axis changes, in the order of trying."""


def other_values(plan: Plan, name: str) -> Iterator[KnobValue]:
    """Other values to price: all of a closed setting; half and twice of a number."""
    value = value_of(plan.candidate, name)
    if name in OPTION_NAMES:
        return
    if name in SETTING_CHOICES:
        yield from (choice for choice in SETTING_CHOICES[name] if choice is not value and choice != value)
    elif isinstance(value, int):
        yield from (number for number in (value // 2, value * 2) if number >= 1 and number != value)


def variants(candidate: Candidate, name: str, value: KnobValue) -> Iterator[Candidate]:
    """Candidates with the value, and with the changes that follow from it."""
    for changed in _layouts_with(candidate, name, value) if name in DEGREES else (with_settings(candidate, {name: value}),):
        for consistent in _with_dependent_settings(changed, candidate.layout):
            if value_of(consistent, name) == value:
                yield consistent


def _layouts_with(candidate: Candidate, name: str, value: Any) -> Iterator[Candidate]:
    layout = candidate.layout
    only_changed = replace(candidate, layout=replace(layout, **{name: value}))
    if name in ("ep", "etp"):
        yield only_changed
        return
    devices = layout.world_size
    for axis in SHARING_AXES:
        other_devices = only_changed.layout.world_size // getattr(only_changed.layout, axis)
        if axis != name and devices % other_devices == 0:
            yield replace(candidate, layout=replace(only_changed.layout, **{axis: devices // other_devices}))
    other_axis = next(axis for axis in SHARING_AXES if axis != name)
    if devices % value == 0:  # the degree and data parallelism, where one other axis has not enough to give
        yield replace(
            candidate, layout=replace(layout, **{**dict.fromkeys(SHARING_AXES, 1), name: value, other_axis: devices // value})
        )


def _with_dependent_settings(candidate: Candidate, layout_before: Layout) -> Iterator[Candidate]:
    """The candidate, and with knobs that its layout or another knob asks for."""
    layout, knobs = candidate.layout, candidate.knobs
    yield candidate
    if knobs.float8_all_gather and (knobs.float8 != "tensorwise" or layout.fsdp_ranks == 1):
        candidate = with_settings(candidate, {"float8_all_gather": False})
    if layout.pp > 1 and not knobs.no_sync:
        candidate = with_settings(candidate, {"no_sync": True})
    if layout.pp == 1 and layout_before.pp > 1:
        candidate = with_settings(candidate, {"pp_virtual_stages": 1, "pp_schedule": "1f1b"})
    elif knobs.pp_schedule in (*LOOPED, *V_SHAPED) and knobs.pp_virtual_stages == 1:
        candidate = with_settings(candidate, {"pp_virtual_stages": 2})
    elif knobs.pp_schedule in ("gpipe", "1f1b") and knobs.pp_virtual_stages > 1:
        candidate = with_settings(candidate, {"pp_virtual_stages": 1})
    for tensor in _tensor_knobs(layout.tp, layout_before.tp):
        with_tensor = with_settings(candidate, tensor)
        yield with_tensor
        if knobs.reshard_after_forward == "subgroup" and (layout != layout_before or knobs.reshard_group_size == 1):
            sizes = (size for size in range(2, layout.fsdp_ranks) if layout.fsdp_ranks % size == 0)
            yield from (with_settings(with_tensor, {"reshard_group_size": size}) for size in sizes)


def _tensor_knobs(tp: int, tp_before: int) -> list[dict[str, bool]]:
    """Values of sequence and loss parallelism to try if tensor parallelism is switched on or off; no changes otherwise."""
    if (tp > 1) == (tp_before > 1):
        return [{}]
    if tp == 1:
        return [{"sequence_parallel": False, "loss_parallel": False}]
    return [{"sequence_parallel": True, "loss_parallel": loss} for loss in (True, False)]
