"""Setting importance: the share of the variance of measured step times that each setting explains."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log
from statistics import fmean

from strategist.contract.knobs import Candidate, show_value
from strategist.contract.report import Influence
from strategist.contract.settings import SETTING_NAMES, value_of

Groups = dict[str, list[float]]


def influences(ran: Sequence[tuple[Candidate, float]]) -> tuple[Influence, ...]:
    """Settings that differ between measured candidates, by their influence on the step time, largest first.

    Each setting by itself (epsilon squared: Kelley, PNAS 21, 1935): the share of variance that the means by value explain, less the
    share that as many values explain by chance. Settings that always change together each get their common influence.
    """
    found = sorted(_influence_of_each(ran), key=lambda item: (-item.share, item.setting))
    return tuple(found)


def _influence_of_each(ran: Sequence[tuple[Candidate, float]]) -> Iterator[Influence]:
    for name in SETTING_NAMES:
        groups: Groups = defaultdict(list)
        for candidate, seconds in ran:
            groups[show_value(value_of(candidate, name))].append(log(seconds))
        if 1 < len(groups) < len(ran):
            means = tuple((value, exp(fmean(logs)), len(logs)) for value, logs in groups.items())
            yield Influence(setting=name, share=_share(groups), means=tuple(sorted(means, key=lambda item: item[1])))


def _share(groups: Groups) -> float:
    all_logs = [value for logs in groups.values() for value in logs]
    within = sum(_spread(logs) for logs in groups.values()) / (len(all_logs) - len(groups))
    total = _spread(all_logs) / (len(all_logs) - 1)
    return max(0.0, 1 - within / total) if total > 0 else 0.0


def _spread(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
