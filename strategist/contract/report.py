"""Contents of the reports of plans, studies and runs: values only, so that renderers decide nothing."""

from strategist.contract.answer import Alternative, Dropped
from strategist.contract.estimate import MemoryParts
from strategist.contract.explanation import Explanation
from strategist.contract.knobs import Candidate
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.contract.study import Study
from strategist.frozen import frozen


@frozen
class RankMemory:
    """Peak memory of a device of each of these pipeline ``ranks``, and the number of ``layers`` that it holds."""

    ranks: tuple[int, ...]
    layers: int
    memory: MemoryParts


@frozen
class Instant:
    """Memory of a device of the fullest rank at one named candidate peak of a step."""

    name: str
    memory: MemoryParts


@frozen
class Span:
    """Work of a pipeline rank from ``start_seconds`` to ``end_seconds``: one pass of one micro-batch over one stage.

    ``work`` is forward, backward, backward for inputs or weights, or a part of the step. ``stage`` and ``micro_batch`` are None for
    work that follows the rank's last pass.
    """

    rank: int
    work: str
    start_seconds: float
    end_seconds: float
    stage: int | None = None
    micro_batch: int | None = None


@frozen
class Timeline:
    """Simulated timeline of a step; of a step in several equal ``rounds``, only the last round.

    ``bubble_seconds`` is the idle time of each rank.
    """

    schedule: str
    micro_batches: int
    step_seconds: float
    spans: tuple[Span, ...]
    bubble_seconds: tuple[float, ...]
    rounds: int = 1


@frozen
class MeshAxis:
    """A mesh axis mapped to nodes.

    Neighbours in a group of ``degree`` ranks are ``stride`` ranks apart and communicate at worst over ``link``; ``first`` are the
    ranks of the first group.
    """

    name: str
    degree: int
    stride: int
    first: tuple[int, ...]
    across_nodes: bool
    link: str
    link_bytes_per_second: float


@frozen
class Seen:
    """The best of ``similar_candidates`` candidates with equal mesh, recomputation and offload.

    ``place`` is its rank in the ranking, from 1; None where it does not fit. ``front``: no candidate that fits is both faster and
    smaller.
    """

    candidate: Candidate
    tokens_per_second: float
    peak_memory_bytes: float
    similar_candidates: int
    place: int | None = None
    front: bool = False


@frozen
class Space:
    """Number of candidates of a request and what happened to them, as in an Answer.

    ``seen``: one candidate per group, best first; ``unseen``: number of groups that are left out.
    """

    candidates: int
    dropped: tuple[Dropped, ...]
    too_large: int
    host_too_small: int
    feasible: int
    seen: tuple[Seen, ...]
    unseen: int = 0


@frozen
class PlanReport:
    """A plan with everything that its report shows.

    plans, verdict, notes, alternatives: of the answer, ``plans`` including this plan.
    mesh, ranks, explanation: mesh axes, peak memory by pipeline rank, and reasons.
    timeline, space: None where not available; ``no_timeline`` and ``no_space`` are then the reason.
    command: repeats the plan; empty where the names of model and devices do not describe them fully.
    instants: candidate peaks in the order of a step. traffic: bytes through the links of a rank of the first stage. Both are empty
        where nodes differ.
    """

    plan: Plan
    plans: tuple[Plan, ...]
    verdict: str
    notes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    ranks: tuple[RankMemory, ...]
    mesh: tuple[MeshAxis, ...]
    explanation: Explanation
    timeline: Timeline | None = None
    no_timeline: str = ""
    space: Space | None = None
    no_space: str = ""
    command: tuple[str, ...] = ()
    instants: tuple[Instant, ...] = ()
    traffic: tuple[Traffic, ...] = ()


@frozen
class Influence:
    """Importance of one setting: its share of the variance of log step seconds over all trials, corrected for chance; 0 to 1.

    ``means``: by value, the geometric mean of step seconds, and the number of trials.
    """

    setting: str
    share: float
    means: tuple[tuple[str, float, int], ...]


@frozen
class Learned:
    """Calibration before and after a tuning. ``step_errors``, ``memory_errors``: median |predicted / measured - 1| by predictor.
    ``factors``: those that changed, with old and new value.
    """

    step_errors: dict[str, float | None]
    memory_errors: dict[str, float | None]
    factors: tuple[tuple[str, float, float], ...]


@frozen
class Spent:
    """Number of attempts with one outcome, and their device hours."""

    ended: str
    attempts: int
    device_hours: float


@frozen
class StudyReport:
    """A study with everything that its report shows.

    ``price_per_device_hour`` is None where devices have no price, or did not run. ``learned``
    is None until a tuning has ended. ``commands`` resume the study and show its best plan, as far as options can express that.
    """

    study: Study
    influences: tuple[Influence, ...]
    spent: tuple[Spent, ...]
    price_per_device_hour: float | None = None
    learned: Learned | None = None
    commands: tuple[tuple[str, ...], ...] = ()


@frozen
class RunStep:
    """Figures of one step, written while the run was in progress; None where a figure is missing."""

    step: int
    loss: float | None = None
    seconds: float | None = None
    memory_bytes: float | None = None


@frozen
class RunReport:
    """A run in the folder ``run``: its plan, its measurement and its steps."""

    run: str
    plan: Plan
    measurement: Measurement
    steps: tuple[RunStep, ...]
