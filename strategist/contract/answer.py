"""Answer: the planner's response to a request; it always contains a plan or alternatives."""

from dataclasses import field

from strategist.contract.cluster import Cluster
from strategist.contract.codec import added
from strategist.contract.display import Displayed
from strategist.contract.model import ModelShape
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.simulation import Proof
from strategist.frozen import frozen

SECTION_NAMES = ("plans", "settings", "predicted", "memory", "time", "cards", "alternatives", "candidates", "assumed", "backends")
"""Names of the sections of a full answer; each can be requested by name."""


@frozen
class Alternative:
    """One alternative: a change of the request, its cost, and the best plan after the change.

    ``flags`` are the command-line options that make the change. ``changes_convergence``: the trained model may differ.
    """

    title: str
    flags: tuple[str, ...]
    note: str
    plan: Plan
    changes_convergence: bool = False


@frozen
class Dropped:
    """Number of candidates that were first dropped by this policy of a card."""

    card: str
    policy: str
    because: str
    candidates: int


@frozen
class Training:
    """Predicted steps, seconds, US dollars and joules (None: unknown) to train the requested number of tokens with one plan.

    ``seconds`` is the expected wall time, including the plan's checkpoints and the expected number of ``failures`` of the cluster.
    ``productive_ratio`` is the share of it that is spent on steps that are not repeated.
    """

    steps: int
    seconds: float
    price: float | None = None
    energy_joules: float | None = None
    failures: float = added(0.0)
    productive_ratio: float = added(1.0)


@frozen
class BackendPlan:
    """The best plan that a back end can run for a request. ``plan`` is None where it can run none; ``why`` is then the reason."""

    backend: str
    plan: Plan | None
    why: str = ""


@frozen
class Answer(Displayed):
    """Ranked plans, best first, and alternatives.

    notes: assumptions that were made.
    verdict: the result in one or two sentences with numbers.
    candidates: number of enumerated candidates. Of these, ``dropped`` were dropped by cards, ``too_large`` do not fit the device,
        ``host_too_small`` do not fit the hosts, and ``feasible`` remain.
    alternatives: by predicted throughput where there are plans; cheapest change first where there are none.
    changes_convergence: settings of the best plan that may change the trained model.
    not_as_shipped: cards that were added, replaced or left out, with their files.
    trainings: one per plan; empty where the request has no number of tokens.
    proofs: one per plan, where simulations were requested; plans that a simulation found too large are then ranked last.
    backends: the best plan of each back end and format, fastest first, where requested.
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
        """One line, because whole plans have thousands of characters."""
        summary = f"{self.model.name} on {self.cluster.name}, plans: {len(self.plans)}, alternatives: {len(self.alternatives)}"
        return f"<Answer: {summary}. {self.verdict}>"
