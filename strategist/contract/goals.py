"""Goals: what a study minimises (one or several objectives), and constraints on measurements."""

from dataclasses import dataclass
from math import inf

from strategist.contract.cluster import Cluster
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.request import OBJECTIVES
from strategist.errors import InputError, not_among

MILLION = 1e6
"""Number of tokens that costs are given for."""


@dataclass(frozen=True, kw_only=True)
class Goals:
    """``objectives`` are minimised, that of the request first; of several a study looks for the front: the trials that no other
    dominates.

    A plan must leave the share ``headroom`` of the device's memory free, reach ``least_tokens_per_second``, and cost no more than
    ``most_cost`` US dollars a million tokens, all as measured. One that misses any of these is neither the best nor on the front.
    """

    objectives: tuple[str, ...] = OBJECTIVES[:1]
    headroom: float = 0.0
    least_tokens_per_second: float | None = None
    most_cost: float | None = None

    def __post_init__(self) -> None:
        if not self.objectives:
            raise InputError("objectives", "are missing", f"name some of {', '.join(OBJECTIVES)}")
        for place, name in enumerate(self.objectives):
            if name not in OBJECTIVES:
                raise not_among(f"--pareto {name}", name, OBJECTIVES)
            if place and name == self.objective:
                raise InputError(f"--pareto {name}", "is the objective itself", "name others beside it")
            if name in self.objectives[:place]:
                raise InputError(f"--pareto {name}", "is named twice", "name it once")
        if not 0 <= self.headroom < 1:
            raise InputError(f"--headroom {self.headroom:g}", "must lie from 0 to below 1", "write e.g. 10%")
        for option, value in (("--least-tokens-per-second", self.least_tokens_per_second), ("--most-cost", self.most_cost)):
            if value is not None and not 0 < value < inf:
                raise InputError(f"{option} {value:g}", "must be above 0", "leave it out where all will do")

    def check(self, objective: str, cluster: Cluster) -> None:
        """Whether a request for ``objective`` on the cluster can have them.

        Raises:
            InputError: the request has another objective, or the price or power limit of a device is not known.
        """
        name = cluster.device.name
        if objective != self.objective:
            law = f"must begin with that of the request, {objective}"
            raise InputError(f"objectives {', '.join(self.objectives)}", law, "put it first")
        if "energy" in self.objectives and cluster.device.power_watts is None:
            wanted = "--objective energy" if self.objective == "energy" else "--pareto energy"
            law = f"the power limit of a {name} is unknown"
            raise InputError(wanted, law, "add power_watts to the device in a cluster file")
        priced = "--pareto cost" if "cost" in self.objectives[1:] else "--most-cost" if self.most_cost is not None else ""
        if cluster.device.price_per_hour is None and priced:
            raise InputError(priced, f"the price of a {name} is unknown", "add price_per_hour to the device in a cluster file")

    @property
    def objective(self) -> str:
        """That of the request, by which one trial is the best."""
        return self.objectives[0]

    @property
    def several(self) -> bool:
        """Whether there is more than one objective."""
        return len(self.objectives) > 1

    @property
    def of_steps(self) -> bool:
        """Whether the shortest step is the best."""
        return self.objectives in (("throughput",), ("cost",))

    @property
    def of_memory(self) -> str:
        """The option by which they want memory measured; empty where none does."""
        if "memory" in self.objectives:
            return "--objective memory" if self.objective == "memory" else "--pareto memory"
        return f"--headroom {self.headroom:g}" if self.headroom else ""

    def predicted(self, plan: Plan) -> tuple[float, ...]:
        """What the objectives minimise, as it was estimated."""
        estimate = plan.estimate
        return tuple(_spent(name, plan, estimate.step_seconds, estimate.peak_memory_bytes) for name in self.objectives)

    def measured(self, plan: Plan, measurement: Measurement) -> tuple[float, ...] | None:
        """What they minimise, as it was measured; None where one of them was not.

        Measured are step time and memory. On one cluster the cheapest step is the shortest; energy is the measured time at the
        power that the estimate draws in the mean of its step.
        """
        seconds, peak = measurement.step_seconds, peak_bytes(measurement)
        values = tuple(_spent(name, plan, seconds or inf, peak or inf) for name in self.objectives)
        return None if inf in values else values

    def predicted_ratios(self, plan: Plan) -> dict[str, float]:
        """Each constraint on the step, by name: what is estimated over the most that is allowed."""
        return self._ratios(plan, plan.estimate.step_seconds)

    def ratios(self, plan: Plan, measurement: Measurement) -> dict[str, float]:
        """Each constraint, by name: what was measured over the most that is allowed; infinite where it was not measured."""
        found = self._ratios(plan, measurement.step_seconds or inf)
        if self.headroom:
            found["headroom"] = (peak_bytes(measurement) or inf) / self.capacity_bytes(plan)
        return found

    def missed(self, plan: Plan, measurement: Measurement) -> dict[str, float]:
        """The constraints that do not hold, by name, each with the share by which what was measured passes what is allowed."""
        return {name: ratio - 1 for name, ratio in self.ratios(plan, measurement).items() if ratio > 1}

    def capacity_bytes(self, plan: Plan) -> float:
        """What of a device's memory a plan may take."""
        return (1 - self.headroom) * plan.estimate.capacity_bytes

    def _ratios(self, plan: Plan, step_seconds: float) -> dict[str, float]:
        tokens, found = plan.workload.tokens_per_step, dict[str, float]()
        if self.least_tokens_per_second is not None:
            found["tokens/s"] = step_seconds * self.least_tokens_per_second / tokens
        if self.most_cost is not None:
            found["cost"] = (cost(plan, step_seconds) or inf) / self.most_cost
        return found


PLAIN = Goals()
"""Throughput alone."""


def peak_bytes(measurement: Measurement) -> int | None:
    """The peak memory of the fullest rank: allocated, or reserved where nothing else is known."""
    return max(measurement.peak_memory_bytes or measurement.peak_reserved_bytes, default=None)


def cost(plan: Plan, step_seconds: float) -> float | None:
    """US dollars a million tokens, where a step takes so long; None where devices have no price."""
    whole = plan.estimate.price_per_step
    per_step = None if whole is None else whole * step_seconds / plan.estimate.step_seconds
    return None if per_step is None else MILLION * per_step / plan.workload.tokens_per_step


def energy(plan: Plan, step_seconds: float) -> float | None:
    """Joules a million tokens, where a step takes so long at the power of the estimate; None where that is not known."""
    whole = plan.estimate.energy_joules_per_step
    per_step = None if whole is None else whole * step_seconds / plan.estimate.step_seconds
    return None if per_step is None else MILLION * per_step / plan.workload.tokens_per_step


def _spent(objective: str, plan: Plan, step_seconds: float, peak_bytes: float) -> float:
    """What an objective wants least of."""
    if objective == "memory":
        return peak_bytes
    return (energy(plan, step_seconds) if objective == "energy" else None) or step_seconds
