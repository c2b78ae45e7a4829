"""What measured trials say of the policies of cards."""

from dataclasses import dataclass

from strategist.contract.knobs import KnobValue


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two trials that tell what a policy is worth: one did as it says, the other did not.

    ``differs`` has the values of both, in this order. No ``ignored``: no trial did otherwise. No ``followed``: what it forbids ran
    out of memory, and nothing else was tried.
    """

    confirms: bool
    followed: str
    ignored: str
    followed_seconds: float | None
    ignored_seconds: float | None
    differs: dict[str, tuple[KnobValue | None, KnobValue | None]]


@dataclass(frozen=True, kw_only=True)
class PolicyEvidence:
    """What trials say of a policy.

    applied: trials in which its condition held and the candidate did as it says; for a policy of the observe phase, trials after
    which it proposed something. taken: trials that it proposed. confirmed, contradicted: pairs of trials for and against it.
    """

    card: str
    policy: str
    applied: int = 0
    taken: int = 0
    confirmed: int
    contradicted: int
    pairs: tuple[Pair, ...] = ()

    @property
    def known(self) -> bool:
        """Whether any trial says anything of it."""
        return self.applied + self.taken + self.confirmed + self.contradicted > 0

    @property
    def has_pairs(self) -> bool:
        """Whether any pair of trials speaks on it."""
        return self.confirmed + self.contradicted > 0


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    """What trials say of policies; ``trials`` counts them by their file or study."""

    trials: dict[str, int]
    evidence: tuple[PolicyEvidence, ...]
