"""Answer: the planner's response to a request; it always contains a plan or alternatives."""

from dataclasses import dataclass, field

from strategist.contract.cluster import Cluster
from strategist.contract.codec import added
from strategist.contract.display import Displayed
from strategist.contract.model import ModelShape
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.simulation import Proof

SECTION_NAMES = ("plans", "settings", "predicted", "memory", "time", "cards", "alternatives", "candidates", "assumed", "backends")
"""The parts of a full answer that can be asked for by name."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """An alternative: what to change in the request, what that costs, and the best plan after the change.

    ``flags`` are the command line's; ``changes_convergence`` says that the trained model may differ.
    """

    title: str
    flags: tuple[str, ...]
    note: str
    plan: Plan
    changes_convergence: bool = False


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Candidates that one policy of a card was the first to drop."""

    card: str
    policy: str
    because: str
    candidates: int


@dataclass(frozen=True, kw_only=True)
class Training:
    """What training the tokens asked for takes with one plan: steps, seconds, US dollars and joules, None where not known.

    ``seconds`` are those expected with the plan's checkpoints and the cluster's ``failures``; ``productive_ratio`` of them are
    steps that count.
    """

    steps: int
    seconds: float
    price: float | None = None
    energy_joules: float | None = None
    failures: float = added(0.0)
    productive_ratio: float = added(1.0)


@dataclass(frozen=True, kw_only=True)
class BackendPlan:
    """The best plan for a request that a back end can run; None where it can run none, and then ``why``."""

    backend: str
    plan: Plan | None
    why: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Displayed):
    """Ranked plans, best first, and alternatives.

    ``notes`` say what was assumed. ``verdict`` is the truth in one or two sentences, with its numbers. Of all ``candidates``
    walked, ``dropped`` lost their place to cards, ``too_large`` did not fit the device, ``host_too_small`` not the hosts; the rest
    is ``feasible``. ``alternatives`` are sorted by predicted throughput where there are plans, cheapest change
    first where there are none. ``changes_convergence`` names what of the best plan may change the trained model.
    ``trainings`` has one for each plan, where the request says how many tokens are to be trained.
    ``proofs`` has one for each plan, where they were asked for; plans that are too large then come last.
    ``backends`` has the best plan of each back end and format, fastest first, where it was asked for.
    ``not_as_shipped`` says which cards were added, replaced or left out, and which files they come from.
    """

    request: Request
    model: ModelShape
    cluster: Cluster
    notes: tuple[str, ...]
    verdict: str
    candidates: int
    dropped: tuple[Dropped, ...]
    too_large: int
    host_too_small: int
    feasible: int
    plans: tuple[Plan, ...]
    alternatives: tuple[Alternative, ...] = field(default=())
    changes_convergence: tuple[str, ...] = ()
    not_as_shipped: tuple[str, ...] = ()
    trainings: tuple[Training, ...] = ()
    proofs: tuple[Proof, ...] = added(())
    backends: tuple[BackendPlan, ...] = added(())

    def __repr__(self) -> str:
        """A line, since whole plans are thousands of characters."""
        what = f"{self.model.name} on {self.cluster.name}, plans: {len(self.plans)}, alternatives: {len(self.alternatives)}"
        return f"<Answer: {what}. {self.verdict}>"
