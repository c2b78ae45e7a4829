"""Columns that are made when they are read are those that a table holds from the beginning."""

from dataclasses import replace

import numpy as np
from contract.samples import CLUSTER, MODEL, MOE

from strategist.contract.workload import Workload
from strategist.expr.columns import Columns, Gathered
from strategist.search.candidate_tables import candidate_table
from strategist.search.space import BLOCK_COLUMNS, space
from strategist.search.space_constraints import SpaceConstraints


def whole(columns: Columns) -> dict[str, list[object]]:
    return {name: columns.values[name].tolist() for name in columns.values}


def drawn() -> Columns:
    on = replace(CLUSTER, nodes=2, gpus_per_node=2)
    return candidate_table(space(replace(MODEL, moe=MOE), on, Workload(seq_len=64, global_batch=8), SpaceConstraints()))


def test_rows_are_taken_by_number_by_mask_and_one_after_the_other() -> None:
    columns = drawn()
    everything = whole(columns)
    numbers = np.arange(columns.rows)[::7]
    mask = np.isin(np.arange(columns.rows), numbers)
    for taken in (columns.take(numbers), columns.take(mask), columns.among(mask), columns.take(mask).take(np.arange(len(numbers)))):
        assert taken.rows == len(numbers)
        assert whole(taken) == {name: [values[row] for row in numbers] for name, values in everything.items()}
    assert (
        columns.row(3)
        == columns.take(np.array([3])).row(0)
        == Columns(values={name: np.array(values) for name, values in everything.items()}, categories=columns.categories).row(3)
    )


def test_what_is_left_of_a_table_still_comes_in_runs() -> None:
    columns = drawn()
    left = columns.among(columns.values["knobs.offload"] == 0)
    assert left.run_rows is not None
    assert left.run_rows.all()
    assert 0 < left.rows < columns.rows
    for name in BLOCK_COLUMNS:
        assert np.array_equal(np.repeat(left.runs[name], left.run_rows), left.values[name])


def test_only_what_is_read_is_made() -> None:
    columns = drawn().take(np.arange(5))
    assert isinstance(columns.values, Gathered)
    assert columns.rows == 5
    assert "layout.tp" in columns.values
    assert "layout.none" not in columns.values
    columns.row(0)
    assert not columns.values._made
    assert columns.values.get("layout.none") is None
    assert len(columns.values["layout.tp"]) == 5
    assert list(columns.values._made) == ["layout.tp"]
