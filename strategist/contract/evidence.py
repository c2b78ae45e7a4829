"""Evidence: measured trials that support or contradict the policies of cards."""

from strategist.contract.knobs import KnobValue
from strategist.frozen import frozen


@frozen
class Pair:
    """Two trials that test a policy: ``followed`` complies with it, ``ignored`` does not.

    ``confirms``: the complying trial was better.

    ``differs`` has the settings that differ, with the value of ``followed`` first. A forbidden trial that ran out of memory also
    counts without a counterpart: ``followed`` is then empty.
    """

    confirms: bool
    followed: str
    ignored: str
    followed_seconds: float | None
    ignored_seconds: float | None
    differs: dict[str, tuple[KnobValue | None, KnobValue | None]]


@frozen
class PolicyEvidence:
    """Evidence for one policy.

    applied: trials in which its condition held and the candidate complied; for a policy of the observe phase, trials after which it
        proposed something.
    taken: trials that it proposed.
    confirmed, contradicted: pairs of trials for and against it.
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
        """Whether there is any evidence, applied trials included."""
        return self.applied + self.taken + self.confirmed + self.contradicted > 0

    @property
    def has_pairs(self) -> bool:
        """Whether any pair of trials supports or contradicts the policy."""
        return self.confirmed + self.contradicted > 0


@frozen
class TrialEvidence:
    """Evidence for policies; ``trials`` is the number of trials by file or study."""

    trials: dict[str, int]
    evidence: tuple[PolicyEvidence, ...]
