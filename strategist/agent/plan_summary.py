"""Short summaries of plans for agents: rounded figures with units in their names."""

from collections.abc import Mapping
from dataclasses import asdict

from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, value_of
from strategist.frozen import frozen
from strategist.report.setting_text import change_words
from strategist.units import GIB


@frozen
class ShownPlan:
    """A plan in short. Memory: of the fullest device; host memory: of a node; ratios: shares of the step."""

    kind: str = "plan"
    plan: str
    settings: str
    fits: bool
    step_seconds: float
    tokens_per_second: float
    mfu: float
    peak_memory_gib: float
    capacity_gib: float
    fit_confidence: float
    host_memory_gib_per_node: float
    comm_ratio: float
    exposed_comm_ratio: float
    bubble_ratio: float
    runs_on: tuple[str, ...]


@frozen
class Parts:
    """Memory and time of a plan by part, the largest first; communication counts only where it is exposed."""

    kind: str = "parts"
    plan: str
    memory_gib: dict[str, float]
    step_seconds: dict[str, float]


def shown(plan: Plan) -> ShownPlan:
    """A plan in short."""
    found = plan.estimate
    return ShownPlan(
        plan=plan.id, settings=change_words(plan), fits=found.fits, step_seconds=rounded(found.step_seconds),
        tokens_per_second=rounded(found.tokens_per_second), mfu=rounded(found.mfu),
        peak_memory_gib=rounded(found.peak_memory_bytes / GIB), capacity_gib=rounded(found.capacity_bytes / GIB),
        fit_confidence=rounded(found.fit_confidence), host_memory_gib_per_node=rounded(found.host_memory_bytes_per_node / GIB),
        comm_ratio=rounded(found.comm_ratio), exposed_comm_ratio=rounded(found.exposed_comm_ratio),
        bubble_ratio=rounded(found.time.bubble / found.step_seconds), runs_on=plan.backends,
    )  # fmt: skip


def parts(plan: Plan) -> Parts:
    """Memory and time of a plan by part."""
    memory = {name: size / GIB for name, size in asdict(plan.estimate.memory).items()}
    return Parts(plan=plan.id, memory_gib=_largest(memory), step_seconds=_largest(asdict(plan.estimate.time)))


def settings(plan: Plan) -> dict[str, KnobValue]:
    """Settings that have an effect in the plan, by bare name."""
    return {name: value_of(plan.candidate, name) for name in SETTING_NAMES if plan.matters(name)}


def rounded(figure: float) -> float:
    """Rounded to three significant digits."""
    return float(f"{figure:.3g}")


def _largest(sizes: Mapping[str, float]) -> dict[str, float]:
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    return {name: rounded(size) for name, size in ordered if size > 0}
