"""Stalled steps: published steps that waited for a network or a busy machine, separated from regular ones."""

from collections.abc import Sequence
from math import log

import numpy as np

from strategist.accuracy.error_metrics import PricedCase
from strategist.cost.candidate_arrays import Floats

LEAST_ROWS = 20
"""Rows of a source from which two states can be told apart."""

NARROWEST, WIDEST = 0.1, 0.25
"""Limits of how far ordinary steps spread around their centre, as a logarithm."""

TYPICAL = 1.0
"""Logarithm of how many times as long as an ordinary step a stalled one mostly takes."""

ROUNDS = 100
"""Rounds of the estimate, which settles within 30 on all published sources."""


def regular_step_probability(errors: Floats) -> Floats:
    """The probability that each step of one source did not stall.

    A step can wait for what its stack has no part in, so measured steps have a tail on the slow side alone: a mixture of ordinary
    steps, normal in the logarithm around a centre of their own, and stalled ones, which lie x above the centre with density
    x / t^2 exp(-x / t), t = ``TYPICAL`` (a gamma distribution of shape 2). Shares, centre and spread are found by expectation and
    maximisation. Steps faster than the centre are ordinary.

    Args:
        errors: logarithms of measured over predicted seconds of the steps of one source.
    """
    if len(errors) < LEAST_ROWS:
        return np.ones(len(errors))
    centre, spread, share = float(np.quantile(errors, 0.25)), WIDEST, 0.5
    for _ in range(ROUNDS):
        distance = (errors - centre) / spread
        near = share / (spread * np.sqrt(2 * np.pi)) * np.exp(-(distance**2) / 2)
        slower = np.maximum(errors - centre, 0.0) / TYPICAL
        far = (1 - share) * slower * np.exp(-slower) / TYPICAL
        found = np.where(slower > 0, near / (near + far), 1.0)
        share = float(np.mean(found))
        centre = float(np.sum(found * errors) / np.sum(found))
        spread = float(np.clip(np.sqrt(np.sum(found * (errors - centre) ** 2) / np.sum(found)), NARROWEST, WIDEST))
    return found


def without_stalled(judged: Sequence[PricedCase]) -> list[PricedCase]:
    """Rows whose steps more likely than not did not stall, and rows without a step; each file and stack has states of its own."""
    groups: dict[tuple[str, str], list[PricedCase]] = {}
    for item in judged:
        groups.setdefault((item.case.row.file, item.case.stack.name), []).append(item)
    return [item for group in groups.values() for item in _without_stalled(group)]


def _without_stalled(group: Sequence[PricedCase]) -> list[PricedCase]:
    timed = [(item, log(item.case.step_seconds / item.step_seconds)) for item in group if item.case.step_seconds]
    states = regular_step_probability(np.array([error for _, error in timed]))
    kept = [item for (item, _), state in zip(timed, states, strict=True) if state > 0.5]
    return kept + [item for item in group if not item.case.step_seconds]
