"""What torch can't do without values is said in a line that names the settings which lead there."""

from dataclasses import replace
from importlib import import_module

import pytest
from strategist_runtime.simulate.unsupported import check, unsupported_operator

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.errors import InputError

from ..plans import WORKLOAD, plan


def test_names_the_operator_and_the_settings_of_the_file_that_failed():
    asked = plan(workload=replace(WORKLOAD, precision="bf16", train="qlora"))
    file = import_module("strategist_runtime.simulate.unsupported").__file__.replace("simulate/unsupported.py", "model/nf4.py")
    error = failing(file)
    line = str(unsupported_operator(error, asked))
    assert line.startswith("train qlora: ")
    assert "ValueError: no such kernel" in line
    assert "second line" not in line


def test_a_failure_of_no_known_place_names_the_plan():
    asked = plan()
    assert str(unsupported_operator(RuntimeError(), asked)).startswith(f"plan {asked.id}: ")


def test_what_no_trial_runs_is_not_simulated():
    with pytest.raises(InputError, match="sequence_parallel and loss_parallel need tp above 1"):
        check(plan(layout=Layout(dp_shard=2), knobs=Knobs(sequence_parallel=True)))


def failing(file):
    """An error that a function of ``file`` raised."""
    spaces = {}
    exec(compile("def fail():\n    raise ValueError('no such kernel\\nsecond line')", file, "exec"), spaces)
    with pytest.raises(ValueError, match="no such kernel") as caught:
        spaces["fail"]()
    return caught.value
