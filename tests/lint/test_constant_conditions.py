"""Conditions that cannot vary."""

import pytest

from strategist.expr.check import condition
from strategist.lint.constant_conditions import constant_part


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("1 > 2", (0, False)),
        ("true", (0, True)),
        ("layout.tp >= 1", (0, True)),
        ("layout.tp < 1", (0, False)),
        ("1 <= layout.tp", (0, True)),
        ("model.layers > 4 and knobs.accumulation > 0", (21, True)),
        ("observed.comm_ratio > 1", (0, False)),
        ("observed.comm_ratio <= 1", (0, True)),
        ("model.layers == model.layers", (0, True)),
        ("workload.train in ['full', 'lora', 'qlora']", (0, True)),
        ("not (layout.pp == 0)", (5, False)),
        ("layout.tp > 1", None),
        ("model.experts > 0", None),
        ("observed.step_seconds_spread > 1", None),
        ("observed.comm_ratio < 1", None),
        ("observed.mfu > 1", None),
        ("knobs.recompute in ['none', 'full']", None),
        ("layout.tp == layout.pp", None),
    ],
)
def test_a_constant_part_of_a_condition_is_found(text: str, constant: tuple[int, bool] | None) -> None:
    assert constant_part(condition(text)) == constant
