"""Every technique and combination trains like a single process: losses, gradient norms, and all gradients of the first step."""

import json
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from strategist.contract import codec

from .cases import cases
from .launch import NO_COMPILER, forked, torchrun
from .rounding import TOLERANCES, rounding
from .techniques import in_every_run, in_full_run, parity_cases

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

NEGLIGIBLE = 1e-5
"""Relative to the norm of all gradients: smaller values are rounding, such as the gradient of key biases in a model without rotary
positions, where a bias shifts all scores of a query equally. Kernels of another processor round differently."""

CASES_AND_REFERENCES = dict(cases())
CASES = parity_cases()
MARKS = (
    dict.fromkeys(CASES, (pytest.mark.full, pytest.mark.weekly))
    | dict.fromkeys(in_full_run(), (pytest.mark.full,))
    | dict.fromkeys(in_every_run(), ())
)
"""Every technique and combination has a case in every run; the full run has a case of each pair of techniques."""
FUSED = "compile fsdp full"
UNSUPPORTED = {"float8 rowwise fsdp"} if tuple(map(int, version("torch").split(".")[:2])) < (2, 12) else set()
"""torch 2.11 supports rowwise float8 matmuls on GPUs only."""


@pytest.fixture(scope="session")
def results(request, tmp_path_factory):
    """Results of each chosen case, by name; all cases of one world size share their processes."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    chosen = {item.callspec.params["name"] for item in items if hasattr(item, "callspec")} - UNSUPPORTED
    wanted = {reference(CASES[name], name) for name in {*chosen, FUSED}}

    @cache
    def ran(world):
        names = [name for name in CASES_AND_REFERENCES if name in chosen | wanted and ranks_of(name) == world]
        *program, target = parity_arguments(tmp_path_factory.mktemp("parity"), names)
        return forked(world, [*program, target], **NO_COMPILER), Path(target)

    @cache
    def of_world(world):
        done, target = ran(world)  # separate, so that a failed run fails once for all of its cases
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(target.read_text(encoding="utf-8"))

    return lambda name, world: of_world(world)[name]


def ranks_of(name):
    return CASES_AND_REFERENCES[name].candidate.layout.world_size


def parity_arguments(folder, names):
    """Writes the plans of cases and references, and returns the module that trains them with its arguments; the last one is the
    file of their results.
    """
    plans = {name: codec.encode(CASES_AND_REFERENCES[name]) for name in names}
    (folder / "plans.json").write_text(json.dumps(plans), encoding="utf-8")
    return ["runtime.parity_rank", str(folder / "plans.json"), str(folder / "results.json")]


def reference(plan, name):
    """The name of the same training in one process."""
    return f"reference {plan.model.name} {plan.workload.optimizer}{' clipped' if 'clipped' in name else ''}"


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_a_parallel_run_trains_like_a_single_process(name, results):
    if name in UNSUPPORTED:
        pytest.skip("torch 2.11 supports rowwise float8 matmuls on GPUs only")
    compare(name, results(name, ranks_of(name)), results)


@pytest.mark.engine("torchrun")
@pytest.mark.full
def test_a_run_with_inductor_kernels_trains_like_a_single_process(results, tmp_path):
    *program, target = parity_arguments(tmp_path, [FUSED])
    done = torchrun(ranks_of(FUSED), [*program, target])
    assert done.returncode == 0, done.stdout + done.stderr
    compare(FUSED, json.loads(Path(target).read_text(encoding="utf-8"))[FUSED], results)


def compare(name, found, results):
    plan = CASES[name]
    wanted = results(reference(plan, name), 1)
    loss_tolerance, gradient_tolerance = TOLERANCES[rounding(plan)]
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=loss_tolerance)
    np.testing.assert_allclose(found["grad_norms"], wanted["grad_norms"], rtol=gradient_tolerance)
    if plan.candidate.knobs.optimizer_in_backward:
        assert found["gradients"] == {}  # gradients are freed after their update
        return
    assert found["gradients"].keys() == wanted["gradients"].keys()
    for parameter, gradient in wanted["gradients"].items():
        scale = max(np.abs(gradient).max(), NEGLIGIBLE * wanted["grad_norms"][0])
        np.testing.assert_allclose(
            found["gradients"][parameter], gradient, rtol=0, atol=gradient_tolerance * scale, err_msg=parameter
        )


def test_losses_of_the_reference_differ_between_steps(results):
    losses = results("reference tiny adamw", 1)["losses"]
    assert len(set(losses)) == len(losses)
