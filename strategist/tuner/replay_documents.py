"""Replays as documents: what ``strategist bench replay --json`` prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from strategist.tuner.replay_benchmark import Replayed, SearchRun, Summary
from strategist.tuner.transfer_benchmark import AFTER, Savings, Transfer, savings


@dataclass(frozen=True, kw_only=True)
class ShownSearch:
    """One search of a sweep; ``regret`` is null while none ran."""

    sweep: str
    sampler: str
    seed: int
    regret: tuple[float | None, ...]
    failed: int
    device_hours: float


@dataclass(frozen=True, kw_only=True)
class ShownSweep:
    """A sweep by name, with its rows and the candidates among them."""

    name: str
    rows: int
    candidates: int


@dataclass(frozen=True, kw_only=True)
class ShownTransfer:
    """A sweep searched after another one, with a walk for each of ``after``."""

    before: str
    sweep: str
    start: str
    changed: str
    near: bool
    searches: tuple[ShownSearch, ...]


@dataclass(frozen=True, kw_only=True)
class ReplayDocument:
    """Published sweeps, searched again: each sampler, sweep and walk."""

    samplers: tuple[Summary, ...]
    sweeps: tuple[ShownSweep, ...]
    searches: tuple[ShownSearch, ...]


@dataclass(frozen=True, kw_only=True)
class TransferDocument:
    """Published sweeps, each searched after another one: ``saved`` and searches have a figure for each of ``after``."""

    after: tuple[str, ...]
    saved: tuple[Savings, ...]
    transfers: tuple[ShownTransfer, ...]


def replay_document(found: Replayed) -> ReplayDocument:
    """All searches and summaries."""
    sweeps = tuple(ShownSweep(name=name, rows=rows, candidates=count) for name, (rows, count) in found.sweeps.items())
    return ReplayDocument(samplers=found.summaries, sweeps=sweeps, searches=tuple(map(_shown_search, found.searches)))


def transfer_document(found: Sequence[Transfer]) -> TransferDocument:
    """All searches and what was saved."""
    transfers = tuple(
        ShownTransfer(
            before=item.before, sweep=item.sweep, start=item.start, changed=item.changed, near=item.near,
            searches=tuple(map(_shown_search, item.searches)),
        )
        for item in found
    )  # fmt: skip
    return TransferDocument(after=AFTER, saved=tuple(savings(found)), transfers=transfers)


def _shown_search(run: SearchRun) -> ShownSearch:
    regret = tuple(value if isfinite(value) else None for value in run.regret)
    return ShownSearch(
        sweep=run.sweep, sampler=run.sampler, seed=run.seed, regret=regret, failed=run.failed, device_hours=run.device_hours
    )
