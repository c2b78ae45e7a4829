"""Columns computed when read equal the columns of a complete table."""

from dataclasses import replace

import numpy as np
from contract.samples import CLUSTER, MODEL, MOE

from strategist.contract.workload import Workload
from strategist.expr.columns import Columns, Gathered
from strategist.search.blocks import BLOCK_COLUMNS
from strategist.search.candidate_tables import candidate_table
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints


def all_values(columns: Columns) -> dict[str, list[object]]:
    return {name: columns.values[name].tolist() for name in columns.values}


def sample_table() -> Columns:
    on = replace(CLUSTER, nodes=2, gpus_per_node=2)
    return candidate_table(space(replace(MODEL, moe=MOE), on, Workload(seq_len=64, global_batch=8), SpaceConstraints()))


def test_rows_are_selected_by_number_and_by_mask() -> None:
    columns = sample_table()
    everything = all_values(columns)
    numbers = np.arange(columns.rows)[::7]
    mask = np.isin(np.arange(columns.rows), numbers)
    for taken in (columns.take(numbers), columns.take(mask), columns.among(mask), columns.take(mask).take(np.arange(len(numbers)))):
        assert taken.rows == len(numbers)
        assert all_values(taken) == {name: [values[row] for row in numbers] for name, values in everything.items()}
    assert (
        columns.row(3)
        == columns.take(np.array([3])).row(0)
        == Columns(values={name: np.array(values) for name, values in everything.items()}, categories=columns.categories).row(3)
    )


def test_a_filtered_table_keeps_its_runs() -> None:
    columns = sample_table()
    left = columns.among(columns.values["knobs.offload"] == 0)
    assert left.run_rows is not None
    assert left.run_rows.all()
    assert 0 < left.rows < columns.rows
    for name in BLOCK_COLUMNS:
        assert np.array_equal(np.repeat(left.runs[name], left.run_rows), left.values[name])


def test_only_columns_that_are_read_are_computed() -> None:
    columns = sample_table().take(np.arange(5))
    assert isinstance(columns.values, Gathered)
    assert columns.rows == 5
    assert "layout.tp" in columns.values
    assert "layout.none" not in columns.values
    columns.row(0)
    assert not columns.values._made
    assert columns.values.get("layout.none") is None
    assert len(columns.values["layout.tp"]) == 5
    assert list(columns.values._made) == ["layout.tp"]
