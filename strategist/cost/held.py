"""What stages hold of activations, of one micro-batch and of all in flight."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.keeps import Keeps
from strategist.contract.stages import AWAY_WINDOW
from strategist.cost.states import Stage
from strategist.cost.view import Floats, View
from strategist.cost.work import LayerWork


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes of activations: ``saved`` of all micro-batches in flight, ``batch`` of one, ``others`` once one of them has gone back
    to the first layer of a stage, ``alone`` when the last of stages that go back one by one begins with its second; of a ``layer``
    on average, of the ``last`` and the ``first`` one where they differ, and of a stage's ``output`` that is kept. ``remade`` is
    what stays of one stage where each weight's gradient makes it again."""

    saved: Floats
    batch: Floats
    others: Floats
    alone: Floats
    layer: Floats
    last: Floats
    first: Floats
    output: Floats
    remade: Floats


def held_of(stage: Stage, layer: LayerWork, v: View, keeps: Keeps) -> Held:
    """Of a pipeline's stages torch keeps the outputs, too, until their gradients come (``PipelineStage.fwd_cache``), and where a
    rank has several in turn an input and a gradient arrive ahead."""
    each = np.where(
        v.recompute_alternate, layer.kept_bytes - stage.again * (layer.kept_bytes - layer.input_bytes), layer.saved_bytes
    )
    whole = stage.layers * each
    saved = _here(stage.in_flight * whole, layer, v)
    passed = stage.outputs + np.where(v.looped & ~v.one_by_one, 2.0, 0.0) if keeps.holds_outputs else np.zeros_like(v.tp)
    passed = np.where(v.streamed, 0.0, passed * layer.input_bytes)
    turn = whole / np.where(v.one_by_one, v.virtual_stages, 1.0)
    first = np.minimum(whole, np.where(v.recompute_alternate, layer.input_bytes, layer.saved_bytes))
    last = np.minimum(whole, np.where(v.recompute_alternate & (stage.again < 1), layer.kept_bytes, layer.saved_bytes))
    others = np.where(v.activations_away, saved, saved - turn + first)
    alone = (saved + passed) / v.virtual_stages - np.where(v.activations_away, 0.0, turn)
    again = np.where(v.recompute_alternate, stage.again, 1.0) * stage.layers / v.virtual_stages
    return Held(
        saved=saved + passed,
        batch=np.where(v.activations_away, 0.0, whole),
        others=others + passed,
        alone=alone,
        layer=np.where(v.activations_away, 0.0, each),
        last=np.where(v.activations_away, 0.0, last),
        first=np.where(v.activations_away, 0.0, first),
        output=np.where(stage.outputs > 0, layer.input_bytes, 0.0) if keeps.holds_outputs else np.zeros_like(v.tp),
        remade=np.where(layer.remade_bytes > 0, again * (layer.again_bytes + layer.remade_bytes), 0.0),
    )


def _here(saved: Floats, layer: LayerWork, v: View) -> Floats:
    """Of what a stage saves, the part on the device: all, or a window of layers; of such as are alike in pairs, of two pairs."""
    window = np.where(v.recompute_alternate, AWAY_WINDOW + 1, AWAY_WINDOW) * layer.saved_bytes
    return np.where(v.activations_away, np.minimum(saved, window), saved)
