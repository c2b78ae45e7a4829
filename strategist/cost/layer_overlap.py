"""Overlap within a layer: what is exposed of the collectives of tensor, context and expert parallelism."""

from dataclasses import replace

import numpy as np

from strategist.cost.calibration import Factors
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.comm import Collectives
from strategist.cost.compute import LayerSeconds
from strategist.cost.step_inputs import LayerInputs

CONTENTION = 0.16
"""Seconds that computation loses per second of concurrent collectives, which take multiprocessors and memory bandwidth: it takes
18.9 % longer on average (arXiv 2507.03114, on A100, H100, MI250).
"""

EPSILON = 1e-30
"""Avoids division by zero."""


def exposed_layer_links(inputs: LayerInputs, layer: LayerSeconds, factors: Factors, paired: Floats) -> tuple[Collectives, Floats]:
    """Collectives reduced to what is exposed of tensor, context and expert parallelism, and the share of a layer's computation that
    hides the rest, which cannot exceed that computation. Rings inside the node leave the ports between nodes to FSDP.
    """
    links, ring = inputs.links, _hidden_ring(inputs, layer)
    hidden = links.tp * (1 - factors.tensor) + links.ep * (1 - factors.expert)
    computing = layer.forward + layer.backward
    hidden_share = np.minimum(computing / np.maximum(hidden, EPSILON), 1.0)
    exposed = replace(
        links,
        tp=links.tp * (1 - (1 - CONTENTION) * (1 - factors.tensor) * hidden_share),
        cp=links.cp - (1 - CONTENTION) * ring,
        ep=links.ep * (1 - (1 - CONTENTION) * (1 - factors.expert) * hidden_share),
    )
    hidden = hidden_share * hidden
    if inputs.v.ep_overlap.any():
        exposed, hidden = _with_paired_passes(exposed, hidden, paired, inputs, layer, factors)
    on_ports = (1 - inputs.ports_free) * hidden + (1 - inputs.ring_ports_free) * ring
    return exposed, np.minimum(on_ports / computing, 1.0)


def _hidden_ring(inputs: LayerInputs, layer: LayerSeconds) -> Floats:
    """Seconds of a layer's ring that its attention hides. During each of cp blocks of attention the next keys and values arrive, or
    during the first block all of them. In the backward pass the gradients of one block travel beside the next (TransformerEngine,
    context_parallel.py: AttnFuncWithCPAndKVP2P; torch 2.13: _templated_ring_attention_backward).
    """
    v, compute, keys = inputs.v, inputs.layer, inputs.links.cp_keys
    if not keys.any():
        return np.zeros_like(keys)
    forward = layer.attention / (1 + compute.attention_backward)
    backward = compute.attention_backward * forward
    in_forward, in_backward = (np.minimum(keys, inputs.keys_share * attention) for attention in (forward, backward))
    gradients = np.minimum(keys, (v.cp - 1) / v.cp * backward - in_backward)
    return ((1 + compute.repeated) * in_forward + in_backward + np.maximum(gradients, 0.0)) * inputs.rates.overlaps


def _with_paired_passes(
    exposed: Collectives, hidden: Floats, paired: Floats, inputs: LayerInputs, layer: LayerSeconds, factors: Factors
) -> tuple[Collectives, Floats]:
    """``exposed`` collectives and ``hidden`` seconds of a layer with ``ep_overlap``: means over all micro-batches of a step, of
    whose passes a share is ``paired``.

    Where passes are paired, two of the four exchanges run beside the experts of the other micro-batch, two beside the rest of its
    layer (arXiv 2412.19437, figure 4; megatron/core/models/common/model_chunk_schedule_plan.py). Computation that hidden
    tensor-parallel collectives already run beside hides no exchange. Kernels of exchanges take multiprocessors (20 of 132,
    arXiv 2412.19437, section 3.2.2), which costs computation ``CONTENTION`` of their time.
    """
    links, computing = inputs.links, layer.forward + layer.backward
    free_share = 1 - np.minimum(links.tp * (1 - factors.tensor) / computing, 1.0)
    least, half = CONTENTION * links.ep / 2, links.ep / 2
    during_experts = np.maximum(half - free_share * layer.experts, least)
    during_others = np.maximum(half - free_share * (computing - layer.experts), least)
    gained = np.where(inputs.v.ep_overlap, paired * np.maximum(exposed.ep - during_experts - during_others, 0.0), 0.0)
    return replace(exposed, ep=exposed.ep - gained), np.minimum(hidden + gained, computing)


def paired_share(v: View) -> Floats:
    """Share of a step's passes that ``ep_overlap`` pairs. The first rank runs forward passes alone until the first backward pass
    arrives, one stage's pass more than without pairs, and as many backward passes in the end; without a pipeline one each
    (megatron/core/pipeline_parallel/schedules.py: ``get_pp_rank_microbatches``; DualPipeV has as many).
    """
    alone = 2 * (v.pp - 1) + (v.virtual_stages - 1) * v.pp + 1
    return np.maximum(1 - alone / (v.accumulation * v.virtual_stages), 0.0)
