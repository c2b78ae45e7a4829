"""``strategist run`` as a training: one command that outlives killed ranks, with the curve of a training that nothing befell."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import Training
from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors import processes

COMMAND = (sys.executable, "-m", "strategist.cli.main")
TINY = ["--model", "tiny", "--gpus", "4xcpu", "--seq-len", "64", "--global-batch", "8", "--precision", "fp32"]
STEPS = 24


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("training") / "four.json"
    assert main(["plan", *TINY, "--fix", "dp_shard=4", "--fix", "checkpoint=async", "-o", str(file)]) == 0
    return file


def curve(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()]


def ranks_of(command: int) -> dict[int, int]:
    """Processes of the ranks below a command, by rank."""
    found = {}
    for pid in (pid for pid, tag in processes.tagged("study.").items() if tag.split(".")[1] == str(command)):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"strategist_runtime" in words and b"strategist.executors.keeper" not in words:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found[next(int(item[5:]) for item in variables if item.startswith(b"RANK="))] = pid
    return found


def train(plan_file: Path, folder: Path, *more: str, kill: int) -> tuple[subprocess.CompletedProcess[str], Measurement]:
    """A training of which rank 1 is killed each time that it has come so far, ``kill`` times."""
    arguments = ["run", str(plan_file), "--steps", str(STEPS), "--save", str(folder / "save"), "--save-every", "3"]
    arguments += ["--log", str(folder / "log"), "--out", str(folder / "out"), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    for killed in range(kill):
        first = folder / "save" / f"step-{3 * (killed + 1):08}"
        while not first.exists():
            assert command.poll() is None, command.communicate()
            time.sleep(0.01)
        os.kill(ranks_of(command.pid)[1], signal.SIGKILL)
    out, errors = command.communicate(timeout=200)
    assert ranks_of(command.pid) == {}
    done = subprocess.CompletedProcess(arguments, command.returncode, out, errors)
    return done, codec.load(Measurement, folder / "out" / "measurement.json")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """The curve of one rank that nothing befell."""
    folder = tmp_path_factory.mktemp("untouched")
    alone = folder / "one.json"
    assert main(["plan", *TINY, "--gpus", "1xcpu", "-o", str(alone)]) == 0
    done, measurement = train(alone, folder, kill=0)
    assert (done.returncode, measurement.outcome, len(measurement.losses)) == (0, Outcome.OK, STEPS), done.stderr
    return curve(folder / "log")


@pytest.mark.torch
@pytest.mark.timeout(250)
@pytest.mark.full
def test_a_killed_rank_starts_again_from_the_last_checkpoint(
    plan_file: Path, untouched: list[dict[str, float]], tmp_path: Path
) -> None:
    done, measurement = train(plan_file, tmp_path, "--max-restarts", "2", kill=1)
    assert (done.returncode, measurement.outcome, measurement.restarts) == (0, Outcome.OK, 1), done.stdout
    found = curve(tmp_path / "log")
    assert [line["step"] for line in found] == list(range(STEPS))
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in untouched], rel=1e-5)


@pytest.mark.torch
@pytest.mark.timeout(250)
@pytest.mark.full
def test_a_world_that_shrinks_plans_again_and_goes_on(plan_file: Path, untouched: list[dict[str, float]], tmp_path: Path) -> None:
    done, measurement = train(plan_file, tmp_path, "--elastic", "--max-restarts", "0", kill=1)
    assert (done.returncode, measurement.outcome) == (0, Outcome.OK), done.stdout + done.stderr
    plan = codec.load(Plan, tmp_path / "out" / "plan.json")
    assert plan.candidate.layout.world_size < 4
    assert done.stdout.startswith(f"plan {plan.id} on ")
    assert plan.workload == codec.load(Plan, plan_file).workload
    assert f"lost rank 1; {plan.candidate.layout.world_size} of 4 ranks go on from step " in done.stderr
    found = curve(tmp_path / "log")
    assert [line["step"] for line in found] == list(range(STEPS))
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in untouched], rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--save", "DIR/new"], "--save DIR/new: is for a training; say until which step"),
        (["--elastic"], "--elastic: is for a training, and this is a trial; add --save DIR"),
        (["--save-every", "3"], "--save-every: is for a training"),
        (["--resume", "DIR/new"], "--resume DIR/new: is no folder"),
        (["--resume", "DIR"], "--resume DIR: holds no whole checkpoint"),
        (["--resume", "DIR/save"], "--steps 4: DIR/save/step-00000004 is at step 4 already; ask for more"),
        (["--resume", "DIR/save", "--steps", "9", "--seed", "3"], "was trained with seed 0, which gives the order of its data"),
        (["--save", "DIR/save", "--steps", "9"], "holds checkpoints up to step 4; go on with --resume DIR/save, or name another"),
        (["--resume", "DIR/save", "--steps", "9", "--elastic"], "--elastic: goes on from checkpoints, and there are none"),
        (["--data", "DIR/nothing.bin"], "DIR/nothing.bin: is not there"),
        (
            ["--save", "DIR/file/new", "--steps", "9"],
            "--save DIR/file/new: cannot be written: Not a directory; choose",
        ),
        (["--trace", "DIR/file"], "--trace DIR/file: cannot be written: File exists"),
        (["--log", "DIR/file/new"], "--log DIR/file/new: cannot be written"),
        (["--export-weights", "DIR/file/new"], "--export-weights DIR/file/new: cannot be written"),
        (["--learning-rate", "fast"], "--learning-rate fast: a number above 0 is needed"),
        (["--learning-rate-schedule", "cosine"], "cosine: ends with a training, and this is a trial"),
        (["--learning-rate-schedule", "wild", "--save", "DIR/new", "--steps", "9"], "wild: is not known"),
        (["--data-type", "text"], "--data-type text: is not known; choose one of uint16, uint32, int32"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_before_anything_starts(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    plan = codec.load(Plan, plan_file)
    there = tmp_path / "save" / checkpoint.name_of(4)
    there.mkdir(parents=True)
    (tmp_path / "file").touch()
    training = Training(
        step=4, samples=32, settings=TrialSettings(total_steps=4), model=plan.model, workload=plan.workload, plan_id=plan.id,
        ranks=4, files={},
    )  # fmt: skip
    codec.save(training, there / checkpoint.DESCRIPTION)
    capsys.readouterr()
    assert main(["run", str(plan_file), *(item.replace("DIR", str(tmp_path)) for item in arguments)]) == 2
    err = capsys.readouterr().err.replace(str(tmp_path), "DIR")
    assert words in err
    assert err.count("\n") == 1
