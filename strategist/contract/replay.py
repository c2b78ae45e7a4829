"""Replay of published sweeps: number of trials that each search needs, alone and after the search of another sweep."""

from strategist.frozen import frozen

CLOSE = 0.02
"""A trial is near the best if its step is slower by at most this share."""

STEPS, START_SECONDS = 20, 60.0
"""Steps per trial, and seconds to start a trial, for the device hours of a search. A failed trial costs its start only."""

TRIALS = 10
"""Number of trials of the earlier search: the default number of trials of a tuning."""

FEW_DOUBLINGS = 2.0
"""Two sweeps are near each other if GPUs or FLOPs per token differ by at most this many doublings."""

STARTS = ("profiles", "other sources")
"""Prior knowledge of a sweep without any row of its source: profiles only, or factors fitted to all other sources."""

SEEN_BEFORE = ("nothing", f"{TRIALS} trials", "all rows")
"""Rows of the other sweep that were observed before the search."""


@frozen
class SearchRun:
    """One search of a sweep. It ends with the first trial near the best of the sweep.

    ``regret`` after each trial: the best step so far over the best step of the sweep, minus 1; None before the first trial that
    ran. ``failed``: number of trials that ran out of memory or crashed.
    """

    sweep: str
    sampler: str
    seed: int
    regret: tuple[float | None, ...]
    failed: int
    device_hours: float

    @property
    def trials(self) -> int:
        return len(self.regret)


@frozen
class Summary:
    """Summary of all searches of one sampler.

    ``median_trials``, ``mean_trials`` and ``most_trials``: trials until near the best. ``tenth_to_ninth``: their 10th and 90th
    percentile. ``medians_by_seed``: lowest and highest median over the seeds. ``failed_share``: failed trials among all.
    """

    sampler: str
    searches: int
    median_trials: float
    tenth_to_ninth: tuple[float, float]
    medians_by_seed: tuple[float, float]
    mean_trials: float
    most_trials: int
    failed_share: float
    median_device_hours: float


@frozen
class ReplayedSweep:
    """One sweep: its name, its number of rows, and its number of distinct candidates."""

    name: str
    rows: int
    candidates: int


@frozen
class ReplayDocument:
    """Replayed published sweeps: summaries by sampler, the sweeps, and every search."""

    samplers: tuple[Summary, ...]
    sweeps: tuple[ReplayedSweep, ...]
    searches: tuple[SearchRun, ...]


@frozen
class Transfer:
    """Searches of ``sweep`` after ``before``, another sweep of the same source.

    ``changed``: what differs between the two (model or GPUs). ``near``: they differ by at most FEW_DOUBLINGS. ``searches``: one
    search for each entry of ``SEEN_BEFORE``.
    """

    before: str
    sweep: str
    start: str
    changed: str
    near: bool
    searches: tuple[SearchRun, ...]


@frozen
class Savings:
    """Summary of all pairs of sweeps with the same ``start``, ``changed`` and ``near``.

    Tuples have one figure for each entry of ``SEEN_BEFORE``: trials until near the best, and the share of failed trials.
    """

    start: str
    changed: str
    near: bool
    pairs: int
    median_trials: tuple[float, ...]
    mean_trials: tuple[float, ...]
    most_trials: tuple[int, ...]
    failed_shares: tuple[float, ...]


@frozen
class TransferDocument:
    """Published sweeps, each searched after another one.

    Tuples in ``saved`` and in transfers have one item for each entry of ``after``.
    """

    after: tuple[str, ...]
    saved: tuple[Savings, ...]
    transfers: tuple[Transfer, ...]
