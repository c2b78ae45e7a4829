"""Ranking: cards reject candidates, the cost model prices the rest, the objective orders them, and cards' preferences break near
ties.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from strategist.cards.deck import Deck
from strategist.contract.cluster import Cluster
from strategist.contract.estimate import DEFAULT_CONFIDENCE
from strategist.contract.knobs import CHOICES, KNOB_NAMES, Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.settings import PARTS, with_settings
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.candidate_arrays import Floats
from strategist.cost.heterogeneous_nodes import price_heterogeneous
from strategist.cost.lower_bounds import lower_bounds
from strategist.cost.price import Priced, memory_margin
from strategist.expr.columns import Array, Columns
from strategist.expr.evaluate import Facts, Mask
from strategist.rules.policy_evaluation import PART_ROWS, Rejection, judge, preferences
from strategist.search.blocks import Space
from strategist.search.card_filter import Allowed, SearchCriteria, allowed_of, left_out, narrowed_of
from strategist.search.options import forced_options
from strategist.search.pruning import Limits
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints
from strategist.units import GIB

NEAR_TIE = 0.04
"""Objectives closer than this share count as equal; the cards' preferences then decide."""

_BLANK = Candidate(layout=Layout(), knobs=Knobs())


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Allowed candidates with their prices, in order.

    columns: the candidates, one row each.
    prefer: weight of the cards' preferences for each row that fits.
    order: rows that fit, best first.
    candidates: number of candidates before cards were applied.
    dropped: rejections by policy.
    too_large, host_too_small: number of candidates that do not fit the devices, and of the others those that do not fit the hosts.
    weighted: rows of simulated pipelines whose stages are split by weight.
    """

    columns: Columns
    priced: Priced
    prefer: Floats
    order: Array
    candidates: int
    dropped: tuple[Rejection, ...]
    too_large: int
    host_too_small: int
    weighted: frozenset[int] = frozenset()

    @property
    def fits_without_hosts(self) -> bool:
        """Whether a candidate fits that keeps no state in host memory."""
        none, stays = CHOICES["offload"].index("none"), CHOICES["activation_offload"].index(False)
        chosen = {name: self.columns.values[f"knobs.{name}"][self.order] for name in ("offload", "activation_offload")}
        return bool(((chosen["offload"] == none) & (chosen["activation_offload"] == stays)).any())


def rank(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    *,
    constraints: SpaceConstraints,
    deck: Deck,
    facts: Facts,
    calibration: Calibration,
    objective: str,
    confidence: float = DEFAULT_CONFIDENCE,
    blocks: Space | None = None,
    stack: Stack = NATIVE,
    all_timed: bool = True,
    first: int | None = None,
    within_seconds: float = np.inf,
) -> Ranking:
    """Ranks all candidates of a space. Equal input gives equal order.

    Args:
        confidence: probability with which a candidate must fit. Candidates that do not fit need no step time, unless ``all_timed``.
        blocks: the space, if it is known already; it does not depend on the train mode.
        stack: the software stack whose runs are priced.
        first, within_seconds: if only the ``first`` places with a step ``within_seconds`` matter, other candidates and their
            counts are left out as far as lower bounds allow.

    Raises:
        InputError: there is no legal candidate, or the back end refuses all that the cards allow.
    """
    blocks = space(model, cluster, workload, constraints) if blocks is None else blocks
    price = partial(
        price_heterogeneous,
        model,
        cluster,
        workload,
        calibration=calibration,
        stack=stack,
        confidence=None if all_timed else confidence,
    )
    limits = Limits(step_seconds=within_seconds, memory_margin=memory_margin(calibration.memory_spread, confidence))
    bound = None if cluster.groups else partial(lower_bounds, model, cluster, workload, calibration=calibration, stack=stack)
    criteria = SearchCriteria(deck=deck, facts=facts, constraints=constraints, limits=limits, lower_bounds=bound)
    ranked = partial(
        _ranked, price=price, criteria=criteria, objective=objective, confidence=confidence, all_timed=all_timed, first=first
    )
    candidates = blocks.candidates
    if first and (pruned := _pruned(blocks, criteria, ranked)):
        return replace(pruned, candidates=candidates)
    for defaults in (True, False):
        allowed, dropped, refused = allowed_of(blocks, criteria, defaults=defaults)
        found = ranked(allowed, dropped=dropped, candidates=candidates - refused)
        if len(found.order) or not refused:
            break  # otherwise the cards' defaults may have left only candidates that the back end refuses
    return found


def _ranked(
    allowed: Allowed,
    *,
    price: Callable[[Columns], Priced],
    criteria: SearchCriteria,
    objective: str,
    confidence: float,
    all_timed: bool,
    first: int | None,
    dropped: tuple[Rejection, ...] = (),
    candidates: int = 0,
) -> Ranking:
    """The allowed candidates, priced and in order; of a large table, unless ``all_timed``, only those that fit."""
    columns, counts = allowed.columns, None
    if columns.rows > PART_ROWS and not all_timed:
        columns, *counts = _fitting(columns, allowed.could(criteria), price, objective, confidence, first)
    priced = price(columns)
    fits, hosts = priced.fits_with(confidence), priced.fits_host
    fitting, prefer = np.flatnonzero(fits & hosts), np.zeros(columns.rows)
    prefer[fitting] = preferences(criteria.deck, criteria.facts, columns.take(fitting))
    too_large, host_too_small = counts or map(np.count_nonzero, (~fits, fits & ~hosts))
    return Ranking(
        columns=columns,
        priced=priced,
        prefer=prefer,
        order=fitting[in_order(priced, prefer, objective, fitting)],
        candidates=candidates,
        dropped=dropped,
        too_large=int(too_large),
        host_too_small=int(host_too_small),
    )


def _pruned(blocks: Space, criteria: SearchCriteria, ranked: Callable[[Allowed], Ranking]) -> Ranking | None:
    """The ranking of the candidates that pruning leaves, if its first places are proved equal to those of all candidates; else
    None.

    They are equal if some candidate fits and no default of the cards gives way but those that do for all candidates, or if nothing
    fits under the cards' laws alone and the back end refuses none of it.
    """
    known_facts, found = {**criteria.facts, **forced_options(criteria.constraints)}, None
    for defaults in (True, False):
        narrowed = narrowed_of(blocks, criteria, defaults=defaults)
        families = narrowed.families(criteria)
        if families is None:
            return None
        columns = families.candidates
        _, excluded = left_out(criteria.constraints, known_facts, columns)
        judgement = judge(
            criteria.deck, criteria.facts, columns, fixed=criteria.constraints.open, among=~excluded, defaults=defaults
        )
        found = ranked(Allowed(columns=columns.take(judgement.allowed)))
        if len(found.order):
            return found if defaults and judgement.gave_way <= narrowed.gave_way else None
    return None if excluded.any() else found


def _fitting(
    columns: Columns, could: Mask, price: Callable[[Columns], Priced], objective: str, confidence: float, count: int | None
) -> tuple[Columns, int, int]:
    """Candidates that fit, out of those that ``could``, then the number too large for the devices, and of the others for the hosts.

    With ``count``, only candidates that may take one of the first places, with near ties of the last one. If nothing fits, the
    candidates nearest to fitting are returned instead.
    """
    best, kept_rows, values, nearest, too_large, host_too_small = np.zeros(0), [], [], [], columns.rows, 0
    for rows, part in columns.parts(PART_ROWS):
        possible = np.flatnonzero(could[rows])
        priced = price(part.take(possible))
        fits, hosts = priced.fits_with(confidence), priced.fits_host
        fitting = np.flatnonzero(fits & hosts)
        value = objective_cost(priced, objective)[fitting]
        best = np.sort(np.append(best, value))[:count]
        is_near_tie = value <= _near_tie_limit(best, count)
        kept_rows.append(rows.start + possible[fitting[is_near_tie]])
        values.append(value[is_near_tie])
        nearest.append(rows.start + possible[_nearest_to_fit(priced)])
        too_large -= int(np.count_nonzero(fits))
        host_too_small += int(np.count_nonzero(fits & ~hosts))
    found = np.concatenate(kept_rows)[np.concatenate(values) <= _near_tie_limit(best, count)]
    if not len(found) and not could.all():
        return _fitting(columns, np.ones_like(could), price, objective, confidence, count)
    return columns.take(found if len(found) else np.concatenate(nearest)), too_large, host_too_small


def _nearest_to_fit(priced: Priced) -> Array:
    """The row with the least device memory, and among rows that fit the device the one with the least host memory."""
    if not len(priced.peak_memory_bytes):
        return np.zeros(0, dtype=np.int64)
    on_devices = np.flatnonzero(priced.peak_memory_bytes <= priced.capacity_bytes)
    hosts = on_devices[np.argmin(priced.host_memory_bytes_per_node[on_devices])][None] if len(on_devices) else on_devices
    return np.unique(np.append(np.argmin(priced.peak_memory_bytes), hosts))


def _near_tie_limit(best: Floats, count: int | None) -> float:
    return float(best[-1]) * (1 + NEAR_TIE) if count and len(best) == count else np.inf


def in_order(priced: Priced, preference: Floats, objective: str, rows: Array) -> Array:
    """Rows in order of merit: by classes of near ties; within a class by host memory (GiB), preference of cards, objective, step
    time.
    """
    value = objective_cost(priced, objective)[rows]
    if not len(value):
        return np.zeros(0, dtype=np.int64)
    classes = np.floor(np.log(value / value.min()) / np.log1p(NEAR_TIE))
    host = np.round(priced.host_memory_bytes_per_node[rows] / GIB)
    return np.lexsort((np.arange(len(rows)), priced.step_seconds[rows], value, -preference[rows], host, classes))


def objective_cost(priced: Priced, objective: str) -> Floats:
    """The quantity that the objective minimises. On a given cluster cost is proportional to time."""
    joules = priced.energy_joules_per_step if objective == "energy" else None
    if joules is not None:
        return joules
    return priced.peak_memory_bytes if objective == "memory" else priced.step_seconds


def candidate(columns: Columns, row: int) -> Candidate:
    """One row of a table as a candidate, with default options."""
    values = columns.row(row)
    layout = {name: values[f"layout.{name}"] for name in PARTS["layout"]}
    return with_settings(_BLANK, layout | {name: values[f"knobs.{name}"] for name in KNOB_NAMES})
