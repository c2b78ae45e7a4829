"""Searches of published sweeps: how many trials each took, alone and after another sweep."""

from dataclasses import dataclass

NEAR = 0.02
"""A trial is near the best when it is slower by no more than this share."""

STEPS, START_SECONDS = 20, 60.0
"""Steps of a trial, and what starting it takes, for the price of a search; one that fails costs its start alone."""

TRIALS = 10
"""Trials of the search that came before: as many as a tuning has by default."""

FEW_DOUBLINGS = 2.0
"""Sweeps that are so many doublings apart, in GPUs or in the FLOPs of a token, are near."""

STARTS = ("profiles", "other sources")
"""What is known of a sweep when no row of its source is: what profiles say, or factors that were fitted to all other sources."""

AFTER = ("nothing", f"{TRIALS} trials", "all rows")
"""What of the other sweep was seen before."""


@dataclass(frozen=True, kw_only=True)
class SearchRun:
    """One search of a sweep: ``regret`` after each trial is by which share the best so far is slower than the sweep's best
    (null while none ran); it ends with the first trial near that. ``failed`` trials ran out of memory or crashed."""

    sweep: str
    sampler: str
    seed: int
    regret: tuple[float | None, ...]
    failed: int
    device_hours: float

    @property
    def trials(self) -> int:
        return len(self.regret)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All searches of a sampler: trials until near the best, the range that leaves a tenth of them below and a tenth above, the
    lowest and the highest median of those with one seed, trials that failed among all, and hours of devices."""

    sampler: str
    searches: int
    median_trials: float
    tenth_to_ninth: tuple[float, float]
    medians_by_seed: tuple[float, float]
    mean_trials: float
    most_trials: int
    failed_share: float
    median_device_hours: float


@dataclass(frozen=True, kw_only=True)
class ReplayedSweep:
    """A sweep by name, with its rows and the candidates among them."""

    name: str
    rows: int
    candidates: int


@dataclass(frozen=True, kw_only=True)
class ReplayDocument:
    """Published sweeps, searched again: each sampler, sweep and search."""

    samplers: tuple[Summary, ...]
    sweeps: tuple[ReplayedSweep, ...]
    searches: tuple[SearchRun, ...]


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A sweep searched after ``before``, another one of the same source: ``changed`` is what they differ in, ``near`` whether by
    little, and ``searches`` are one search for each of ``AFTER``."""

    before: str
    sweep: str
    start: str
    changed: str
    near: bool
    searches: tuple[SearchRun, ...]


@dataclass(frozen=True, kw_only=True)
class Savings:
    """Searches of one kind: how many, and for each of ``AFTER`` the trials until near the best, and the share that failed."""

    start: str
    changed: str
    near: bool
    pairs: int
    median_trials: tuple[float, ...]
    mean_trials: tuple[float, ...]
    most_trials: tuple[int, ...]
    failed_shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TransferDocument:
    """Published sweeps, each searched after another one: ``saved`` and searches have a figure for each of ``after``."""

    after: tuple[str, ...]
    saved: tuple[Savings, ...]
    transfers: tuple[Transfer, ...]
