"""Ranking: cards reject, the cost model prices, the objective orders, preferences break near ties."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from strategist.cards.deck import Deck
from strategist.contract.cluster import Cluster
from strategist.contract.estimate import SURE
from strategist.contract.knobs import CHOICES, KNOB_NAMES, Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.settings import PARTS, with_settings
from strategist.contract.stack import TORCH, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.candidate_arrays import Floats
from strategist.cost.heterogeneous_nodes import price_mixed
from strategist.cost.price import Priced
from strategist.errors import InputError
from strategist.expr.columns import Array, Columns
from strategist.expr.evaluate import Facts, Mask
from strategist.rules.policy_evaluation import PART_ROWS, Rejection, judge, preferences
from strategist.search.candidate_tables import block_table, knob_table, table_of
from strategist.search.options import decided
from strategist.search.space import Block, Bounds, space
from strategist.units import GIB

NEAR_TIE = 0.04
"""Objectives closer than this share are equal to the model's eyes, and cards' preferences decide."""

_BLANK = Candidate(layout=Layout(), knobs=Knobs())


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The allowed candidates with their prices, what cards ``prefer`` of those that fit, and ``order``: these, best first.

    Of pipelines that were simulated ``weighted`` are the rows whose stages are cut by weight.
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
        """Whether something fits that keeps nothing in host memory."""
        none, stays = CHOICES["offload"].index("none"), CHOICES["activation_offload"].index(False)
        chosen = {name: self.columns.values[f"knobs.{name}"][self.order] for name in ("offload", "activation_offload")}
        return bool(((chosen["offload"] == none) & (chosen["activation_offload"] == stays)).any())


def rank(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    *,
    bounds: Bounds,
    deck: Deck,
    facts: Facts,
    calibration: Calibration,
    objective: str,
    confidence: float = SURE,
    blocks: Sequence[Block] | None = None,
    stack: Stack = TORCH,
    all_timed: bool = True,
    first: int | None = None,
) -> Ranking:
    """Walks the whole space. Equal input gives equal order.

    ``confidence`` is how surely a candidate must fit; what does not may go without a time, unless ``all_timed``. ``stack`` is the
    system whose runs are priced; ``blocks`` is the space where it is known already: it does not depend on what is trained how.
    Where only the ``first`` places matter, a large table keeps little else: the other candidates and their counts are left out.

    Raises:
        InputError: there is no legal candidate at all, or the back end refuses all that the cards would look at.
    """
    blocks = space(model, cluster, workload, bounds) if blocks is None else blocks
    for defaults in (True, False):
        columns, dropped, refused = _allowed(blocks, deck, facts, bounds, defaults=defaults)
        price = partial(
            price_mixed,
            model,
            cluster,
            workload,
            calibration=calibration,
            stack=stack,
            confidence=None if all_timed else confidence,
        )
        if first and columns.rows > PART_ROWS:
            columns = _first(columns, price, objective, confidence, first)
        priced = price(columns)
        fits, hosts = priced.fits_with(confidence), priced.fits_host
        fitting, prefer = np.flatnonzero(fits & hosts), np.zeros(columns.rows)
        prefer[fitting] = preferences(deck, facts, columns.take(fitting))
        if len(fitting) or not refused:
            break  # else what the back end refuses may be what the cards' defaults have left
    return Ranking(
        columns=columns,
        priced=priced,
        prefer=prefer,
        order=fitting[in_order(priced, prefer, objective, fitting)],
        candidates=sum(block.rows for block in blocks) - refused,
        dropped=dropped,
        too_large=int(np.count_nonzero(~fits)),
        host_too_small=int(np.count_nonzero(fits & ~hosts)),
    )


def _first(columns: Columns, price: Callable[[Columns], Priced], objective: str, confidence: float, places: int) -> Columns:
    """The candidates that fit and may come on one of the first ``places``, with the near ties of the last of them. One that does
    not fit stands for all where none does."""
    best, rows, values = np.zeros(0), [], []
    for place, part in columns.parts(PART_ROWS):
        priced = price(part)
        fitting = np.flatnonzero(priced.fits_with(confidence) & priced.fits_host)
        value = spent(priced, objective)[fitting]
        best = np.sort(np.append(best, value))[:places]
        near = value <= _limit(best, places)
        rows.append(place.start + fitting[near])
        values.append(value[near])
    found = np.concatenate(rows)[np.concatenate(values) <= _limit(best, places)]
    return columns.take(found if len(found) else np.zeros(1, dtype=np.int64))


def _limit(best: Floats, places: int) -> float:
    return float(best[-1]) * (1 + NEAR_TIE) if len(best) == places else np.inf


def _allowed(
    blocks: Sequence[Block], deck: Deck, facts: Facts, bounds: Bounds, *, defaults: bool
) -> tuple[Columns, tuple[Rejection, ...], int]:
    """The candidates that the cards leave, and the rejections by policy: first what layouts and micro-batches alone decide, then
    what knobs alone decide, so that the rest stays small. Of that rest the back end refuses some, whose number comes last.

    ``defaults`` narrow early as well; where that leaves laws on whole candidates nothing, early passes are walked again by laws
    alone. Without them laws decide alone.
    """
    fixed = bounds.open
    for early_defaults in (True, False) if defaults else (False,):
        left, by_block = _narrowed_blocks(blocks, deck, facts, fixed, early_defaults)
        everything, by_knobs = _narrowed_knobs(left, deck, facts, fixed, early_defaults)
        known = {**facts, **decided(bounds)}
        refused, left_out = _left_out(bounds, known, everything)
        judgement = judge(deck, facts, everything, fixed=fixed, among=~left_out, defaults=defaults)
        if judgement.allowed.any():
            break
    if len(refused) and refused.all():
        row = everything.row(int(refused.argmax()))
        text = next(bounds.backend.together({**known, **row}))
        raise InputError(f"--backend {bounds.backend.name}", f"cannot run {text}", "or plan without --backend")
    return everything.take(judgement.allowed), _merged((*by_block, *by_knobs, *judgement.dropped)), int(left_out.sum())


def _left_out(bounds: Bounds, known: Facts, everything: Columns) -> tuple[Mask, Mask]:
    """The candidates that the back end refuses; and these with those that change the trained model without being allowed."""
    refused, unasked = np.zeros((2, everything.rows), dtype=np.bool_)
    for place, part in everything.parts(PART_ROWS):
        refused[place] = bounds.backend.refused(known, part)
        unasked[place] = bounds.backend.unasked(known, part, bounds.open)
    return refused, refused | unasked


def _narrowed_blocks(
    blocks: Sequence[Block], deck: Deck, facts: Facts, fixed: frozenset[str], defaults: bool
) -> tuple[list[Block], tuple[Rejection, ...]]:
    """The blocks without those that no knobs could save."""
    rows = np.array([block.rows for block in blocks])
    judgement = judge(deck, facts, block_table(blocks), fixed=fixed, weights=rows, defaults=defaults)
    return [block for block, allowed in zip(blocks, judgement.allowed, strict=True) if allowed], judgement.dropped


def _narrowed_knobs(
    blocks: Sequence[Block], deck: Deck, facts: Facts, fixed: frozenset[str], defaults: bool
) -> tuple[Columns, tuple[Rejection, ...]]:
    """The candidates of the blocks without the combinations of knobs that no layout could save; blocks share grids, so each is
    asked once."""
    grids = {id(block.grid): block.grid for block in blocks}
    knobs, places = knob_table(list(grids.values()))
    used = Counter(id(block.grid) for block in blocks)
    if not blocks:
        return table_of(blocks, knobs, places), ()
    weights = np.repeat([used[key] for key in places], [len(rows) for rows in places.values()])
    judgement = judge(deck, facts, knobs, fixed=fixed, weights=weights, defaults=defaults)
    left = {key: rows[judgement.allowed[rows]] for key, rows in places.items()}
    return table_of([block for block in blocks if len(left[id(block.grid)])], knobs, left), judgement.dropped


def _merged(drops: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
    """One drop a policy, most first."""
    counts: dict[tuple[str, str, str], int] = {}
    for drop in drops:
        key = (drop.card, drop.policy, drop.because)
        counts[key] = counts.get(key, 0) + drop.rows
    merged = [Rejection(card=c, policy=p, because=b, rows=rows) for (c, p, b), rows in counts.items()]
    return tuple(sorted(merged, key=lambda drop: (-drop.rows, drop.card, drop.policy)))


def in_order(priced: Priced, preference: Floats, objective: str, rows: Array) -> Array:
    """By classes of near ties; in them by host memory, which costs money, then preference, then the objective itself."""
    value = spent(priced, objective)[rows]
    if not len(value):
        return np.zeros(0, dtype=np.int64)
    classes = np.floor(np.log(value / value.min()) / np.log1p(NEAR_TIE))
    host = np.round(priced.host_memory_bytes_per_node[rows] / GIB)
    return np.lexsort((np.arange(len(rows)), priced.step_seconds[rows], value, -preference[rows], host, classes))


def spent(priced: Priced, objective: str) -> Floats:
    """What the objective wants least of; on a given cluster money is time."""
    joules = priced.energy_joules_per_step if objective == "energy" else None
    if joules is not None:
        return joules
    return priced.peak_memory_bytes if objective == "memory" else priced.step_seconds


def candidate(columns: Columns, row: int) -> Candidate:
    """One row of a table as a candidate, its options at their defaults."""
    values = columns.row(row)
    layout = {name: values[f"layout.{name}"] for name in PARTS["layout"]}
    return with_settings(_BLANK, layout | {name: values[f"knobs.{name}"] for name in KNOB_NAMES})
