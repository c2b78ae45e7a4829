"""Held-out groups: rows that no shipped calibration was fitted to, by (source, model, number of GPUs); a fixed list."""

from functools import cache

from strategist import yamlfile
from strategist.accuracy.case import Case
from strategist.paths import data_dir

Group = tuple[str, str, int]


@cache
def held_out_groups() -> frozenset[Group]:
    """The list in ``profiles/measurements/held-out.yaml``: source (a file's stem), model, numbers of GPUs."""
    document = yamlfile.load(data_dir("profiles") / "measurements" / "held-out.yaml")
    listed: dict[str, dict[str, list[int]]] = document.data
    return frozenset(
        (source, model, devices) for source, models in listed.items() for model, counts in models.items() for devices in counts
    )


def held_out(case: Case) -> bool:
    """Whether the case's group is held out."""
    return (case.row.file, case.row.model, case.cluster.devices) in held_out_groups()
