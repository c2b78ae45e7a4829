"""Accuracy: every published row priced as a plan would be, and what the differences amount to."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from strategist.accuracy.case import Case, case_of
from strategist.accuracy.figures import Figures, Judged, figures
from strategist.accuracy.row import Row
from strategist.accuracy.skip import Skipped
from strategist.cost.price import price
from strategist.expr.columns import row_of, table


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Figures by source (a file's stem), device and model family, and of all rows: weighted by rows, and as mean of the sources."""

    sources: tuple[Figures, ...]
    devices: tuple[Figures, ...]
    families: tuple[Figures, ...]
    overall: Figures
    mean_of_sources: Figures
    judged: tuple[Judged, ...]


def read_cases(rows: Iterable[Row]) -> tuple[list[Case], dict[str, Counter[str]]]:
    """The cases of all rows that can be priced, and by file how many others there are for which reason."""
    cases: list[Case] = []
    skipped: dict[str, Counter[str]] = {}
    for row in rows:
        reasons = skipped.setdefault(row.file, Counter())
        try:
            cases.append(case_of(row))
        except Skipped as skip:
            reasons[skip.reason.value] += 1
    return cases, skipped


def judge(cases: Sequence[Case]) -> list[Judged]:
    """Predictions for all cases; those that share all but the layout are priced as one table."""
    groups: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        key = repr((case.model, case.cluster, case.workload, case.stack))
        groups.setdefault(key, []).append(index)
    found: dict[int, Judged] = {}
    for members in groups.values():
        first = cases[members[0]]
        columns = table([row_of(cases[index].candidate, cases[index].accumulation) for index in members])
        priced = price(first.model, first.cluster, first.workload, columns, stack=first.stack)
        allocated = priced.peak_memory_bytes - priced.memory["allocator"]
        for at, index in enumerate(members):
            case = cases[index]
            memory = priced.peak_memory_bytes if case.reserved else allocated
            found[index] = Judged(
                case=case,
                step_seconds=float(priced.step_seconds[at]),
                peak_memory_bytes=float(memory[at]),
                fits=bool(priced.fits_device[at]),
            )
    return [found[index] for index in range(len(cases))]


def accuracy(rows: Iterable[Row]) -> Accuracy:
    """How far predictions are from what was published."""
    cases, skipped = read_cases(rows)
    judged = judge(cases)
    sources = tuple(
        figures(name, [item for item in judged if item.case.row.file == name], dict(reasons)) for name, reasons in skipped.items()
    )
    overall = figures("overall", judged, dict(sum(skipped.values(), Counter())))
    return Accuracy(
        sources=sources,
        devices=_by(judged, lambda item: item.case.cluster.device.name),
        families=_by(judged, lambda item: family(item.case)),
        overall=overall,
        mean_of_sources=_mean_of(sources),
        judged=tuple(judged),
    )


def family(case: Case) -> str:
    """The model's family: the first word of its name, and whether it has experts."""
    words = case.model.name.replace("-", " ").replace("_", " ").split()
    return (words[0].rstrip("0123456789.:") or words[0]) + (" (experts)" if case.model.moe else "")


def _by(judged: Sequence[Judged], name: Callable[[Judged], str]) -> tuple[Figures, ...]:
    groups: dict[str, list[Judged]] = {}
    for item in judged:
        groups.setdefault(name(item), []).append(item)
    return tuple(figures(group, groups[group]) for group in sorted(groups))


_MEANS = (
    "step_time_mape", "step_time_median_ape", "step_time_bias", "spearman", "top1_regret", "top1_regret_worst", "peak_memory_mape",
    "oom_f1", "interval_coverage",
)  # fmt: skip


def _mean_of(sources: Sequence[Figures]) -> Figures:
    """The plain mean of the sources' figures, so that a large sweep counts as much as a small table."""
    means: dict[str, float | None] = {}
    for name in _MEANS:
        known = [value for source in sources if (value := getattr(source, name)) is not None]
        means[name] = float(np.mean(known)) if known else None
    empty = Figures(name="mean of sources", rows_used=sum(source.rows_used for source in sources))
    return replace(empty, rows_skipped=sum(source.rows_skipped for source in sources), **means)
