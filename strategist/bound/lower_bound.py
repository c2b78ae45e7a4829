"""Lower bound of a step: compulsory work of each resource over its rate (a roofline); the busiest resource determines it."""

from strategist.bound.compulsory_work import BoundInputs, forward_flops_per_token, host_bytes, memory_bytes, step_flops
from strategist.bound.rates import Rates, line_rates, measured_rates
from strategist.bound.traffic import step_traffic
from strategist.contract.bound import Bound, ResourceSeconds
from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate
from strategist.contract.model import ModelShape
from strategist.contract.pipeline_stages import even_layers, rank_of_stage
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload


def lower_bound(model: ModelShape, cluster: Cluster, workload: Workload, candidate: Candidate, stack: Stack = NATIVE) -> Bound:
    """Lower bound in seconds of a step of one legal candidate, for any overlap and any kernels.

    A step takes at least as long as the busiest resource of the mean device. Work that some implementation might avoid is not
    counted. A measured step below the bound therefore means a wrong measurement or a wrong assumption.
    """
    s = BoundInputs(model=model, workload=workload, candidate=candidate, stack=stack)
    float8 = candidate.knobs.float8 != "none"
    rates = (rates_of(cluster, workload, stack, float8=float8) for rates_of in (line_rates, measured_rates))
    at_line, at_measured = (_resources(s, cluster, bound_rates) for bound_rates in rates)
    return Bound(at_line_rate=at_line, at_measured_rate=at_measured)


def _resources(s: BoundInputs, cluster: Cluster, rates: Rates) -> ResourceSeconds:
    traffic = step_traffic(s, cluster, rates)
    return ResourceSeconds(
        compute=_compute_seconds(s, cluster, rates),
        memory=memory_bytes(s) / rates.memory_bytes,
        intra_node=traffic.intra / rates.intra_bytes,
        inter_node=traffic.inter / rates.inter_bytes,
        host_link=host_bytes(s) / rates.host_bytes,
    )


def _compute_seconds(s: BoundInputs, cluster: Cluster, rates: Rates) -> float:
    """Seconds of matmuls and attention at peak rates, on the busiest pipeline rank.

    A pipeline rank starts when the first micro-batch has passed the ranks before it, and then does its own work; weight gradients
    may be computed at any later time. Where stages are not even, only the mean over devices is known.
    """
    matmul, attention = step_flops(s)
    mean = (matmul / rates.matmul_flops + attention / rates.attention_flops) / cluster.devices
    layout, knobs, options = s.candidate.layout, s.candidate.knobs, s.candidate.options
    is_even_split = options.pp_split == "even" and s.stack.memory_traits.split == "even" and not cluster.groups
    if layout.pp == 1 or knobs.offload == "streamed" or not is_even_split:
        return mean
    layers, head, attention_flops = forward_flops_per_token(s)
    head_seconds = (2.0 if s.frozen else 3.0) * head * s.tokens * s.micro_batches / (rates.matmul_flops * layout.tp)
    layer_seconds = (mean * layout.pp - head_seconds) / s.model.layers
    forward_seconds = (
        s.tokens / layout.tp * (layers / rates.matmul_flops + attention_flops / rates.attention_flops) / s.model.layers
    )
    layers_by_stage = even_layers(s.model.layers, layout.pp * knobs.pp_virtual_stages)
    ranks = [0.0] * layout.pp
    for stage, count in enumerate(layers_by_stage):
        ranks[rank_of_stage(knobs.pp_schedule, layout.pp, len(layers_by_stage), stage)] += count * layer_seconds
    ranks[rank_of_stage(knobs.pp_schedule, layout.pp, len(layers_by_stage), len(layers_by_stage) - 1)] += head_seconds
    return max(seconds + sum(layers_by_stage[:rank]) * forward_seconds for rank, seconds in enumerate(ranks))
