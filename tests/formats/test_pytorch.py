"""The exported script is run, on gloo: every layout goes on from one process's checkpoint, and computes what one process does."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from runtime.launch import forked

from formats.plans import deck
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import MoEShape
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.pytorch import write
from strategist.planner import price_candidate
from strategist.profiles.models import find_preset
from strategist.profiles.situation import situation

pytestmark = pytest.mark.torch
STEPS = 2
GATHERED, RING = {"cp_attention": "flex", "cp_restore_buffers": False}, {"cp_restore_buffers": False}
DENSE = find_preset("tiny")
SPARSE = replace(
    DENSE, name="sparse",
    moe=MoEShape(
        experts=8, experts_per_token=2, expert_ffn_size=64, shared_experts=1, first_dense_layers=1, router_score="sigmoid",
        router_groups=4, router_groups_per_token=2, routed_scale=2.5, balance_coefficient=0.1,
    ),
)  # fmt: skip
EXPERTS = {"model": SPARSE}
LORA = {"train": "lora", "lora_rank": 4}
ADAMW = {"optimizer": "adamw"}
"""Other cases have SGD, whose steps are as long as gradients are: Adam's would hide a wrong mean."""

CASES: dict[str, tuple[dict, ...]] = {
    "fsdp": ({"dp_shard": 4}, {"recompute": "selective"}, {}, ADAMW),
    "hsdp": (
        {"dp_shard": 2, "dp_replicate": 2},
        {"reshard_after_forward": False, "postpone_gradient_sync": True, "recompute": "full"},
    ),
    "ddp": ({"dp_replicate": 2}, {"postpone_gradient_sync": True, "recompute": "alternate"}),
    "tp x fsdp": (
        {"tp": 2, "dp_shard": 2},
        {
            "sequence_parallel": True, "loss_parallel": True, "micro_batch": 2, "recompute": "selective",
            "saved_operations": "every_second_matmul+attention+collectives",
        },
        {}, ADAMW,
    ),
    "tp": ({"tp": 2}, {"micro_batch": 2}),
    "pp x fsdp": ({"pp": 2, "dp_shard": 2}, {"postpone_gradient_sync": True}),
    "interleaved": (
        {"pp": 2}, {"postpone_gradient_sync": True, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2}, {}, ADAMW,
    ),
    "pp x tp": ({"pp": 2, "tp": 2}, {"postpone_gradient_sync": True, "sequence_parallel": True, "loss_parallel": True}),
    "offload": ({"dp_shard": 2}, {"offload": "all"}, {}, ADAMW),
    "cp x fsdp, gathered": ({"cp": 2, "dp_shard": 2}, {"recompute": "selective", "micro_batch": 2}, GATHERED),
    "cp, gathered in order": ({"cp": 2}, {"recompute": "full", "micro_batch": 4}, {**GATHERED, "cp_load_balance": "none"}),
    "pp x cp, gathered": ({"pp": 2, "cp": 2}, {"postpone_gradient_sync": True}, GATHERED),
    "cp x tp, ring": (
        {"cp": 2, "tp": 2}, {"sequence_parallel": True, "loss_parallel": True, "recompute": "selective", "micro_batch": 4}, RING,
    ),
    "cp x replicas, ring": (
        {"cp": 2, "dp_replicate": 2}, {"recompute": "full", "micro_batch": 2}, {**RING, "cp_rotate": "alltoall"},
    ),
    "experts": ({"dp_shard": 4}, {"recompute": "selective"}, {"grouped_gemm": True, "token_alignment": 8}, EXPERTS),
    "replicated experts": ({"dp_replicate": 2}, {}, {}, EXPERTS),
    "ep": ({"dp_shard": 4, "ep": 2}, {"recompute": "full"}, {}, EXPERTS),
    "ep, all ranks": ({"dp_shard": 4, "ep": 4}, {"postpone_gradient_sync": True}, {"grouped_gemm": True}, EXPERTS | ADAMW),
    "replicas x cp x ep": ({"dp_replicate": 2, "cp": 2, "ep": 2}, {"micro_batch": 2}, GATHERED, EXPERTS),
    "tp x ep": (
        {"dp_shard": 2, "tp": 2, "ep": 2}, {"sequence_parallel": True, "recompute": "full", "micro_batch": 2}, {}, EXPERTS,
    ),
    "tp with experts": ({"tp": 2}, {"micro_batch": 4}, {}, EXPERTS),
    "pp x ep": ({"pp": 2, "dp_shard": 2, "ep": 2}, {"postpone_gradient_sync": True}, {}, EXPERTS),
    "ep, selective": (
        {"dp_shard": 4, "ep": 2}, {"recompute": "selective", "saved_operations": "matmul+attention+collectives"}, {},
        {"model": replace(SPARSE, moe=replace(SPARSE.moe, router_balance_bias=True, shared_experts=0, router_parameter_bias=True))},
    ),
    "lora x fsdp": ({"dp_shard": 2}, {"recompute": "selective"}, {}, LORA | ADAMW),
    "lora x ddp": ({"dp_replicate": 2}, {}, {}, LORA),
    "lora x pp x cp": ({"pp": 2, "cp": 2}, {"postpone_gradient_sync": True, "micro_batch": 2}, GATHERED, LORA),
    "lora x ep": ({"dp_shard": 2, "ep": 2}, {"micro_batch": 2}, {}, LORA | EXPERTS),
}  # fmt: skip


def planned(
    layout: dict,
    knobs: dict,
    options: dict = {},  # noqa: B006
    trained: dict = {},  # noqa: B006
) -> Plan:
    """A plan with these settings; what is trained is the dense model with SGD, but for what ``trained`` says."""
    said = {"precision": "fp32", "optimizer": "sgd", **trained}
    model = said.pop("model", DENSE)
    devices = Layout(**layout).world_size
    workload = Workload(seq_len=64, global_batch=8, **said)
    asked = situation(Request(model=model.name, gpus=f"{devices}xcpu", workload=workload), model)
    candidate = Candidate(layout=Layout(**layout), knobs=Knobs(**knobs), options=Options(**options))
    return price_candidate(asked, candidate, deck=deck())


def losses(plan: Plan, folder: Path, *arguments: str, scale: str = "") -> list[float]:
    """What the script of a plan prints, with that as its first loss scale. Torch's ring knows CUDA's kernels only, so it gets
    the processor's here."""
    exported(plan, folder, {"ShardedGradScaler(DEVICE)": f"ShardedGradScaler(DEVICE, {scale})"} if scale else {})
    ring = plan.candidate.layout.cp > 1 and plan.candidate.options.cp_attention == "sdpa"
    script = ["formats.script_rank", *(["ring"] if ring else []), "train.py", *arguments]
    done = forked(plan.cluster.devices, script, place=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return losses_in(done.stdout)


def exported(plan: Plan, folder: Path, changes: dict[str, str] = {}) -> tuple[str, ...]:  # noqa: B006
    """Writes the files of a plan; the command that starts them. SGD's steps are so long that every gradient shows."""
    folder.mkdir(parents=True)
    written = write(plan, {})
    for file in written.files:
        text = file.text
        for old, new in {"lr=1e-2": "lr=1.0", **changes}.items():
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    return written.command


def losses_in(text: str) -> list[float]:
    return [float(line.split()[3]) for line in text.splitlines() if line.startswith("step ")]


class Alone:
    """What one process computes: a checkpoint, and the losses of its next steps."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known: dict[str, tuple[Path, list[float]]] = {}

    def goes_on(self, trained: dict) -> tuple[Path, list[float]]:
        key = str(trained)
        if key not in self.known:
            folder, plan = self.place / str(len(self.known)), planned({}, {"micro_batch": 4}, {}, trained)
            checkpoint = folder / "checkpoint"
            losses(plan, folder / "begin", "--steps", "1", "--save", str(checkpoint))
            found = losses(plan, folder / "go-on", "--steps", str(STEPS), "--resume", str(checkpoint))
            self.known[key] = (checkpoint, found)
        return self.known[key]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("alone"))


IN_EVERY_RUN = ("pp x tp", "ep", "lora x fsdp")


@pytest.mark.parametrize("name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.full) for name in CASES])
def test_each_layout_computes_what_one_process_does(name: str, alone: Alone, tmp_path: Path) -> None:
    plan, trained = planned(*CASES[name]), CASES[name][3] if len(CASES[name]) > 3 else {}
    checkpoint, expected = alone.goes_on(trained)
    found = losses(plan, tmp_path / "run", "--steps", str(STEPS), "--resume", str(checkpoint))
    assert found == pytest.approx(expected, rel=2e-6)
    assert len(set(expected)) == STEPS


HALF = {
    "fsdp": ({"dp_shard": 2}, {"recompute": "full"}, {"optimizer_kernel": "for_loop"}),
    "ddp": ({"dp_replicate": 2}, {}, {}),
    "tp": ({"tp": 2}, {"micro_batch": 4, "sequence_parallel": True, "loss_parallel": True}, {}),
    "pp": ({"pp": 2, "dp_shard": 2}, {"postpone_gradient_sync": True}, {}),
}


@pytest.mark.parametrize("name", HALF)
@pytest.mark.full
def test_half_precision_is_near_and_its_gradients_are_as_long(name: str, alone: Alone, tmp_path: Path) -> None:
    checkpoint, expected = alone.goes_on({})
    plan = planned(*HALF[name], {"precision": "fp16"})
    found = losses(plan, tmp_path / "run", "--steps", str(STEPS), "--resume", str(checkpoint))
    assert found == pytest.approx(expected, rel=2e-5)


@pytest.mark.full
def test_no_stage_takes_a_step_that_overflows(alone: Alone, tmp_path: Path) -> None:
    checkpoint, _ = alone.goes_on({})
    plan = planned(*HALF["pp"], {"precision": "fp16"})
    begun = ["--steps", "1", "--resume", str(checkpoint)]
    before = losses(plan, tmp_path / "before", *begun)
    saved = str(tmp_path / "saved")
    losses(plan, tmp_path / "overflows", *begun, "--save", saved, scale="init_scale=2.0**60")
    assert losses(plan, tmp_path / "after", "--steps", "1", "--resume", saved) == before


@pytest.mark.full
def test_adapters_begin_on_what_a_full_training_saved(alone: Alone, tmp_path: Path) -> None:
    checkpoint, expected = alone.goes_on({})
    plan = planned({"dp_shard": 2}, {"micro_batch": 2}, {}, LORA)
    assert losses(plan, tmp_path / "run", "--steps", "1", "--base", str(checkpoint)) == pytest.approx(expected[:1], rel=2e-6)


@pytest.mark.full
def test_the_start_script_starts_it(alone: Alone, tmp_path: Path) -> None:
    checkpoint, expected = alone.goes_on({})
    command = [*exported(planned(*CASES["ddp"]), tmp_path / "run"), "--steps", str(STEPS), "--resume", str(checkpoint)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=tmp_path / "run", env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses_in(done.stdout) == pytest.approx(expected, rel=2e-6)


@cache
def text_of(name: str) -> str:
    return write(planned(*CASES[name]), {}).files[0].text


def test_a_script_holds_what_its_plan_needs_and_no_more() -> None:
    plain, tensor, pipeline = text_of("ddp"), text_of("tp x fsdp"), text_of("interleaved")
    assert "fully_shard" not in plain
    assert "parallelize_module" in tensor
    assert "parallelize_module" not in pipeline
    assert "get_schedule_class" in pipeline
    for text in (plain, tensor, pipeline):
        assert "# if:" not in text
        assert "strategist" not in text.partition("import argparse")[2]


def test_ruff_finds_nothing_in_a_script(tmp_path: Path) -> None:
    for number, case in enumerate([*CASES.values(), *((*case, {"precision": "fp16"}) for case in HALF.values())]):
        plan = planned(*case)
        cuda = replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda"))
        for name, cluster in (("cpu", plan.cluster), ("cuda", cuda)):
            (tmp_path / f"{name}_{number}.py").write_text(write(replace(plan, cluster=cluster), {}).files[0].text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length=132", "--ignore=E402", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
