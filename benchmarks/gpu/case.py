"""A prepared case of a day on a GPU. Read by the sessions, which import no torch: their time is short."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.simulation import SimulatedRank
from strategist.errors import FileError, not_among

LIMIT_SECONDS = 60
"""Of a case in which nothing is compiled."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One process. A ``plan`` runs as a trial, or with ``rank`` as a shadow; ``arguments`` follow the interpreter, and ``{out}``
    in them is a folder of the case's own.

    ``simulated`` is absent where ``not_simulated`` says why. The process starts only where ``expected_seconds`` are left, and ends
    after ``limit_seconds``.
    """

    name: str
    session: str
    arguments: tuple[str, ...] = ()
    plan: Plan | None = None
    rank: int | None = None
    settings: TrialSettings = field(default_factory=lambda: TrialSettings(steps=5, warmup_steps=2))
    simulated: SimulatedRank | None = None
    not_simulated: str = ""
    expected_seconds: float = 25.0
    limit_seconds: float = LIMIT_SECONDS


def read_cases(folder: Path, session: str = "") -> list[Case]:
    """Those of a prepared folder, in order.

    Raises:
        FileError: no case was prepared there.
    """
    found = [codec.load(Case, path) for path in sorted((folder / "cases").glob("*.json"))]
    if not found:
        raise FileError(folder, "holds no cases; gpu_day.py prepare makes them")
    return [case for case in found if not session or case.session == session]


def of_names(cases: Sequence[Case], names: Collection[str] | None) -> list[Case]:
    """The cases of these names; all without ``names``.

    Raises:
        InputError: no case has such a name.
    """
    if unknown := set(names or ()) - {case.name for case in cases}:
        raise not_among(f"--only {min(unknown)}", min(unknown), [case.name for case in cases])
    return [case for case in cases if not names or case.name in names]
