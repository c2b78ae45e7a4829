"""Facts: values of a situation by vocabulary name, for the expressions of cards."""

from typing import TYPE_CHECKING, Any

from strategist.contract.cluster import Cluster
from strategist.contract.estimate import Estimate
from strategist.contract.layout import OBSERVED_AXES
from strategist.contract.model import ModelShape
from strategist.contract.outcome import EVIDENCE_OUTCOMES
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.cost.model_states import model_state_bytes, state_bytes
from strategist.cost.training_time import checkpoint_bytes
from strategist.expr.columns import row_of

if TYPE_CHECKING:
    from strategist.contract.measurement import Measurement


def situation_facts(model: ModelShape, cluster: Cluster, workload: Workload) -> dict[str, Any]:
    """Facts of model, workload, device and cluster. ``cluster.host_memory_bytes`` is None (unknown) if it was not given."""
    device = cluster.device
    per = state_bytes(model, workload)
    layers = model.parameters - model.embedding_parameters - model.head_parameters
    sizes = ("layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size", "vocab_size", "parameters", "active_parameters")
    shapes = ("tied_embeddings", "attention_sinks", "attended_width", "rotary_size", "learned_positions", "sliding_window")
    words = ("qkv_bias", "qk_norm", "rope_theta", "norm_epsilon")
    settings = ("seq_len", "global_batch", "precision", "optimizer", "train", "lora_rank", "document_tokens", "tokens_per_step")
    return {
        **{f"model.{name}": getattr(model, name) for name in (*sizes, *shapes, *words)},
        "model.parameter_bytes": int(model.parameters * per.gathered),
        "model.state_bytes": int(model_state_bytes(model, workload)),
        "model.checkpoint_bytes": checkpoint_bytes(model, workload),
        "model.layer_bytes": int(layers * per.gathered / model.layers),
        "model.experts": model.moe.experts if model.moe else 0,
        "model.experts_per_token": model.moe.experts_per_token if model.moe else 0,
        "model.expert_ffn_size": model.moe.expert_ffn_size if model.moe else 0,
        "model.shared_experts": model.moe.shared_experts if model.moe else 0,
        "model.shared_expert_gate": model.moe.shared_expert_gate if model.moe else False,
        "model.first_dense_layers": model.moe.first_dense_layers if model.moe else 0,
        "model.router_score": model.moe.router_score if model.moe else "softmax",
        "model.is_moe": model.moe is not None,
        "model.is_mla": model.mla is not None,
        **{f"workload.{name}": getattr(workload, name) for name in settings},
        "device.kind": device.kind,
        "device.memory_bytes": device.memory_bytes,
        "device.usable_memory_bytes": device.usable_memory_bytes,
        "device.peak_flops": device.peak(workload.compute_dtype),
        "device.bf16_flops": device.peak_flops.get("bf16", 0.0),
        "device.float8_flops": device.peak_flops.get("fp8", 0.0),
        "device.memory_bytes_per_second": device.memory_bytes_per_second,
        "cluster.nodes": cluster.nodes,
        "cluster.gpus_per_node": cluster.gpus_per_node,
        "cluster.devices": cluster.devices,
        "cluster.intra_node_bytes_per_second": cluster.intra.bytes_per_second,
        "cluster.inter_node_bytes_per_second": cluster.inter.bytes_per_second,
        "cluster.intra_node_latency_seconds": cluster.intra.latency_seconds,
        "cluster.inter_node_latency_seconds": cluster.inter.latency_seconds,
        "cluster.intra_node_fabric": cluster.intra.fabric,
        "cluster.inter_node_fabric": cluster.inter.fabric,
        "cluster.mean_seconds_between_failures": cluster.seconds_between_failures,
        "cluster.storage_bytes_per_second": cluster.storage_bytes_per_second,
        "cluster.host_memory_bytes": cluster.host_memory_bytes,
        "cluster.host_bytes_per_second": cluster.host_bytes_per_second,
    }


def estimate_facts(estimate: Estimate) -> dict[str, Any]:
    """Facts of a priced candidate."""
    names = ("step_seconds", "tokens_per_second", "mfu", "peak_memory_bytes", "host_memory_bytes_per_node", "comm_ratio")
    facts = {f"estimate.{name}": getattr(estimate, name) for name in (*names, "exposed_comm_ratio")}
    bubble = estimate.time.bubble / estimate.step_seconds
    reserved = {"estimate.reserved_memory_bytes": estimate.peak_memory_bytes + estimate.memory.cache}
    return facts | reserved | {"estimate.bubble_ratio": bubble, "estimate.even_stages": not estimate.pipeline_layers}


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Facts of a plan: those of its situation, its candidate and its price."""
    known = situation_facts(plan.model, plan.cluster, plan.workload) | estimate_facts(plan.estimate)
    return known | row_of(plan.candidate, plan.accumulation)


def observed_facts(measurement: "Measurement", cluster: Cluster) -> dict[str, Any]:
    """Facts of a measured trial; None (unknown) for what was not measured."""
    names = ("step_seconds", "step_seconds_spread", "tokens_per_second", "mfu", "comm_ratio", "exposed_comm_ratio")
    shares = ("bubble_ratio", "rank_imbalance", "stage_imbalance")
    total, exposed, peaks = measurement.comm_ratio, measurement.exposed_comm_ratio, measurement.peak_memory_bytes
    by_axis = measurement.exposed_comm_ratio_by_axis
    peak = max(peaks, default=None)
    return {
        **{f"observed.{name}": getattr(measurement, name) for name in (*names, *shares)},
        "observed.outcome": measurement.outcome.value if measurement.outcome in EVIDENCE_OUTCOMES else None,
        **{f"observed.exposed_{axis}_comm_ratio": None if by_axis is None else by_axis.get(axis, 0.0) for axis in OBSERVED_AXES},
        "observed.overlap_ratio": 1 - exposed / total if total and exposed is not None else None,
        "observed.peak_memory_bytes": peak,
        "observed.peak_memory_ratio": None if peak is None else peak / cluster.device.usable_memory_bytes,
        "observed.memory_imbalance": None if peak is None else peak * len(peaks) / sum(peaks) - 1,
    }
