"""Replays as documents: what ``strategist bench replay --json`` prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from strategist.tuner.replay_benchmark import Replayed, Summary, Walk
from strategist.tuner.transfer_benchmark import AFTER, Saved, Transfer, saved


@dataclass(frozen=True, kw_only=True)
class ShownWalk:
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
    walks: tuple[ShownWalk, ...]


@dataclass(frozen=True, kw_only=True)
class ReplayDocument:
    """Published sweeps, searched again: each sampler, sweep and walk."""

    samplers: tuple[Summary, ...]
    sweeps: tuple[ShownSweep, ...]
    walks: tuple[ShownWalk, ...]


@dataclass(frozen=True, kw_only=True)
class TransferDocument:
    """Published sweeps, each searched after another one: ``saved`` and walks have a figure for each of ``after``."""

    after: tuple[str, ...]
    saved: tuple[Saved, ...]
    transfers: tuple[ShownTransfer, ...]


def replay_document(found: Replayed) -> ReplayDocument:
    """All walks and summaries."""
    sweeps = tuple(ShownSweep(name=name, rows=rows, candidates=count) for name, (rows, count) in found.sweeps.items())
    return ReplayDocument(samplers=found.summaries, sweeps=sweeps, walks=tuple(map(_walk, found.walks)))


def transfer_document(found: Sequence[Transfer]) -> TransferDocument:
    """All walks and what was saved."""
    transfers = tuple(
        ShownTransfer(
            before=item.before, sweep=item.sweep, start=item.start, changed=item.changed, near=item.near,
            walks=tuple(map(_walk, item.walks)),
        )
        for item in found
    )  # fmt: skip
    return TransferDocument(after=AFTER, saved=tuple(saved(found)), transfers=transfers)


def _walk(walk: Walk) -> ShownWalk:
    regret = tuple(value if isfinite(value) else None for value in walk.regret)
    return ShownWalk(
        sweep=walk.sweep, sampler=walk.sampler, seed=walk.seed, regret=regret, failed=walk.failed, device_hours=walk.device_hours
    )
