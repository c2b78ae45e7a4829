"""Models of the user's own: what is held and exchanged of them, and what is said of those that do not work."""

import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from strategist_runtime.simulate.user_model import UserModel, find_model_function, place_of, user_error

from strategist import api
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

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
WIDTH, BLOCKS, WORDS = 1024, 12, 32000
BLOCK = 4 * (WIDTH * WIDTH + WIDTH) + 8 * WIDTH * WIDTH + 5 * WIDTH + 4 * WIDTH
PARAMETERS = BLOCKS * BLOCK + 2 * WORDS * WIDTH
"""of examples/own_model.py."""


def plan(layout: Layout, **knobs: object) -> Plan:
    """Of another model, for four GPUs, with one row of 1,024 tokens on each data rank."""
    workload = Workload(seq_len=1024, global_batch=layout.data_ranks, precision="fp32")
    asked = situation(Request(model="gpt2-medium", gpus="4x24GB", workload=workload, backend="native"))
    candidate = Candidate(layout=layout, knobs=Knobs(micro_batch=1, **{"compile": False, **knobs}))
    return planner.price_candidate(asked, candidate, deck=api.load_cards())


def simulated(asked: Plan, monkeypatch: pytest.MonkeyPatch) -> SimulatedRank:
    monkeypatch.chdir(EXAMPLES)
    return api.simulate(asked, [0], model_code="own_model:build").fullest


def of(rank: SimulatedRank, axis: str, collective: str) -> Traffic:
    return next(row for row in rank.traffic if (row.axis, row.collective) == (axis, collective))


def test_fsdp_shards_its_blocks_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulated(plan(Layout(dp_shard=4), reshard_after_forward=True), monkeypatch)
    assert found.memory["parameters"] == PARAMETERS * 4 // 4
    assert of(found, "dp_shard", "all_gather").calls == 2 * BLOCKS + 1
    assert of(found, "dp_shard", "all_gather").message_bytes == 4 * (2 * BLOCKS * BLOCK + 2 * WORDS * WIDTH)
    assert of(found, "dp_shard", "reduce_scatter").message_bytes == 4 * PARAMETERS
    half, whole = 1024 // 2, 1024
    attention = 4 * WIDTH * (7 * whole**2 + 5 * half**2)
    matmuls = 2 * (BLOCK - 11 * WIDTH) * (7 * whole + 5 * half) + 2 * WORDS * WIDTH * half
    assert math.isclose(found.flops, 3 * matmuls + 3.5 * attention, rel_tol=0.01)


@pytest.mark.full
def test_its_own_loss_sees_what_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of half of the sequence, in fp32."""
    found = simulated(plan(Layout(dp_shard=4), recompute="full"), monkeypatch)
    assert found.memory["logits"] % (1024 // 2 * WORDS * 4) < 2**16
    assert {"layers.up", "loss"} <= set(found.modules)


@pytest.mark.full
def test_its_blocks_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = simulated(plan(Layout(dp_shard=4)), monkeypatch)
    again = simulated(plan(Layout(dp_shard=4), recompute="full"), monkeypatch)
    assert again.memory["activations"] < 0.2 * kept.memory["activations"]
    assert 1.15 < again.flops / kept.flops < 4 / 3


@pytest.mark.full
def test_ddp_reduces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulated(plan(Layout(dp_replicate=4)), monkeypatch)
    assert of(found, "dp_replicate", "all_reduce").message_bytes == 4 * PARAMETERS + 24  # and the step's figures
    held = {name: found.memory[name] for name in ("parameters", "gradients", "communication")}
    assert held == dict.fromkeys(held, 4 * PARAMETERS)


@pytest.mark.full
def test_its_own_plan_of_tensor_parallelism_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulated(plan(Layout(tp=2, dp_shard=2)), monkeypatch)
    cut = BLOCKS * (BLOCK - 6 * WIDTH)  # not norms, nor biases of what is cut by rows
    assert found.memory["parameters"] == 4 * (cut // 2 + PARAMETERS - cut) // 2
    assert of(found, "tp", "all_reduce").calls == BLOCKS * (2 + 4)  # outputs of o and down; gradients of what q, k, v and up read


def test_code_that_is_wrong_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("from torch import nn", "", "class Odd(nn.Module):", "    def __init__(self):", "        super().__init__()")
    lines += ("        self.blocks = nn.ModuleList([nn.Embedding(60000, 8)])", "", "    def forward(self, tokens):")
    lines += ("        return self.blocks[0](tokens[tokens.nonzero()])", "")
    (tmp_path / "odd.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        api.simulate(plan(Layout(dp_shard=4)), [0], model_code="odd:Odd")
    text = str(error.value)
    assert "--model-code odd:Odd, odd.py:9" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("layout", "knobs", "said"),
    [
        (Layout(cp=2, dp_shard=2), {}, "cp 2: with a model of your own this runtime runs cp 1 only"),
        pytest.param(Layout(dp_shard=4), {"offload": "all"}, "offload all: with a model of your own", marks=pytest.mark.full),
    ],
)
def test_what_needs_layers_of_ours_is_refused(
    layout: Layout, knobs: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=said):
        simulated(plan(layout, **knobs), monkeypatch)


@pytest.mark.full
def test_tensor_parallelism_needs_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (EXAMPLES / "own_model.py").read_text()
    (tmp_path / "uncut.py").write_text(source + "\n\ndef uncut():\n    return Halving(), loss\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=r"tp 2: uncut:uncut returned no plan of tensor parallelism; return \(module, loss, plan\)"
    ):
        api.simulate(plan(Layout(tp=2, dp_shard=2)), [0], model_code="uncut:uncut")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("build", "--model-code build: names no function; write MODULE:FUNCTION"),
        ("nowhere.at_all:build", "there is no module nowhere; run it from the folder of the module"),
        ("math:build", "math has no function build"),
        ("math:pi", "math has no function pi"),
    ],
)
def test_a_function_that_is_not_there_is_said_in_one_line(reference: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        find_model_function(reference)
    assert said in str(error.value)


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import this_is_installed_nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"raised ModuleNotFoundError: No module named .*\(needs_more.py:1\); correct it"):
        find_model_function("needs_more:build")
    assert "needs_more" not in sys.modules


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "returned int, not an nn.Module"),
        ((torch.nn.Linear(1, 1), 3), "returned (Linear, int), not"),
        ((torch.nn.Linear(1, 1), None, None, None), "returned (Linear, NoneType, NoneType, NoneType), not"),
    ],
)
def test_what_it_returns_is_looked_at(given: object, said: str) -> None:
    with pytest.raises(InputError) as error:
        UserModel(reference="a:b", function=lambda: given).made()
    assert said in str(error.value)


def test_what_it_raises_is_said_in_one_line() -> None:
    def build() -> None:
        os.path.join(3)  # type: ignore[call-overload]

    with pytest.raises(InputError, match=r"--model-code a:b: raised TypeError: .*\(test_user_model.py:\d+\); correct it"):
        UserModel(reference="a:b", function=build).made()
    assert place_of(ValueError()) == ""
    assert str(user_error("a:b", ValueError())) == "--model-code a:b: raised ValueError: ; correct it"


def test_without_a_loss_it_is_cross_entropy() -> None:
    model, loss, styles = UserModel(reference="a:b", function=lambda: torch.nn.Linear(1, 1)).made()
    assert isinstance(model, torch.nn.Linear)
    assert (loss, styles) == (None, {})
    assert replace(UserModel(reference="a:b", function=dict), reference="c:d").reference == "c:d"
