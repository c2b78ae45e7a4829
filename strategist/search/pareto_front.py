"""The front: what no other dominates, and by how much a candidate is expected to push it on.

Expected hypervolume improvement (Emmerich, Giannakoglou and Naujoks, IEEE Transactions on Evolutionary Computation 10, 2006), over
logarithms: a tenth less of one objective weighs as much as a tenth less of another.
"""

from collections.abc import Sequence
from functools import reduce
from math import log

import numpy as np

from strategist.expr.columns import Array
from strategist.search.candidate_features import Floats

CELLS = {2: 64, 3: 20, 4: 12}
"""Along each axis, by the number of objectives."""

MARGIN = log(1.1)
"""So far beyond the worst of the front what is dominated counts: its ends are worth pushing on, what is far behind them is not."""

DIRECTIONS = 16
"""So many ways to weigh the objectives find the candidates along a front."""

AUGMENTED = 0.05
"""What the sum of the weighed objectives counts beside the worst of them (Knowles, ParEGO, in the same volume, equation 2)."""


def expected_hypervolume_gain(mean: Floats, deviation: Floats, runs: Floats, measured: Floats) -> Floats:
    """By which share each candidate is expected to enlarge what the ``measured`` dominate. All are rows with the logarithm of each
    objective; ``runs`` is the chance that a candidate runs. Before anything is measured, what is expected of it beside the best.

    A candidate adds the volume that it dominates and no other does: the expectation is the sum, over all cells not dominated, of
    the chance that the candidate does, where objectives err independently.
    """
    from scipy.special import ndtr  # slow import, needed only by a search

    points = np.concatenate([mean, measured])
    low = np.concatenate([mean - deviation, measured]).min(axis=0)
    high = points[undominated(points.tolist())].max(axis=0) + MARGIN
    objectives = mean.shape[1]
    count, axes = CELLS[objectives], "abcd"[:objectives]
    cells = [np.linspace(low[axis], high[axis], 2 * count + 1)[1::2] for axis in range(objectives)]
    chances = [ndtr((own - mean[:, axis, None]) / deviation[:, axis, None]) for axis, own in enumerate(cells)]
    covered = np.zeros((count,) * objectives, dtype=np.bool_)
    for row in measured[undominated(measured.tolist())]:
        covered |= reduce(np.logical_and.outer, [own >= value for own, value in zip(cells, row, strict=True)])
    added = np.einsum(f"{','.join(f'n{axis}' for axis in axes)},{axes}->n", *chances, ~covered * 1.0, optimize=True)
    share: Floats = runs * added / covered.sum() if covered.any() else runs**2 * added / added.max()
    return share


def spread_over_front(values: Floats, limit: int) -> Array:
    """So many rows along the front, the best by each of many weights in turn; ``values`` are rows with one of each objective."""
    far = np.log(values / values.min(axis=0))
    objectives = values.shape[1]
    weights = np.concatenate([np.eye(objectives), np.random.default_rng(0).dirichlet(np.ones(objectives), DIRECTIONS)])
    behind = [(far * own).max(axis=1) + AUGMENTED * (far * own).sum(axis=1) for own in weights]
    turns = np.stack([np.argsort(own, kind="stable")[:limit] for own in behind], axis=1).ravel()
    _, first = np.unique(turns, return_index=True)
    return turns[np.sort(first)][:limit]


def undominated(values: Sequence[Sequence[float]]) -> list[int]:
    """The places of those that no other dominates: none is as good in every objective and better in one."""
    found: list[int] = []
    for place in sorted(range(len(values)), key=lambda place: tuple(values[place])):  # dominating points come first
        own = values[place]
        if not any(tuple(values[other]) != tuple(own) and _as_good(values[other], own) for other in found):
            found.append(place)
    return sorted(found)


def _as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(left <= right for left, right in zip(one, other, strict=True))
