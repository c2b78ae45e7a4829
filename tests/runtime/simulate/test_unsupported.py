"""Operators that torch cannot run without values are reported in one line with the settings that need them."""

from dataclasses import replace
from importlib import import_module

import pytest
from strategist_runtime.simulate.unsupported import check, unsupported_operator

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.errors import InputError

from ..plans import WORKLOAD, plan


def test_an_unsupported_operator_is_reported_with_the_settings_that_use_it():
    failing_plan = plan(workload=replace(WORKLOAD, precision="bf16", train="qlora"))
    file = import_module("strategist_runtime.simulate.unsupported").__file__.replace("simulate/unsupported.py", "model/nf4.py")
    error = error_raised_in(file)
    line = str(unsupported_operator(error, failing_plan))
    assert line.startswith("train qlora: ")
    assert "ValueError: no such kernel" in line
    assert "second line" not in line


def test_a_failure_at_an_unknown_place_names_the_plan():
    failing_plan = plan()
    assert str(unsupported_operator(RuntimeError(), failing_plan)).startswith(f"plan {failing_plan.id}: ")


def test_an_invalid_plan_is_not_simulated():
    with pytest.raises(InputError, match="sequence_parallel and loss_parallel need tp above 1"):
        check(plan(layout=Layout(dp_shard=2), knobs=Knobs(sequence_parallel=True)))


def error_raised_in(file):
    """An error raised by a function of ``file``."""
    spaces = {}
    exec(compile("def fail():\n    raise ValueError('no such kernel\\nsecond line')", file, "exec"), spaces)
    with pytest.raises(ValueError, match="no such kernel") as caught:
        spaces["fail"]()
    return caught.value
