"""Grids: the legal combinations of knobs of a block."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from strategist.contract.knobs import CHOICES, PAIRED, ZERO_BUBBLE, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.settings import full_name
from strategist.expr.columns import Array
from strategist.frozen import frozen
from strategist.search.blocks import Grid, code_of, coded

Part = tuple[tuple[tuple[str, KnobValue], ...], ...]
"""Open settings of knobs that depend on each other: combinations of names and values."""


@frozen
class Traits:
    """What the laws between knobs depend on besides the knobs.

    all_stages: every device is a pipeline stage.
    alone: there is no data parallelism.
    one_pass: a step has one micro-batch.
    """

    tensor: bool
    pipelined: bool
    all_stages: bool
    experts: bool
    sharded: bool
    alone: bool
    one_pass: bool


def traits_of(layout: Layout, accumulation: int) -> Traits:
    """The traits of a layout and a number of micro-batches."""
    return Traits(
        tensor=layout.tp > 1,
        pipelined=layout.pp > 1,
        all_stages=layout.pp == layout.world_size,
        experts=layout.ep > 1,
        sharded=layout.fsdp_ranks > 1,
        alone=layout.data_ranks * layout.cp == 1,
        one_pass=accumulation == 1,
    )


@lru_cache(maxsize=512)  # spaces of other models, clusters and constraints have mostly the same grids
def grid_of(traits: Traits, parts: tuple[Part, ...]) -> Grid:
    """Cartesian product of the parts, restricted to legal combinations, as columns; values with named choices are stored as
    codes.
    """
    axes = [axis for axis, part in enumerate(parts) if len(part) > 1]
    shape = [len(parts[axis]) for axis in axes]
    codes: dict[str, Array] = {}
    spread: dict[str, Array] = {}
    axis_of: dict[str, int] = {}
    for number, part in enumerate(parts):
        along = [-1 if axis == number else 1 for axis in axes]
        for place, (key, _) in enumerate(part[0]):
            codes[key] = coded(key, tuple(row[place][1] for row in part))
            spread[key] = codes[key].reshape(along)
            axis_of[key] = number
    legal = np.broadcast_to(_together(traits, spread), shape)
    places = dict(zip(axes, np.nonzero(legal), strict=True)) if axes else {}
    rows = int(np.count_nonzero(legal))
    return {
        full_name(key): found.take(places[axis_of[key]]) if len(found) > 1 else found.repeat(rows) for key, found in codes.items()
    }


def _together(traits: Traits, grid: Mapping[str, Array]) -> Array:
    """Mask of combinations that keep the laws between knobs. Without data parallelism ``no_sync`` is legal only with offload
    ``all``, whose gradients can be postponed.
    """

    def chosen(knob: str, *values: KnobValue) -> Array:
        column, choices = grid[knob], CHOICES[knob]
        found = column == code_of(choices, values[0])
        for value in values[1:]:
            found = found | (column == code_of(choices, value))
        return np.asarray(found)

    streamed, no_sync = chosen("offload", "streamed"), chosen("no_sync", True)
    again = chosen("recompute", "full")
    at_once = chosen("pp_schedule", "gpipe") if traits.pipelined else again
    legal = ~streamed | (at_once & ~no_sync & again if traits.all_stages else False)
    if traits.pipelined and traits.alone:
        legal = legal & (no_sync == chosen("offload", "all"))
    compiled, halves = chosen("compile", True), chosen("pp_schedule", *ZERO_BUBBLE)
    legal = legal & (~(halves & (compiled | chosen("recompute", "selective"))) & (compiled | ~chosen("recompute", "budget")))
    if traits.sharded:
        legal = legal & (~halves | chosen("reshard_after_forward", False))
    legal = legal & (chosen("float8", "tensorwise") | ~chosen("float8_all_gather", True))
    legal = legal & (chosen("comm_hook", "none") | chosen("reduce_dtype", "fp32"))
    legal = legal & (streamed | ~chosen("async_optimizer_step", True))
    legal = legal & (~chosen("activation_offload", True) | ~(streamed | halves))
    if traits.tensor:
        legal = legal & (chosen("loss_parallel", True) | ~chosen("chunked_loss", True))
    if traits.experts:
        paired = chosen("recompute", "none", "selective") & (chosen("pp_schedule", *PAIRED) if traits.pipelined else True)
        legal = legal & (paired | ~chosen("ep_overlap", True))
    whole = streamed & ~chosen("async_optimizer_step", True)
    if not (traits.pipelined or traits.experts):  # where gradients are reduced in the backward pass
        whole = whole | (chosen("offload", "optimizer", "all", *(("none",) if traits.one_pass else ())))
    return np.asarray(legal & (whole | ~chosen("optimizer_in_backward", True)))
