"""Time of a whole training: steps, checkpoints and failures."""

from math import ceil, exp, expm1

from strategist.contract.answer import Training
from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.cost.model_states import state_bytes

MAX_EXPONENT = 300.0
"""Largest exponent that is evaluated; beyond it exp overflows, and a training would not finish anyway."""


def training(plan: Plan, tokens: int) -> Training:
    """Time, price and energy of training on that many tokens, rounded up to whole steps; devices cost and draw power while they
    wait and repeat steps.
    """
    estimate, steps = plan.estimate, ceil(tokens / plan.workload.tokens_per_step)
    price, joules = estimate.price_per_step, estimate.energy_joules_per_step
    seconds = expected_seconds(estimate.step_seconds, steps, plan.candidate.options, plan.cluster, plan.model, plan.workload)
    paid_steps = seconds / estimate.step_seconds
    return Training(
        steps=steps,
        seconds=seconds,
        price=None if price is None else paid_steps * price,
        energy_joules=None if joules is None else paid_steps * joules,
        failures=seconds / plan.cluster.seconds_between_failures,
        productive_ratio=steps / paid_steps,
    )


def checkpoint_bytes(model: ModelShape, workload: Workload) -> int:
    """Bytes of a checkpoint: parameters in fp32 and optimizer states, of adapters only if the rest is frozen."""
    per = state_bytes(model, workload)
    return int(model.parameters * (4.0 + per.optimizer) * (per.trained if per.frozen else 1.0))


def expected_seconds(
    step_seconds: float, steps: int, options: Options, cluster: Cluster, model: ModelShape, workload: Workload
) -> float:
    """Expected seconds of ``steps`` steps with checkpoints and with failures at random moments.

    Work is done in segments of one checkpoint interval, each repeated from its start until it succeeds: Daly, A higher order
    estimate of the optimum checkpoint interval (doi.org/10.1016/j.future.2004.11.016), section 3. After a failure all ranks restart
    and read the last checkpoint; an unfinished copy is lost.
    """
    failure_seconds = cluster.seconds_between_failures
    size = checkpoint_bytes(model, workload)
    store_seconds = size / (cluster.nodes * cluster.storage_bytes_per_second)
    copy_seconds = size / (cluster.devices * cluster.host_bytes_per_second)
    exposed_seconds = store_seconds if options.checkpoint == "sync" else copy_seconds
    restart_seconds = cluster.restart_seconds + store_seconds + (0.0 if options.checkpoint == "sync" else store_seconds)
    interval_steps = min(options.checkpoint_interval, steps)
    interval_seconds = (
        failure_seconds
        * exp(min(restart_seconds / failure_seconds, MAX_EXPONENT))
        * expm1(min((interval_steps * step_seconds + exposed_seconds) / failure_seconds, MAX_EXPONENT))
    )
    return interval_seconds * steps / interval_steps
