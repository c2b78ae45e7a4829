"""The exported script runs with gloo: each technique has the losses of ``strategist run`` with equal weights and data.

The reference is a single process, in the precision of the case; it runs once for each model and kind of training.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrow_folder import save_to_disk
from planning.plans import best
from runtime.launch import forked
from safetensors.torch import load_file, save_file

from formats.pytorch_plans import (
    ADAMW,
    BIASED,
    BOTH,
    CASES,
    DENSE,
    LORA,
    MIXTRAL,
    PIPELINE,
    QLORA,
    QWEN,
    QWEN_MOE,
    STEPS,
    Figures,
    exported,
    figures_in,
    parts_of,
    plan_of,
    planned,
    run_alone,
    trained,
)
from strategist.api import export_plan
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.pytorch import FIXED, write

pytestmark = pytest.mark.torch
WEEKLY = {
    "fsdp, subgroup", "tp x fsdp", "tp", "offload", "cp x replicas, ring", "replicated experts", "lora x ddp",
    "qlora x pp x cp", "qlora x hsdp", "compiled fsdp", "compiled fsdp, selective", "fp16 ddp", "fp16 tp", "bf16 ddp",
    "bf16 experts", "compiled qlora", "bf16 qlora", "bf16 lora x ddp", "chunked loss", "chunked loss, compiled",
    "chunked loss x cp x fsdp", "chunked loss x cp, ring", "chunked loss x qlora", "chunked loss x ddp",
    "chunked loss x experts", "fp16 chunked loss",
}  # fmt: skip
"""Cases that combine what other scripts of the full run have; the weekly run has these too."""
RESUMED: dict[str, tuple[dict, ...]] = {
    "ep, all ranks": ({"dp_replicate": 2}, {}),
    "lora x fsdp": ({"pp": 2}, PIPELINE),
    "fp16 fsdp": ({"tp": 2}, {"micro_batch": 4, **BOTH}),
    "bf16 fsdp": ({"dp_replicate": 2}, {"micro_batch": 2}),
    "qlora x fsdp": ({"dp_replicate": 2}, {"micro_batch": 2}),
    "fp16 qlora": ({"dp_replicate": 2}, {"micro_batch": 2}, {"precision": "bf16"}),
    "interleaved": ({"dp_shard": 2}, {}),
}
"""The layout, knobs and changed settings with which trainings of these cases resume."""
CHAIN: dict[str, tuple[dict, ...]] = {
    "fsdp": CASES["fsdp"],
    "pipeline": ({"pp": 2, "dp_shard": 2}, {"no_sync": True}, {}, ADAMW),
    "replicas": ({"dp_replicate": 2}, {"micro_batch": 2}, {"checkpoint": "async"}, ADAMW),
    "context": ({"cp": 2}, {"micro_batch": 4}, {"cp_attention": "flex", "cp_restore_buffers": False}, ADAMW),
    "offload": ({"dp_shard": 2}, {"offload": "all"}, {}, ADAMW),
    "one process": ({}, {"micro_batch": 4}, {}, ADAMW),
    "fsdp again": CASES["fsdp"],
}
"""Each resumes from the checkpoint of the one before it."""
ELSEWHERE = {*RESUMED, "fsdp", "ddp"}
"""Cases whose losses other tests compare."""
CHOSEN = [pytest.param(name, marks=pytest.mark.weekly) if name in WEEKLY else name for name in CASES if name not in ELSEWHERE]

SHALLOW = replace(DENSE, layers=2)
ROUNDING = {"fp32": (2e-6, 1e-4), "fp16": (5e-5, 5e-3), "bf16": (5e-4, 2e-2)}
"""Relative differences of losses and norms; a printed norm has four digits after the point."""


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Figures]:
    """Figures of ``strategist run`` in one process, by the name of a case."""
    place, known = tmp_path_factory.mktemp("alone"), dict[str, Figures]()

    def found(name: str) -> Figures:
        settings = CASES[name][3] if len(CASES[name]) > 3 else {}
        if (key := str(settings)) not in known:
            known[key] = run_alone(settings, place / str(len(known)))
        return known[key]

    return found


def assert_close(found: Figures, expected: Figures, precision: str = "fp32") -> None:
    losses, norms = ROUNDING[precision]
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=losses)
    assert [norm for _, norm in found] == pytest.approx([norm for _, norm in expected], rel=norms)


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.full
def test_each_technique_equals_strategist_run(name: str, reference: Callable[[str], Figures], tmp_path: Path) -> None:
    plan, expected = plan_of(name), reference(name)
    assert len({loss for loss, _ in expected}) == STEPS
    assert_close(trained(plan, tmp_path / "run", "--steps", str(STEPS)), expected, plan.workload.precision)


def tokens(path: Path, count: int, dtype: str = "uint16") -> Path:
    np.random.default_rng(0).integers(0, DENSE.vocab_size, count).astype(dtype).tofile(path)
    return path


def test_a_training_resumes_with_another_layout(tmp_path: Path) -> None:
    """Weights, optimizer, step and data continue: two steps with FSDP2, then two with tensor parallelism."""
    data, settings, fused = tokens(tmp_path / "text.bin", 64 * 20), {**ADAMW, "model": SHALLOW}, {"optimizer_kernel": "fused"}
    expected = run_alone(settings, tmp_path / "alone", 4, data=str(data))
    first = planned({"dp_shard": 2}, {"micro_batch": 2}, fused, settings)
    then = planned({"tp": 2}, {"micro_batch": 4, **BOTH}, fused, settings)
    given = ["--data", str(data), "--save", str(tmp_path / "saved")]
    started = trained(first, tmp_path / "first", "--steps", "2", *given, "--save-every", "1")
    continued = trained(then, tmp_path / "then", "--steps", "4", *given, "--keep", "1")
    assert_close(started + continued, expected)
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["step-00000004"]


def resumed(name: str) -> Plan:
    """The plan with which a training of this case resumes."""
    layout, knobs, *changed = RESUMED[name]
    return planned(layout, knobs, {}, {**(CASES[name][3] if len(CASES[name]) > 3 else {}), **(changed[0] if changed else {})})


@pytest.mark.full
def test_checkpoints_resume_with_any_layout(tmp_path: Path) -> None:
    """Each layout takes the next step of one training."""
    saved, found = ["--save", str(tmp_path / "saved")], Figures()
    for step, name in enumerate(CHAIN, start=1):
        found += trained(planned(*CHAIN[name]), tmp_path / name, "--steps", str(step), *saved)
        assert len(found) == step, name
    assert_close(found, run_alone(ADAMW, tmp_path / "alone", len(CHAIN)))


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.full
def test_each_kind_of_training_resumes_with_another_layout(name: str, reference: Callable[[str], Figures], tmp_path: Path) -> None:
    """Experts, LoRA, an fp16 loss scale, bf16 weights, 4-bit weights, which are kept bit for bit in another precision, and several
    stages per rank: after the first step of the case's own run.
    """
    plan, then, saved = plan_of(name), resumed(name), tmp_path / "saved"
    whole = trained(plan, tmp_path / "first", "--steps", str(STEPS), "--save", str(saved), "--save-every", "1", "--keep", "3")
    assert_close(whole, reference(name), plan.workload.precision)
    rest = trained(then, tmp_path / "then", "--steps", str(STEPS), "--resume", str(saved / "step-00000001"))
    assert_close(whole[:1] + rest, reference(name), then.workload.precision)


def test_weekly_cases_only_combine_what_scripts_of_the_full_run_have() -> None:
    """Each conditional line, each pair of axes, and each kind of training in each precision."""
    cases = {name: plan_of(name) for name in CASES}
    compared = [plan for name, plan in cases.items() if name not in WEEKLY] + [resumed(name) for name in RESUMED]
    compared += [planned(*case) for case in CHAIN.values()]
    known = set().union(*map(parts_of, compared))
    assert {name: own for name, plan in cases.items() if (own := parts_of(plan) - known)} == {}


@pytest.mark.full
def test_the_script_reads_the_data_files_of_strategist_run(tmp_path: Path) -> None:
    """The same tokens in each kind of file; two and a half epochs, each with its own order."""
    data, wide = (tokens(tmp_path / f"{kind}.bin", 64 * 13 + 1, kind) for kind in ("uint16", "uint32"))
    written = np.fromfile(data, "uint16")
    np.save(tmp_path / "text.npy", written.astype("int64"))
    rows = save_to_disk(tmp_path / "set", {"input_ids": written.reshape(-1, 7).tolist()})
    expected = run_alone({}, tmp_path / "alone", 4, data=str(data))
    files: tuple[list[object], ...] = ([data], [wide, "--data-type", "uint32"], [tmp_path / "text.npy"], [rows])
    for number, given in enumerate(files):
        found = trained(plan_of("ddp"), tmp_path / str(number), "--steps", "4", "--data", *map(str, given))
        assert_close(found, expected)


FOLDERS = {
    "llama": ({"dp_shard": 2}, {"micro_batch": 2}, {}, {}),
    "qwen": ({"tp": 2, "dp_shard": 2}, {"micro_batch": 2}, {}, {"model": QWEN}),
    "pipeline": (
        {"pp": 2},
        {"no_sync": True},
        {},
        {"model": replace(QWEN, name="qwen untied", tied_embeddings=False)},
    ),
    "mixtral": ({"dp_shard": 2}, {"micro_batch": 4}, {}, {"model": MIXTRAL}),
    "qwen3_moe": ({"dp_shard": 2, "ep": 2}, {"micro_batch": 2}, {}, {"model": QWEN_MOE}),
    "lora": ({"dp_shard": 2}, {"micro_batch": 2}, {}, LORA),
}


@pytest.mark.full
def test_exported_hugging_face_weights_load_in_run_scripts_and_transformers(tmp_path: Path) -> None:
    """After two training steps."""
    alone, scripts, folders = dict[str, Figures](), dict[str, Figures](), [str(tmp_path / name) for name in FOLDERS]
    for (name, case), folder in zip(FOLDERS.items(), folders, strict=True):
        settings = {name: value for name, value in case[3].items() if name != "lora_rank"} | {"train": "full"}
        saved = ["--export-weights", folder, "--save", str(tmp_path / f"saved {name}")]
        began = trained(planned(*case), tmp_path / f"run {name}", "--steps", "2", *saved)
        alone[name] = run_alone(settings, tmp_path / f"alone {name}", 1, weights=folder)
        other = planned({"dp_replicate": 2}, {}, {}, settings)
        scripts[name] = trained(other, tmp_path / f"other {name}", "--steps", "1", "--weights", folder)
        assert alone[name][0][0] < began[0][0], name
    done = forked(1, ["formats.transformers_loss", str(other.workload.seq_len), *folders])
    assert done.returncode == 0, done.stderr
    expected = {name: figures[0][0] for name, figures in alone.items()}
    assert {name: float(loss) for name, loss in zip(FOLDERS, done.stdout.split(), strict=True)} == pytest.approx(expected, rel=1e-5)
    for name, figures in scripts.items():
        assert_close(figures, alone[name])


@pytest.mark.full
def test_hugging_face_weights_are_quantised_as_strategist_run_quantises_them(tmp_path: Path) -> None:
    """By stages of a pipeline, in a precision, with biases, and shards of rows that are not even."""
    folder = str(tmp_path / "folder")
    trained(planned({}, {"micro_batch": 4}, {}, {"model": BIASED}), tmp_path / "first", "--steps", "1", "--export-weights", folder)
    settings = QLORA | {"model": BIASED, "precision": "bf16", "global_batch": 12}
    expected = run_alone(settings, tmp_path / "alone", weights=folder)
    for number, layout in enumerate(({"pp": 2}, {"dp_shard": 3})):
        plan = planned(layout, PIPELINE if "pp" in layout else {"micro_batch": 4}, {}, settings)
        assert_close(trained(plan, tmp_path / str(number), "--steps", str(STEPS), "--weights", folder), expected, "bf16")


@pytest.mark.full
def test_the_tokenizer_is_copied_and_a_missing_tensor_is_an_error(tmp_path: Path) -> None:
    plan, folder = planned({}, {"micro_batch": 4}), tmp_path / "folder"
    trained(plan, tmp_path / "first", "--steps", "0", "--export-weights", str(folder))
    (folder / "tokenizer.json").write_text("{}")
    trained(plan, tmp_path / "then", "--steps", "0", "--weights", str(folder), "--export-weights", str(tmp_path / "out"))
    assert (tmp_path / "out" / "tokenizer.json").exists()
    [file] = folder.glob("*.safetensors")
    kept = {name: values for name, values in load_file(file).items() if not name.startswith("model.layers.2.")}
    save_file(kept, file)
    with pytest.raises(AssertionError, match=r"Missing key in checkpoint state_dict: model\.layers\.2\."):
        trained(plan, tmp_path / "last", "--steps", "1", "--weights", str(folder))


@pytest.mark.parametrize("name", ["fp16 tp", "fp16 interleaved"])
@pytest.mark.full
def test_an_fp16_overflow_skips_the_step_and_halves_the_loss_scale(name: str, tmp_path: Path) -> None:
    """Losses equal those with learning rate 0 up to the first step with finite gradients."""
    still = trained(plan_of(name), tmp_path / "still", "--steps", "10", changes={"LEARNING_RATE = 1.0": "LEARNING_RATE = 0.0"})
    tried = trained(plan_of(name), tmp_path / "tried", "--steps", "10", changes={"2.0**16": "2.0**25"})
    finite = next(step for step, (_, norm) in enumerate(tried) if norm < 1e6)
    assert 0 < finite < 8
    losses, unchanged = ([loss for loss, _ in found] for found in (tried, still))
    assert losses[: finite + 1] == pytest.approx(unchanged[: finite + 1], rel=5e-5)
    assert losses[finite + 1] != pytest.approx(unchanged[finite + 1], rel=5e-4)


@pytest.mark.full
def test_a_diverging_training_ends_with_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="training diverged: loss"):
        trained(plan_of("ddp"), tmp_path / "run", "--steps", "9", changes={"LEARNING_RATE = 1.0": "LEARNING_RATE = 1e30"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--save-every", "0"], "--save-every or --keep below 1"),
        (["--keep", "-1"], "--save-every or --keep below 1"),
        (["--steps", "-1"], "--steps is below 0"),
        (["--steps", "ten"], "argument --steps: invalid int value: 'ten'"),
        (["--data-type", "int7"], "argument --data-type: invalid choice: 'int7'"),
        (["--data", "nowhere.bin"], "nowhere.bin does not exist"),
        (["--resume", "nowhere"], "nowhere does not exist"),
        (["--weights", "nowhere"], "nowhere does not exist"),
    ],
)
def test_a_wrong_argument_of_the_script_ends_with_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    """Before any process group, so that no rank waits for another."""
    exported(plan_of("ddp, buckets"), tmp_path / "run")
    done = forked(1, ["formats.script_rank", "train.py", "--save", "saved", *arguments], place=tmp_path / "run")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("train.py: error: ")]
    assert words in line
    assert done.stderr.rstrip().endswith("SystemExit: 2")  # as the pool of the tests prints an exit


@pytest.mark.full
def test_the_start_script_runs_the_training(reference: Callable[[str], Figures], tmp_path: Path) -> None:
    command = [*exported(plan_of("ddp"), tmp_path / "run"), "--steps", str(STEPS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=tmp_path / "run", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_close(figures_in(done.stdout), reference("ddp"))


@cache
def texts_of(name: str) -> dict[str, str]:
    return {file.name: file.text for file in write(plan_of(name), {}).files}


def test_a_script_contains_only_the_code_that_its_plan_needs() -> None:
    plain, tensor, pipeline = (texts_of(name)["train.py"] for name in ("ddp", "tp x fsdp", "interleaved"))
    assert "fully_shard" not in plain
    assert "parallelize_module" in tensor
    assert "parallelize_module" not in pipeline
    assert "ScheduleInterleaved1F1B" in pipeline
    for name in CASES:
        for text in texts_of(name).values():
            assert not re.search(r"^\s*# (if|end): ", text, re.MULTILINE)
            assert not re.search(r"^\s*(import|from) strategist", text, re.MULTILINE)


@cache
def names_in(text: str) -> tuple[set[str], set[str]]:
    """The names that a file uses, and those that it imports from plan.py. Many scripts have equal files."""
    nodes = list(ast.walk(ast.parse(text)))
    imported = [node.names for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "plan"]
    return {node.id for node in nodes if isinstance(node, ast.Name)}, {item.name for names in imported for item in names}


def test_constants_of_plan_py_are_used_or_fixed() -> None:
    """Constants above the line are used; settings below it selected the code, and another value gives other code."""
    for name in CASES:
        texts = texts_of(name)
        live, fixed = (re.findall(r"^([A-Z_]+) = ", part, re.MULTILINE) for part in texts["plan.py"].split(FIXED))
        code = [names_in(text) for file, text in texts.items() if file.endswith(".py") and file != "plan.py"]
        used, imported = (set[str]().union(*names) for names in zip(*code, strict=True))
        assert set(live) == used & imported, name
        assert not used & set(fixed), name
    changed = {"recompute": "full", "offload": "all", "compile": True, "sequence_parallel": True, "loss_parallel": True}
    changed["chunked_loss"] = True
    for setting, value in changed.items():
        layout, plain = {"dp_shard": 2, "tp": 2 if "parallel" in setting else 1}, {"micro_batch": 2}
        before, after = (
            {file.name: file.text for file in write(planned(layout, knobs), {}).files}
            for knobs in (plain, plain | {setting: value})
        )
        assert any(before[file] != after[file] for file in ("model.py", "train.py")), setting


def test_every_file_of_a_script_has_fewer_than_400_lines() -> None:
    longest = max((len(text.splitlines()), name, file) for name in CASES for file, text in texts_of(name).items())
    assert longest < (400,), longest


DENSE_8B, DENSE_70B = {"model": "8b", "gpus": "8xH100"}, {"model": "70b", "gpus": "8x8xH100"}
ANY = {"backend": "any"}
LONG_SEQUENCES = {"workload": Workload(seq_len=131072, global_batch=16)}
LENGTHS: tuple[tuple[int, dict[str, Any]], ...] = (
    (370, DENSE_8B | ANY),
    (390, DENSE_8B | {"fix": {"chunked_loss": True}}),
    (390, DENSE_8B | {"model": "1b"}),
    (400, DENSE_8B | ANY | {"workload": Workload(train="lora")}),
    (375, DENSE_8B | {"workload": Workload(train="lora"), "fix": {"chunked_loss": False}}),
    (430, {"model": "8b", "gpus": "1x24GB", "workload": Workload(train="qlora")}),
    (440, {"model": "8b", "gpus": "8x24GB", "workload": Workload(train="qlora")}),
    (365, DENSE_70B),
    (405, {"model": "8b", "gpus": "2x8xH100"} | LONG_SEQUENCES),
    (400, DENSE_70B | {"fix": {"pp": 4, "recompute": "none"}}),
    (425, DENSE_70B | {"fix": {"pp": 4}}),
    (490, {"model": "mixtral-8x7b", "gpus": "4x8xH100"}),
)


@pytest.mark.parametrize(("limit", "asked"), LENGTHS)
def test_the_python_code_of_a_plan_has_few_lines(limit: int, asked: dict[str, Any]) -> None:
    """All files with blank lines and comments, of dense plans, tensor and context parallelism, a pipeline and experts."""
    written = export_plan(best(Request(**{"backend": "pytorch"} | asked)), "pytorch")
    assert not written.findings
    counts = {file.name: len(file.text.splitlines()) for file in written.files if file.name.endswith(".py")}
    assert len(counts) == 5
    assert sum(counts.values()) < limit, counts


def test_config_json_is_written_for_hugging_face_architectures() -> None:
    assert json.loads(texts_of("ddp, buckets")["config.json"])["model_type"] == "qwen3"
    assert json.loads(texts_of("replicated experts")["config.json"])["model_type"] == "mixtral"
    assert "config.json" not in texts_of("experts")
    assert "--export-weights" not in texts_of("experts")["train.py"]


def test_exported_scripts_pass_ruff(tmp_path: Path) -> None:
    for number, name in enumerate(CASES):
        plan = plan_of(name)
        cuda = replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda"))
        there = {file.name: file.text for file in write(replace(plan, cluster=cuda), {}).files}
        for kind, texts in (("cpu", texts_of(name)), ("cuda", there)):
            folder = tmp_path / f"{kind}_{number}"
            folder.mkdir()
            for file in ("plan.py", "model.py", "data.py", "checkpoint.py", "train.py"):
                (folder / file).write_text(texts[file])
    select = "--select=E,F,W,B,C4,SIM,RET,PIE"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length=132", select, "--quiet", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
