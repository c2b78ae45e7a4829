"""Review: what is to be said of a plan that somebody else's file describes."""

from dataclasses import dataclass

from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.diagnostic import Diagnostic


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
    sayable: bool
    changes_convergence: bool


@dataclass(frozen=True, kw_only=True)
class Review:
    """``plan`` is what the file describes, None where it breaks a law; ``changes`` those that help, the best first; ``best`` is the
    best plan of the same model, devices and workload that the format can say, None where nothing fits."""

    format: str
    plan: Plan | None
    findings: tuple[Diagnostic, ...]
    changes: tuple[Change, ...] = ()
    best: Plan | None = None

    @property
    def fits(self) -> bool:
        return self.plan is not None and self.plan.estimate.fits
