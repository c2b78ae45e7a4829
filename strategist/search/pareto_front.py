"""Pareto front: undominated trials, and the expected hypervolume improvement of candidates.

Expected hypervolume improvement (Emmerich, Giannakoglou and Naujoks, IEEE Transactions on Evolutionary Computation 10, 2006), over
logarithms: a tenth less of one objective weighs as much as a tenth less of another.
"""

from collections.abc import Sequence
from functools import reduce
from math import log

import numpy as np

from strategist.expr.columns import Array
from strategist.search.candidate_features import Floats

GRID_CELLS = {2: 64, 3: 20, 4: 12}
"""Number of cells along each axis, by the number of objectives."""

REFERENCE_MARGIN = log(1.1)
"""Distance of the reference point beyond the worst of the front (natural logarithm): close enough to ignore far dominated
candidates, far enough to extend the ends of the front.
"""

WEIGHTINGS = 16
"""Number of random weightings of the objectives that select candidates along a front."""

AUGMENTATION = 0.05
"""Weight of the sum of weighted objectives beside their maximum (Knowles, ParEGO, in the same volume, equation 2)."""


def expected_hypervolume_gain(mean: Floats, deviation: Floats, runs: Floats, measured: Floats) -> Floats:
    """Expected enlargement, as a share, of the volume that the ``measured`` trials dominate, for each candidate.

    Rows are candidates or trials, columns the logarithm of each objective; ``runs`` is the probability that a candidate runs. The
    expectation is the sum, over all cells that are not dominated yet, of the probability that the candidate dominates them; errors
    of the objectives are independent. Before any trial: the gain relative to that of the best candidate.
    """
    from scipy.special import ndtr  # slow import, needed only by a search

    points = np.concatenate([mean, measured])
    low = np.concatenate([mean - deviation, measured]).min(axis=0)
    high = points[undominated(points.tolist())].max(axis=0) + REFERENCE_MARGIN
    objectives = mean.shape[1]
    count, axes = GRID_CELLS[objectives], "abcd"[:objectives]
    cells = [np.linspace(low[axis], high[axis], 2 * count + 1)[1::2] for axis in range(objectives)]
    chances = [ndtr((axis_cells - mean[:, axis, None]) / deviation[:, axis, None]) for axis, axis_cells in enumerate(cells)]
    covered = np.zeros((count,) * objectives, dtype=np.bool_)
    for row in measured[undominated(measured.tolist())]:
        covered |= reduce(np.logical_and.outer, [axis_cells >= value for axis_cells, value in zip(cells, row, strict=True)])
    added = np.einsum(f"{','.join(f'n{axis}' for axis in axes)},{axes}->n", *chances, ~covered * 1.0, optimize=True)
    share: Floats = runs * added / covered.sum() if covered.any() else runs**2 * added / added.max()
    return share


def spread_over_front(values: Floats, limit: int) -> Array:
    """At most ``limit`` row numbers along the front: the best rows by each of many weightings, in turn. ``values``: rows x
    objectives.
    """
    log_excess = np.log(values / values.min(axis=0))
    objectives = values.shape[1]
    weights = np.concatenate([np.eye(objectives), np.random.default_rng(0).dirichlet(np.ones(objectives), WEIGHTINGS)])
    scalarized = [
        (log_excess * weighting).max(axis=1) + AUGMENTATION * (log_excess * weighting).sum(axis=1) for weighting in weights
    ]
    round_robin = np.stack([np.argsort(weighting, kind="stable")[:limit] for weighting in scalarized], axis=1).ravel()
    _, first = np.unique(round_robin, return_index=True)
    return round_robin[np.sort(first)][:limit]


def undominated(values: Sequence[Sequence[float]]) -> list[int]:
    """Places of the points that no other point dominates (at least as good in every objective, and better in one)."""
    found: list[int] = []
    for index in sorted(range(len(values)), key=lambda index: tuple(values[index])):  # dominating points come first
        point = values[index]
        if not any(tuple(values[other]) != tuple(point) and _as_good(values[other], point) for other in found):
            found.append(index)
    return sorted(found)


def _as_good(point: Sequence[float], other: Sequence[float]) -> bool:
    return all(left <= right for left, right in zip(point, other, strict=True))
