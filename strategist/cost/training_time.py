"""Time of a whole training: steps, checkpoints and failures."""

from math import ceil, exp, expm1

from strategist.contract.answer import Training
from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.cost.model_states import state_bytes

MOST = 300.0
"""The largest exponent that is looked at: e^300 times the work is never."""


def training(plan: Plan, tokens: int) -> Training:
    """What that many tokens take with the plan, the last step whole; devices cost, and draw power, while they wait and repeat."""
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
    """Parameters in fp32 and optimizer states, of adapters alone where the rest is frozen."""
    per = state_bytes(model, workload)
    return int(model.parameters * (4.0 + per.optimizer) * (per.trained if per.frozen else 1.0))


def expected_seconds(
    step_seconds: float, steps: int, options: Options, cluster: Cluster, model: ModelShape, workload: Workload
) -> float:
    """Time that so many steps take with their checkpoints, and with failures that come at any moment.

    Work is done in stretches of one checkpoint interval, each again from its start until it gets through: Daly, A higher order
    estimate of the optimum checkpoint interval (doi.org/10.1016/j.future.2004.11.016), section 3. After a failure everything is
    started again and reads the last checkpoint; a copy that was still being written is lost.
    """
    between = cluster.seconds_between_failures
    size = checkpoint_bytes(model, workload)
    stored = size / (cluster.nodes * cluster.storage_bytes_per_second)
    copied = size / (cluster.devices * cluster.host_bytes_per_second)
    waits = stored if options.checkpoint == "sync" else copied
    again = cluster.restart_seconds + stored + (0.0 if options.checkpoint == "sync" else stored)
    stretch = min(options.checkpoint_interval, steps)
    through = between * exp(min(again / between, MOST)) * expm1(min((stretch * step_seconds + waits) / between, MOST))
    return through * steps / stretch
