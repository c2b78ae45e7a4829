"""Review: findings about a plan that another system's file describes."""

from dataclasses import dataclass

from strategist.contract.codec import added
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.estimate import SURE, Fit
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan

MEMORY = "FMT-005"
"""Code of findings on memory that does not suffice (strategist/formats/finding_codes.py)."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One setting otherwise: what that brings, in words, and by which factor steps are faster; the cards that ask for it, whether
    the format can say it, and whether it may change the trained model."""

    setting: str
    value: KnobValue
    text: str
    speedup: float
    fits: bool
    cards: tuple[str, ...]
    expressible: bool
    changes_convergence: bool


@dataclass(frozen=True, kw_only=True)
class Review:
    """``plan`` is what the file describes, None where it breaks a law; ``changes`` those that help, the best first; ``best`` is the
    best plan of the same model, devices and workload that the format can say, None where nothing fits. ``uncertainties`` are
    entries without a price that could change the verdict on memory, with the most that each could save or add; ``confidence`` is
    the probability from which a plan fits."""

    format: str
    plan: Plan | None
    findings: tuple[Diagnostic, ...]
    changes: tuple[Change, ...] = ()
    best: Plan | None = None
    uncertainties: tuple[str, ...] = added(())
    confidence: float = added(SURE)

    @property
    def fits(self) -> bool:
        """Whether it fits the devices as likely as not."""
        return self.plan is not None and self.plan.estimate.fits

    @property
    def broken(self) -> Diagnostic | None:
        """The first finding by which it cannot run, whatever its memory."""
        return next((found for found in self.findings if found.level is Level.ERROR and found.code != MEMORY), None)

    @property
    def fit(self) -> Fit:
        """The verdict on memory, of devices and of hosts."""
        if self.plan is None:
            return Fit.TOO_LARGE
        if self.uncertainties:
            return Fit.UNKNOWN
        hosts = self.plan.cluster.host_memory_bytes
        if hosts is not None and self.plan.estimate.host_memory_bytes_per_node > hosts:
            return Fit.TOO_LARGE
        return Fit.of(self.plan.estimate.fit_confidence, self.confidence)
