"""Evaluation on scalars and on columns gives equal results."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.expr.check import condition, quantity
from strategist.expr.columns import CANDIDATE_NAMES, Columns, row_of, table
from strategist.expr.evaluate import mask, scalar, truth
from strategist.expr.parse import MAX_LENGTH

GIB = 2**30
FACTS: dict[str, Any] = {"model.layers": 12, "model.parameter_bytes": 64e9, "device.memory_bytes": 24 * GIB, "model.is_moe": False}
NUMBERS = ("layout.tp", "layout.dp_shard", "knobs.accumulation", "model.layers", "cluster.nodes", "0", "1", "2", "3.5")
CONDITIONS = ("knobs.recompute == 'full'", "knobs.recompute != 'none'", "knobs.sequence_parallel", "model.is_moe", "true")


def candidates() -> Columns:
    rows = []
    for tp in (1, 2, 4):
        for recompute in ("none", "full"):
            knobs = Knobs(recompute=recompute, reshard_after_forward=tp > 1, sequence_parallel=tp > 1)
            rows.append(row_of(Candidate(layout=Layout(tp=tp, dp_shard=8 // tp), knobs=knobs), 2))
    return table(rows)


def in_runs(columns: Columns) -> Columns:
    """The table with runs of equal layouts: pairs of rows, and one empty run."""
    runs = {name: column[[0, 0, 2, 4]] for name, column in columns.values.items() if name.startswith("layout.")}
    return replace(columns, runs=runs, run_rows=np.array([2, 0, 2, 2]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("model.layers == 12", True),
        ("model.layers > 12", False),
        ("cluster.nodes > 1", None),
        ("cluster.nodes > 1 and model.layers > 12", False),
        ("cluster.nodes > 1 or model.layers == 12", True),
        ("cluster.nodes > 1 and model.layers == 12", None),
        ("not cluster.nodes > 1", None),
        ("cluster.nodes in [1, 2]", None),
        ("model.layers / (model.layers - 12) > 1", None),
        ("model.layers % (model.layers - 12) == 0 or true", True),
        ("divides(5, model.layers)", False),
        ("divides(model.layers - 12, model.layers)", None),
        ("not model.is_moe and model.is_moe == false", True),
        ("max(model.layers, 20) - min(1, 2, 3) == 19 and abs(-2) == 2", True),
        ("sqrt(model.layers * 3) == 6 and sqrt(4 s * 1 s) == 2 s", True),
        ("sqrt(model.layers - 13) > 1", None),
        ("ceil(model.layers / 5) == 3 and floor(model.layers / 5) == 2 and model.layers // 5 == 2", True),
    ],
)
def test_scalars_follow_kleene_logic(text: str, value: bool | None) -> None:
    assert scalar(condition(text), FACTS) is value


def test_none_and_nan_are_unknown_and_quantities_are_numbers() -> None:
    assert scalar(condition("observed.mfu > 0.1"), {"observed.mfu": None}) is None
    assert scalar(condition("observed.mfu > 0.1 or not observed.mfu > 0.1"), {"observed.mfu": float("nan")}) is None
    assert scalar(quantity("model.layers * 2"), FACTS) == 24
    assert scalar(quantity("24 GiB"), {}) == 24 * 2**30
    assert scalar(condition("1.5 s == 1500 ms and 1 GB < 1 GiB and 1 PFLOPS == 1000 TFLOPS"), {}) is True


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("layout.tp > 1", [2, 3, 4, 5]),
        ("knobs.recompute == 'full'", [1, 3, 5]),
        ("knobs.recompute != 'full'", [0, 2, 4]),
        ("knobs.recompute in ['full', 'selective'] and layout.tp in [1, 4]", [1, 5]),
        ("knobs.reshard_after_forward == true", [2, 3, 4, 5]),
        ("knobs.sequence_parallel and not knobs.sequence_parallel == false", [2, 3, 4, 5]),
        ("1 < layout.tp < 4", [2, 3]),
        ("divides(layout.tp + 1, model.layers)", [0, 1, 2, 3]),
        ("layout.tp / (layout.tp - 1) > 1", [2, 3, 4, 5]),
        ("not layout.tp / (layout.tp - 1) > 1", []),
        ("cluster.nodes > 1 and layout.tp > 1", []),
        ("not (cluster.nodes > 1 and layout.tp > 1)", [0, 1]),
        ("cluster.nodes > 1 or layout.tp > 1", [2, 3, 4, 5]),
        ("layout.tp * cluster.nodes in [1, 2]", []),
        ("model.parameter_bytes / layout.tp > 1.1 * device.memory_bytes", [0, 1, 2, 3]),
        ("model.layers == 12", [0, 1, 2, 3, 4, 5]),
        ("sqrt(layout.tp) < 2", [0, 1, 2, 3]),
        ("not sqrt(layout.tp - 2) > 1", [2, 3]),
        ("max(layout.tp, 2) == 2 and ceil(layout.tp / 4) == 1", [0, 1, 2, 3]),
    ],
)
def test_a_mask_is_true_only_where_the_condition_is_known_to_hold(text: str, rows: list[int]) -> None:
    assert np.flatnonzero(mask(condition(text), FACTS, candidates())).tolist() == rows


def test_a_constant_condition_is_one_bool() -> None:
    assert truth(condition("model.layers == 12"), FACTS, candidates()) is True
    assert truth(condition("model.layers == 11 and layout.tp > 1"), FACTS, candidates()) is False
    assert truth(condition("cluster.nodes == 1"), FACTS, candidates()) is False


def test_products_of_columns_do_not_overflow() -> None:
    columns = Columns(values={"layout.tp": np.array([2**31, 1])})
    text = "layout.tp * layout.tp * layout.tp * layout.tp > 1e30"
    assert mask(condition(text), {}, columns).tolist() == [True, False]


@settings(max_examples=50)
@given(st.data())
def test_scalars_columns_and_runs_agree_on_every_row(data: st.DataObject) -> None:
    numbers = st.sampled_from(NUMBERS)
    arithmetic = st.recursive(
        numbers,
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner)
            | st.builds("min({}, {})".format, inner, inner)
        ),
        max_leaves=5,
    )
    leaves = (
        st.builds("{} {} {}".format, arithmetic, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), arithmetic)
        | st.builds("divides({}, {})".format, arithmetic, arithmetic)
        | st.builds("{} in [1, 2]".format, arithmetic)
        | st.sampled_from(CONDITIONS)
    )
    logic = st.recursive(
        leaves,
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner) | st.builds("(not {})".format, inner)
        ),
        max_leaves=5,
    )
    text = data.draw(logic.filter(lambda text: len(text) <= MAX_LENGTH))
    expression, columns = condition(text), candidates()
    expected = [scalar(expression, {**FACTS, **columns.row(index)}) is True for index in range(columns.rows)]
    assert mask(expression, FACTS, columns).tolist() == expected
    assert mask(expression, FACTS, in_runs(columns)).tolist() == expected


def test_rows_of_a_table_are_decoded_and_selected() -> None:
    columns = candidates()
    row = columns.row(1)
    assert set(row) >= set(CANDIDATE_NAMES)
    assert (row["knobs.recompute"], row["layout.tp"], row["knobs.reshard_after_forward"]) == ("full", 1, False)
    assert (row["layout.model_shards"], row["layout.data_ranks"], row["knobs.accumulation"]) == (8, 8, 2)
    assert type(row["layout.tp"]) is int
    assert columns.take(columns.values["layout.tp"] == 4).rows == 2
    assert columns.take(np.array([5, 0])).row(0)["layout.tp"] == 4
    assert Columns(values={}).rows == 0
