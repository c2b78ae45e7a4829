"""Host memory: bytes per node that offload takes."""

from math import log

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.cost.candidate_arrays import Floats
from strategist.cost.memory_context import MemoryContext
from strategist.cost.model_states import Stage


def host_memory(stage: Stage, c: MemoryContext, cluster: Cluster) -> Floats:
    """Bytes per node of all offloaded model states, and of offloaded activations of the first ``stage``."""
    return _states(c, cluster) + _activations(stage, c, cluster)


def _activations(stage: Stage, c: MemoryContext, cluster: Cluster) -> Floats:
    """Bytes of offloaded activations of the micro-batches in flight; all devices of a node count as ``stage``. torch rounds
    page-locked blocks up to powers of two (``CachingHostAllocator``), on average by 1 / ln 2.
    """
    saved = stage.in_flight * stage.layers * c.layer.saved_bytes * cluster.gpus_per_node
    return np.where(c.v.activations_away, saved / log(2), 0.0)


def _states(c: MemoryContext, cluster: Cluster) -> Floats:
    """Bytes of offloaded model states: all of them, or with ``optimizer`` those that the host updates, with pinned copies of the
    transferred parameters and gradients (arXiv 2101.06840). A frozen base is not updated. Streamed stages add a copy in the
    compute type, unless they are stored in it or smaller, and the inputs of all layers for one round of micro-batches.
    """
    per, v = c.per, c.v
    updated_states = (per.trained if per.frozen else 1.0) * (4.0 + per.gradient + per.optimizer)
    all_states = updated_states + (per.stored if per.frozen else 0.0)
    parameters_per_node = c.model.parameters * v.dp_replicate / cluster.nodes
    offloaded = np.where(v.offload_all, all_states, np.where(v.offload_optimizer, updated_states, 0.0))
    compute_copy = per.gathered if per.stored > per.gathered else 0.0
    layer_inputs = np.where(v.streamed, c.model.layers * c.layer.input_bytes * v.round_batches, 0.0)
    return parameters_per_node * np.where(v.streamed, all_states + compute_copy, offloaded) + layer_inputs
