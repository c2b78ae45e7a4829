"""Goals: what a study minimises (one or several objectives), and constraints on measurements."""

from math import inf

from strategist.contract.cluster import Cluster
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.request import OBJECTIVES
from strategist.errors import InputError, not_among
from strategist.frozen import frozen

MILLION = 1e6
"""Number of tokens that cost and energy refer to."""


@frozen
class Goals:
    """``objectives`` are minimised; the first is the request's. With several, a study searches the Pareto front.

    The constraints apply to measurements: a plan must leave the share ``headroom`` of the device's memory free, reach
    ``least_tokens_per_second``, and cost at most ``most_cost`` US dollars per million tokens. A trial that violates one is neither
    best nor on the front.
    """

    objectives: tuple[str, ...] = OBJECTIVES[:1]
    headroom: float = 0.0
    least_tokens_per_second: float | None = None
    most_cost: float | None = None

    def __post_init__(self) -> None:
        if not self.objectives:
            raise InputError("objectives", "are missing", f"name some of {', '.join(OBJECTIVES)}")
        for index, name in enumerate(self.objectives):
            if name not in OBJECTIVES:
                raise not_among(f"--pareto {name}", name, OBJECTIVES)
            if index and name == self.objective:
                raise InputError(f"--pareto {name}", "is the objective itself", "name other objectives")
            if name in self.objectives[:index]:
                raise InputError(f"--pareto {name}", "is named twice", "name it once")
        if not 0 <= self.headroom < 1:
            raise InputError(f"--headroom {self.headroom:g}", "must lie from 0 to below 1", "write e.g. 10%")
        for option, value in (("--least-tokens-per-second", self.least_tokens_per_second), ("--most-cost", self.most_cost)):
            if value is not None and not 0 < value < inf:
                raise InputError(f"{option} {value:g}", "must be above 0", "leave it out where all will do")

    def check(self, objective: str, cluster: Cluster) -> None:
        """Checks that a request for ``objective`` on this cluster can have these goals.

        Raises:
            InputError: the request has another objective, or the price or power limit of a device is unknown.
        """
        name = cluster.device.name
        if objective != self.objective:
            law = f"must begin with that of the request, {objective}"
            raise InputError(f"objectives {', '.join(self.objectives)}", law, "put it first")
        if "energy" in self.objectives and cluster.device.power_watts is None:
            option = "--objective energy" if self.objective == "energy" else "--pareto energy"
            law = f"the power limit of a {name} is unknown"
            raise InputError(option, law, "add power_watts to the device in a cluster file")
        priced = "--pareto cost" if "cost" in self.objectives[1:] else "--most-cost" if self.most_cost is not None else ""
        if cluster.device.price_per_hour is None and priced:
            raise InputError(priced, f"the price of a {name} is unknown", "add price_per_hour to the device in a cluster file")

    @property
    def objective(self) -> str:
        """Objective of the request, which determines the best trial."""
        return self.objectives[0]

    @property
    def several(self) -> bool:
        """Whether there is more than one objective."""
        return len(self.objectives) > 1

    @property
    def of_steps(self) -> bool:
        """Whether the shortest step is the best one."""
        return self.objectives in (("throughput",), ("cost",))

    @property
    def of_memory(self) -> str:
        """The command-line option that makes measured memory necessary; empty where none does."""
        if "memory" in self.objectives:
            return "--objective memory" if self.objective == "memory" else "--pareto memory"
        return f"--headroom {self.headroom:g}" if self.headroom else ""

    def predicted(self, plan: Plan) -> tuple[float, ...]:
        """Estimated values of the objectives, all to be minimised."""
        estimate = plan.estimate
        return tuple(_objective_value(name, plan, estimate.step_seconds, estimate.peak_memory_bytes) for name in self.objectives)

    def measured(self, plan: Plan, measurement: Measurement) -> tuple[float, ...] | None:
        """Measured values of the objectives, all to be minimised; None where one was not measured.

        Only step time and memory are measured. On one cluster the cheapest step is the shortest; energy is measured step time times
        the estimate's mean power.
        """
        seconds, peak = measurement.step_seconds, peak_bytes(measurement)
        values = tuple(_objective_value(name, plan, seconds or inf, peak or inf) for name in self.objectives)
        return None if inf in values else values

    def predicted_ratios(self, plan: Plan) -> dict[str, float]:
        """Estimated value over limit, by name of constraint: only throughput and cost. A ratio above 1 violates the constraint."""
        return self._ratios(plan, plan.estimate.step_seconds)

    def ratios(self, plan: Plan, measurement: Measurement) -> dict[str, float]:
        """Measured value over limit, by name of constraint; infinite if not measured. A ratio above 1 violates the constraint."""
        found = self._ratios(plan, measurement.step_seconds or inf)
        if self.headroom:
            found["headroom"] = (peak_bytes(measurement) or inf) / self.capacity_bytes(plan)
        return found

    def missed(self, plan: Plan, measurement: Measurement) -> dict[str, float]:
        """Violated constraints by name, each with the share by which the measured value exceeds the limit."""
        return {name: ratio - 1 for name, ratio in self.ratios(plan, measurement).items() if ratio > 1}

    def capacity_bytes(self, plan: Plan) -> float:
        """Bytes of a device's memory that a plan may use."""
        return (1 - self.headroom) * plan.estimate.capacity_bytes

    def _ratios(self, plan: Plan, step_seconds: float) -> dict[str, float]:
        tokens, found = plan.workload.tokens_per_step, dict[str, float]()
        if self.least_tokens_per_second is not None:
            found["tokens/s"] = step_seconds * self.least_tokens_per_second / tokens
        if self.most_cost is not None:
            found["cost"] = (cost(plan, step_seconds) or inf) / self.most_cost
        return found


THROUGHPUT_ONLY = Goals()
"""Default goals: throughput alone."""


def peak_bytes(measurement: Measurement) -> int | None:
    """Peak memory of the fullest rank in bytes: allocated, or reserved where only that is known."""
    return max(measurement.peak_memory_bytes or measurement.peak_reserved_bytes, default=None)


def cost(plan: Plan, step_seconds: float) -> float | None:
    """US dollars per million tokens at this step time; None where devices have no price."""
    return _per_million_tokens(plan.estimate.price_per_step, plan, step_seconds)


def energy(plan: Plan, step_seconds: float) -> float | None:
    """Joules per million tokens at this step time and the estimate's mean power; None where that is unknown."""
    return _per_million_tokens(plan.estimate.energy_joules_per_step, plan, step_seconds)


def _per_million_tokens(predicted_per_step: float | None, plan: Plan, step_seconds: float) -> float | None:
    """A figure that grows with the step time, for a million tokens at this step time."""
    per_step = None if predicted_per_step is None else predicted_per_step * step_seconds / plan.estimate.step_seconds
    return None if per_step is None else MILLION * per_step / plan.workload.tokens_per_step


def _objective_value(objective: str, plan: Plan, step_seconds: float, peak_bytes: float) -> float:
    """Value of an objective to be minimised: bytes for memory, joules for energy, else step seconds."""
    if objective == "memory":
        return peak_bytes
    return (energy(plan, step_seconds) if objective == "energy" else None) or step_seconds
