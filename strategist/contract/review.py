"""Review: findings about a plan that another framework's file describes, and better plans."""

from strategist.contract.codec import added
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Fit, fit_of
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.frozen import frozen

MEMORY_CODE = "FMT-005"
"""Code of findings about insufficient memory (strategist/formats/finding_codes.py)."""


@frozen
class Change:
    """Another value of one setting: its effect in words, and ``speedup``, the factor by which steps become faster.

    ``cards`` recommend it. ``expressible``: the format can express it. ``changes_convergence``: the trained model may differ.
    """

    setting: str
    value: KnobValue
    text: str
    speedup: float
    fits: bool
    cards: tuple[str, ...]
    expressible: bool
    changes_convergence: bool


@frozen
class Review:
    """Findings about the plan that a file describes, and changes that improve it.

    plan: None where the file violates a constraint.
    changes: improvements, best first.
    best: best plan of the same model, devices and workload that the format can express; None where nothing fits.
    uncertainties: what could change the verdict on memory: assumed values, with another value and its memory, and entries without a
        price, with the most that each could save or add.
    confidence: probability from which a plan counts as fitting.
    """

    format: str
    plan: Plan | None
    findings: tuple[Diagnostic, ...]
    changes: tuple[Change, ...] = ()
    best: Plan | None = None
    uncertainties: tuple[str, ...] = added(())
    confidence: float = added(DEFAULT_CONFIDENCE)

    @property
    def fits(self) -> bool:
        """Whether the predicted peak memory is within the devices' capacity (probability about 50 %); False without a plan."""
        return self.plan is not None and self.plan.estimate.fits

    @property
    def broken(self) -> Diagnostic | None:
        """First error that prevents a run for other reasons than memory; None if there is none."""
        return next((found for found in self.findings if found.level is Level.ERROR and found.code != MEMORY_CODE), None)

    @property
    def fit(self) -> Fit:
        """Verdict on the memory of devices and hosts."""
        return Fit.UNKNOWN if self.plan is not None and self.uncertainties else self.priced_fit

    @property
    def priced_fit(self) -> Fit:
        """The verdict on memory by price alone, without doubts about assumed values."""
        if self.plan is None:
            return Fit.TOO_LARGE
        return fit_of(self.plan.estimate, self.plan.cluster.host_memory_bytes, self.confidence)
