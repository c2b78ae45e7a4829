"""Every technique and every mixture trains as one process does: losses, gradient norms, and all gradients of the first step."""

import json
from functools import cache

import numpy as np
import pytest

from .cases import cases
from .launch import NO_COMPILER, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]

EXACT = 1e-5
"""Relative, in fp32: other orders of summation reach 1e-6."""

TOLERANCES = {"exact": (EXACT, EXACT), "fp16": (1e-4, 1e-2), "bf16": (1e-3, 5e-2), "float8": (1e-3, 0.3), "low rank": (5e-3, 1.0)}
"""Of losses and of gradients. bf16 has 8 bits of mantissa, so a gradient may be wrong in its third digit, fp16 11, float8 3; the
loss is a mean over many tokens. PowerSGD's gradients lack what it sends later; those of the first step are whole."""

NOTHING = 1e-6
"""Of the whole gradient's norm: what is smaller is rounding, such as the gradient of the keys' biases in a model without rotary
positions, in which a bias moves all scores of a query alike."""

CASES = {name: plan for name, plan in cases() if not name.startswith("reference")}


@pytest.fixture(scope="session")
def shown(tmp_path_factory):
    """What each case showed, by name; all cases of one world size share their processes."""

    @cache
    def of_world(world):
        target = tmp_path_factory.mktemp("parity") / f"{world}.json"
        done = torchrun(world, ["runtime.parity_rank", str(target)], timeout=190, **NO_COMPILER)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(target.read_text(encoding="utf-8"))

    return lambda name, world: of_world(world)[name]


@pytest.mark.parametrize("name", CASES)
def test_a_parallel_run_trains_as_one_process_does(name, shown):
    compare(name, shown(name, CASES[name].candidate.layout.world_size), shown)


def test_so_does_one_with_fused_kernels_where_there_is_a_compiler(shown, tmp_path):
    name = "compile fsdp full"
    done = torchrun(2, ["runtime.parity_rank", str(tmp_path / "fused.json"), name], timeout=190)
    assert done.returncode == 0, done.stdout + done.stderr
    compare(name, json.loads((tmp_path / "fused.json").read_text(encoding="utf-8"))[name], shown)


def compare(name, found, shown):
    plan = CASES[name]
    clipped = " clipped" if "clipped" in name else ""
    wanted = shown(f"reference {plan.model.name} {plan.workload.optimizer}{clipped}", 1)
    loss_tolerance, gradient_tolerance = TOLERANCES[rounding(plan)]
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=loss_tolerance)
    np.testing.assert_allclose(found["grad_norms"], wanted["grad_norms"], rtol=gradient_tolerance)
    if plan.candidate.knobs.optimizer_in_backward:
        assert found["gradients"] == {}  # each was freed when it had been used
        return
    assert found["gradients"].keys() == wanted["gradients"].keys()
    for parameter, gradient in wanted["gradients"].items():
        scale = max(np.abs(gradient).max(), NOTHING * wanted["grad_norms"][0])
        np.testing.assert_allclose(
            found["gradients"][parameter], gradient, rtol=0, atol=gradient_tolerance * scale, err_msg=parameter
        )


def rounding(plan):
    """What is the least exact in it."""
    knobs, precision = plan.candidate.knobs, plan.workload.precision
    if knobs.comm_hook == "powersgd":
        return "low rank"
    if knobs.float8 != "none":
        return "float8"
    for kind in ("bf16", "fp16"):
        if kind in (precision.removesuffix("-true"), knobs.reduce_dtype, knobs.comm_hook):
            return kind
    return "exact"


def test_the_reference_learns_something_else_each_step(shown):
    losses = shown("reference tiny adamw", 1)["losses"]
    assert len(set(losses)) == len(losses)
