"""Simulated user models: memory, traffic, and errors of models that do not work."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from strategist_runtime.simulate.user_model import UserModel, find_model_function, user_code_location, user_error

from strategist import api
from strategist.contract import codec
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.contract.request import Request
from strategist.contract.simulation import SimulatedRank
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.planning import planner
from strategist.profiles.situation import situation

from ..launch import forked

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
WIDTH, BLOCKS, WORDS = 1024, 12, 32000
BLOCK = 4 * (WIDTH * WIDTH + WIDTH) + 8 * WIDTH * WIDTH + 5 * WIDTH + 4 * WIDTH
PARAMETERS = BLOCKS * BLOCK + 2 * WORDS * WIDTH
"""Parameters of examples/own_model.py."""

Simulate = Callable[..., SimulatedRank]


def plan(layout: Layout, **knobs: object) -> Plan:
    """A plan for four GPUs with one row of 1,024 tokens per data-parallel rank; its own model is replaced by the user's."""
    workload = Workload(seq_len=1024, global_batch=layout.data_ranks, precision="fp32")
    problem = situation(Request(model="gpt2-medium", gpus="4x24GB", workload=workload, backend="native"))
    candidate = Candidate(layout=layout, knobs=Knobs(micro_batch=1, **{"compile": False, **knobs}))
    return planner.price_candidate(problem, candidate, deck=api.load_cards())


def ended(
    trial_plan: Plan, folder: Path, code: str = "own_model:build", place: Path = EXAMPLES
) -> subprocess.CompletedProcess[str]:
    """Simulates rank 0 with the model of ``code``, in a fork that runs in ``place``."""
    codec.save(trial_plan, folder / "plan.json")
    arguments = [str(folder / "plan.json"), "--rank", "0", "--out", str(folder / "simulated.json"), "--model-code", code]
    return forked(1, ["strategist_runtime.simulate", *arguments], place=place)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """``simulated(layout, recompute)``: rank 0 with the model of examples/own_model.py; each is simulated once."""

    @cache
    def run(layout: Layout, recompute: str = "none") -> SimulatedRank:
        folder = tmp_path_factory.mktemp("simulated")
        done = ended(plan(layout, recompute=recompute), folder)
        assert done.returncode == 0, done.stderr
        return codec.load(SimulatedRank, folder / "simulated.json")

    return run


def refusal(trial_plan: Plan, folder: Path, code: str = "own_model:build", place: Path = EXAMPLES) -> str:
    """The one line that a refused simulation prints."""
    done = ended(trial_plan, folder, code, place)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


def traffic_row(rank: SimulatedRank, axis: str, collective: str) -> Traffic:
    return next(row for row in rank.traffic if (row.axis, row.collective) == (axis, collective))


def test_fsdp_shards_the_blocks_of_a_user_model_one_by_one(simulated: Simulate) -> None:
    found = simulated(Layout(dp_shard=4))
    assert found.memory["parameters"] == PARAMETERS * 4 // 4
    assert traffic_row(found, "dp_shard", "all_gather").calls == 2 * BLOCKS + 1
    assert traffic_row(found, "dp_shard", "all_gather").message_bytes == 4 * (2 * BLOCKS * BLOCK + 2 * WORDS * WIDTH)
    assert traffic_row(found, "dp_shard", "reduce_scatter").message_bytes == 4 * PARAMETERS
    half, whole = 1024 // 2, 1024
    attention = 4 * WIDTH * (7 * whole**2 + 5 * half**2)
    matmuls = 2 * (BLOCK - 11 * WIDTH) * (7 * whole + 5 * half) + 2 * WORDS * WIDTH * half
    assert math.isclose(found.flops, 3 * matmuls + 3.5 * attention, rel_tol=0.01)


@pytest.mark.full
def test_a_user_models_own_loss_receives_its_outputs(simulated: Simulate) -> None:
    """Logits of half of the sequence, in fp32."""
    found = simulated(Layout(dp_shard=4), recompute="full")
    assert found.memory["logits"] % (1024 // 2 * WORDS * 4) < 2**16
    assert {"layers.up", "loss"} <= set(found.modules)


@pytest.mark.full
def test_blocks_of_a_user_model_are_recomputed(simulated: Simulate) -> None:
    kept, again = simulated(Layout(dp_shard=4)), simulated(Layout(dp_shard=4), recompute="full")
    assert again.memory["activations"] < 0.2 * kept.memory["activations"]
    assert 1.15 < again.flops / kept.flops < 4 / 3


@pytest.mark.full
def test_ddp_reduces_gradients_of_a_user_model(simulated: Simulate) -> None:
    found = simulated(Layout(dp_replicate=4))
    assert traffic_row(found, "dp_replicate", "all_reduce").message_bytes == 4 * PARAMETERS + 24  # and metrics of the step
    parts = {name: found.memory[name] for name in ("parameters", "gradients", "communication")}
    assert parts == dict.fromkeys(parts, 4 * PARAMETERS)


@pytest.mark.full
def test_a_user_models_own_tensor_parallel_plan_is_applied(simulated: Simulate) -> None:
    found = simulated(Layout(tp=2, dp_shard=2))
    sharded = BLOCKS * (BLOCK - 6 * WIDTH)  # without norms and biases of row-parallel linears
    assert found.memory["parameters"] == 4 * (sharded // 2 + PARAMETERS - sharded) // 2
    assert traffic_row(found, "tp", "all_reduce").calls == BLOCKS * (
        2 + 4
    )  # outputs of o and down; gradients of the inputs of q, k, v and up


def test_an_error_in_user_code_is_reported_with_its_line(tmp_path: Path) -> None:
    lines = ("from torch import nn", "", "class Odd(nn.Module):", "    def __init__(self):", "        super().__init__()")
    lines += ("        self.blocks = nn.ModuleList([nn.Embedding(60000, 8)])", "", "    def forward(self, tokens):")
    lines += ("        return self.blocks[0](tokens[tokens.nonzero()])", "")
    (tmp_path / "odd.py").write_text("\n".join(lines))
    assert "--model-code odd:Odd, odd.py:9" in refusal(plan(Layout(dp_shard=4)), tmp_path, "odd:Odd", tmp_path)


@pytest.mark.parametrize(
    ("layout", "knobs", "message"),
    [
        (Layout(cp=2, dp_shard=2), {}, "cp 2: with a model of your own this runtime runs cp 1 only"),
        pytest.param(Layout(dp_shard=4), {"offload": "all"}, "offload all: with a model of your own", marks=pytest.mark.full),
    ],
)
def test_settings_that_need_the_native_decoder_are_refused(
    layout: Layout, knobs: dict[str, object], message: str, tmp_path: Path
) -> None:
    assert message in refusal(plan(layout, **knobs), tmp_path)


@pytest.mark.full
def test_tensor_parallelism_needs_a_plan_from_the_user_model(tmp_path: Path) -> None:
    source = (EXAMPLES / "own_model.py").read_text()
    (tmp_path / "uncut.py").write_text(source + "\n\ndef uncut():\n    return Halving(), loss\n")
    law = "tp 2: uncut:uncut returned no plan of tensor parallelism; return (module, loss, plan)"
    assert law in refusal(plan(Layout(tp=2, dp_shard=2)), tmp_path, "uncut:uncut", tmp_path)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("build", "--model-code build: names no function; write MODULE:FUNCTION"),
        ("nowhere.at_all:build", "there is no module nowhere; run it from the folder of the module"),
        ("math:build", "math has no function build"),
        ("math:pi", "math has no function pi"),
    ],
)
def test_a_missing_model_function_raises_a_one_line_error(reference: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        find_model_function(reference)
    assert message in str(error.value)


def test_a_module_that_cannot_be_imported_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import this_is_installed_nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"raised ModuleNotFoundError: No module named .*\(needs_more.py:1\); correct it"):
        find_model_function("needs_more:build")
    assert "needs_more" not in sys.modules


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "returned int, not an nn.Module"),
        ((torch.nn.Linear(1, 1), 3), "returned (Linear, int), not"),
        ((torch.nn.Linear(1, 1), None, None, None), "returned (Linear, NoneType, NoneType, NoneType), not"),
    ],
)
def test_an_invalid_return_value_of_the_model_function_is_refused(given: object, message: str) -> None:
    with pytest.raises(InputError) as error:
        UserModel(reference="a:b", function=lambda: given).build()
    assert message in str(error.value)


def test_an_exception_of_the_model_function_is_reported_in_one_line() -> None:
    def build() -> None:
        os.path.join(3)  # type: ignore[call-overload]

    with pytest.raises(InputError, match=r"--model-code a:b: raised TypeError: .*\(test_user_model.py:\d+\); correct it"):
        UserModel(reference="a:b", function=build).build()
    assert user_code_location(ValueError()) == ""
    assert str(user_error("a:b", ValueError())) == "--model-code a:b: raised ValueError: ; correct it"


def test_a_model_function_may_return_the_module_alone() -> None:
    model, loss, styles = UserModel(reference="a:b", function=lambda: torch.nn.Linear(1, 1)).build()
    assert isinstance(model, torch.nn.Linear)
    assert (loss, styles) == (None, {})
    assert replace(UserModel(reference="a:b", function=dict), reference="c:d").reference == "c:d"
