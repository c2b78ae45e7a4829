"""``strategist run`` as a training: survives killed ranks with the loss curve of an undisturbed training."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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
    """Rank processes of a command, by rank."""
    found = {}
    for pid in (pid for pid, tag in processes.tagged("study.").items() if tag.split(".")[1] == str(command)):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"strategist_runtime" in words and b"strategist.executors.process_supervisor" not in words:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found[next(int(item[5:]) for item in variables if item.startswith(b"RANK="))] = pid
    return found


def ancestor(process: int, generations: int) -> int:
    """The supervisor of a rank (1 generation up), or the launcher (2)."""
    for _ in range(generations):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


def train(
    plan_file: Path, folder: Path, *more: str, kill: int, generations: int = 0
) -> tuple[subprocess.CompletedProcess[str], Measurement]:
    """A training whose rank 1, or the ancestor ``generations`` above, is killed ``kill`` times, each after a checkpoint."""
    arguments = ["run", str(plan_file), "--steps", str(STEPS), "--save", str(folder / "save"), "--save-every", "3"]
    arguments += ["--log", str(folder / "log"), "--out", str(folder / "out"), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    for killed in range(kill):
        first = folder / "save" / f"step-{3 * (killed + 1):08}"
        while not first.exists():
            assert command.poll() is None, command.communicate()
            time.sleep(0.01)
        os.kill(ancestor(ranks_of(command.pid)[1], generations), signal.SIGKILL)
    out, errors = command.communicate()
    assert ranks_of(command.pid) == {}
    done = subprocess.CompletedProcess(arguments, command.returncode, out, errors)
    return done, codec.load(Measurement, folder / "out" / "measurement.json")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """The curve of an undisturbed training with one rank."""
    folder = tmp_path_factory.mktemp("undisturbed")
    alone = folder / "one.json"
    assert main(["plan", *TINY, "--gpus", "1xcpu", "-o", str(alone)]) == 0
    done, measurement = train(alone, folder, kill=0)
    assert (done.returncode, measurement.outcome, len(measurement.losses)) == (0, Outcome.OK, STEPS), done.stderr
    return curve(folder / "log")


@pytest.mark.torch
@pytest.mark.timeout(250)
@pytest.mark.full
def test_a_killed_rank_restarts_from_the_last_checkpoint(
    plan_file: Path, undisturbed: list[dict[str, float]], tmp_path: Path
) -> None:
    done, measurement = train(plan_file, tmp_path, "--max-restarts", "2", kill=1)
    assert (done.returncode, measurement.outcome, measurement.restarts) == (0, Outcome.OK, 1), done.stdout
    found = curve(tmp_path / "log")
    assert [line["step"] for line in found] == list(range(STEPS))
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in undisturbed], rel=1e-5)


@pytest.mark.torch
@pytest.mark.timeout(250)
@pytest.mark.full
@pytest.mark.parametrize("generations", [0, 1])
def test_an_elastic_training_continues_with_a_new_plan_after_a_lost_rank(
    plan_file: Path, undisturbed: list[dict[str, float]], tmp_path: Path, generations: int
) -> None:
    """The rank or its supervisor is killed."""
    done, measurement = train(plan_file, tmp_path, "--elastic", "--max-restarts", "0", kill=1, generations=generations)
    assert (done.returncode, measurement.outcome) == (0, Outcome.OK), done.stdout + done.stderr
    plan = codec.load(Plan, tmp_path / "out" / "plan.json")
    assert plan.candidate.layout.world_size < 4
    assert done.stdout.startswith(f"plan {plan.id} on ")
    assert plan.workload == codec.load(Plan, plan_file).workload
    assert f"lost rank 1; {plan.candidate.layout.world_size} of 4 ranks go on from step " in done.stderr
    found = curve(tmp_path / "log")
    assert [line["step"] for line in found] == list(range(STEPS))
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in undisturbed], rel=1e-5)


@pytest.mark.torch
@pytest.mark.timeout(250)
@pytest.mark.full
def test_a_killed_launcher_is_replaced(plan_file: Path, undisturbed: list[dict[str, float]], tmp_path: Path) -> None:
    done, measurement = train(plan_file, tmp_path, "--elastic", "--max-restarts", "0", kill=1, generations=2)
    assert (done.returncode, measurement.outcome, measurement.restarts) == (0, Outcome.OK, 1), done.stdout + done.stderr
    assert "lost rank 0, 1, 2, 3; 4 of 4 ranks go on from step " in done.stderr
    assert [line["loss"] for line in curve(tmp_path / "log")] == pytest.approx([line["loss"] for line in undisturbed], rel=1e-5)


@pytest.fixture(scope="module")
def few_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A plan of one rank and one of two: a test of the command itself pays for each rank that imports torch."""
    folder = tmp_path_factory.mktemp("training")
    files = {ranks: folder / f"{ranks}.json" for ranks in (1, 2)}
    for ranks, file in files.items():
        fixed = ["--fix", f"dp_shard={ranks}", "--fix", "checkpoint=async"]
        assert main(["plan", *TINY, "--gpus", f"{ranks}xcpu", *fixed, "-o", str(file)]) == 0
    return files


@pytest.mark.torch
@pytest.mark.timeout(250)
def test_a_training_stopped_by_a_signal_saves_its_step_and_resumes(few_ranks: dict[int, Path], tmp_path: Path) -> None:
    """First SIGTERM to one of two ranks, as a preempted machine sends it; then Ctrl-C to the command that resumed the training
    with one rank.
    """
    save, log = tmp_path / "save", tmp_path / "log"
    common = ["--steps", "400", "--save", str(save), "--save-every", "300", "--log", str(log)]
    resumed_at = 0
    for number in (0, 1):
        out = tmp_path / f"out-{number}"
        more = [str(few_ranks[1]), "--resume", str(save)] if number else [str(few_ranks[2])]
        command = subprocess.Popen(
            [*COMMAND, "run", *more, *common, "--progress-seconds", "0.1", "--out", str(out)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        wait_for(lambda out=out: (out / "progress.jsonl").exists(), command)
        if number:
            command.send_signal(signal.SIGINT)
        else:
            os.kill(ranks_of(command.pid)[1], signal.SIGTERM)
        _, errors = command.communicate()
        measurement = codec.load(Measurement, out / "measurement.json")
        assert (command.returncode, measurement.outcome, measurement.restarts) == (130, Outcome.CANCELLED, 0), errors
        done = checkpoint.read(checkpoint.find(save)).step
        assert f"strategist: stopped after step {done} of 400, as asked; to go on: --resume {save}" in errors
        assert "strategist: step 1 of 400, loss " in errors or number
        assert [line["step"] for line in curve(log)] == list(range(done))
        assert resumed_at < done < 300
        resumed_at = done


def wait_for(condition: Callable[[], bool], command: subprocess.Popen[str]) -> None:
    """Waits until the condition holds, while the command runs."""
    while not condition():
        assert command.poll() is None, command.communicate()
        time.sleep(0.01)


@pytest.mark.torch
@pytest.mark.timeout(200)
def test_an_exporting_run_trains_for_its_number_of_steps(
    few_ranks: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With evaluation, the best and the newest checkpoint, and curves in the default folder, whose path is printed."""
    data = [str(tmp_path / f"{name}.bin") for name in ("data", "held-out")]
    for path in data:
        Path(path).write_bytes(b"".join(number.to_bytes(2, "little") for number in range(200)) * 20)
    arguments = [
        "run",
        str(few_ranks[1]),
        "--steps",
        "5",
        "--export-weights",
        str(tmp_path / "model"),
        "--out",
        str(tmp_path / "out"),
    ]
    arguments += ["--data", f"{data[0]}=2", "--data", f"{data[1]}=1", "--eval-data", data[1], "--eval-every", "2"]
    arguments += ["--save", str(tmp_path / "save"), "--save-every", "1", "--keep", "1", "--keep-best", "1"]
    assert main([*arguments, "--learning-rate", "0.01"]) == 0
    shown, save = capsys.readouterr().out, tmp_path / "save"
    assert f"curves in {tmp_path / 'out' / 'curves.csv'}\n" in shown
    assert f"to go on: strategist run {few_ranks[1]} --resume {save} --save {save} --steps 10\n" in shown
    found = curve(tmp_path / "out")
    assert [line["step"] for line in found] == list(range(5))
    losses = [line["evaluation_loss"] for line in found]  # before each save, since it may be the best
    best = min(range(5), key=losses.__getitem__)
    kept = {
        checkpoint.step_of(path): checkpoint.read(path).evaluation_loss
        for path in checkpoint.complete_checkpoints(tmp_path / "save")
    }
    assert kept == {step + 1: losses[step] for step in {best, 4}}
    assert (tmp_path / "model" / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--save", "DIR/new"], "--save DIR/new: is for a training; say until which step"),
        (["--elastic"], "--elastic: is for a training, and this is a trial; add --save DIR"),
        (["--save-every", "3"], "--save-every: is for a training"),
        (["--resume", "DIR/new"], "--resume DIR/new: is not a folder"),
        (["--resume", "DIR"], "--resume DIR: holds no whole checkpoint"),
        (["--resume", "DIR/save"], "--steps 4: DIR/save/step-00000004 is at step 4 already; ask for more"),
        (["--resume", "DIR/save", "--steps", "9", "--seed", "3"], "was trained with seed 0, which gives the order of its data"),
        (["--save", "DIR/save", "--steps", "9"], "holds checkpoints up to step 4; go on with --resume DIR/save, or name another"),
        (["--resume", "DIR/save", "--steps", "9", "--elastic"], "--elastic: continues from checkpoints, and none are saved"),
        (["--data", "DIR/nothing.bin"], "DIR/nothing.bin: is not there"),
        (
            ["--save", "DIR/file/new", "--steps", "9"],
            "--save DIR/file/new: cannot be written: Not a directory; choose",
        ),
        (["--trace", "DIR/file"], "--trace DIR/file: cannot be written: File exists"),
        (["--log", "DIR/file/new"], "--log DIR/file/new: cannot be written"),
        (["--export-weights", "DIR/file/new", "--steps", "4"], "--export-weights DIR/file/new: cannot be written"),
        (["--learning-rate", "fast"], "--learning-rate fast: a number above 0 and below 1e6 is needed"),
        (["--learning-rate", "1e6"], "--learning-rate 1e6: a number above 0 and below 1e6 is needed"),
        (["--learning-rate-schedule", "cosine"], "cosine: ends with a training, and this is a trial"),
        (
            ["--learning-rate-warmup-steps", "9", "--save", "DIR/new", "--steps", "4"],
            "--learning-rate-warmup-steps 9: is longer than the training of 4 steps; give fewer",
        ),
        (
            [
                "--learning-rate-schedule",
                "wsd",
                "--learning-rate-warmup-steps",
                "3",
                "--learning-rate-decay-steps",
                "3",
                "--save",
                "DIR/new",
                "--steps",
                "4",
            ],
            "--learning-rate-schedule wsd: warms up in 3 and decays in 3 of only 4 steps",
        ),
        (["--learning-rate-decay-steps", "3"], "--learning-rate-decay-steps 3: is for the schedule wsd, not constant"),
        (["--learning-rate-min-ratio", "2"], "--learning-rate-min-ratio 2.0: is a share of the learning rate, 0 to 1"),
        (["--no-decay", "norms,heads"], "--no-decay heads: is not known; choose one of norms, biases, embeddings"),
        (["--betas", "0.9"], "--betas 0.9: are two numbers; write e.g. --betas 0.9,0.95"),
        (["--betas", "0.9,1"], "--betas 0.9,1.0: are from 0 to below 1"),
        (["--clip-norm", "0"], "--clip-norm 0: a number above 0 is needed"),
        (["--non-finite", "ignore"], "--non-finite ignore: is not known; choose one of stop, skip"),
        (["--export-weights", "DIR/new"], "--export-weights DIR/new: is for a training; say until which step: --steps N"),
        (["--eval-data", "DIR/file"], "--eval-data DIR/file: is for a training; say until which step: --steps N"),
        (["--eval-data", "DIR/nothing.bin", "--steps", "4"], "DIR/nothing.bin: is not there; name a file of tokens or examples"),
        (["--eval-every", "4"], "--eval-every 4: needs held-out data to evaluate on; add --eval-data PATH"),
        (["--save", "DIR/new", "--steps", "4", "--keep-best", "2"], "--keep-best 2: needs held-out data to evaluate on"),
        (["--data", "DIR/a.jsonl"], "--data DIR/a.jsonl: holds examples, which are tokenised first; add --tokenizer DIR"),
        (
            ["--data", "DIR/a.jsonl", "--tokenizer", "DIR/nowhere"],
            "DIR/nowhere: is not there; name a tokenizer.json, or its folder",
        ),
        (["--data", "DIR/file=1", "--data", "DIR/a.jsonl"], "--data DIR/a.jsonl: has no weight, and other sources have one"),
        (["--data", "DIR/file=0"], "--data DIR/file=0.0: a weight is above 0"),
        (["--wandb", "project"], "--wandb project: is for a training; say until which step: --steps N"),
        (
            ["--wandb", "project", "--steps", "4"],
            "--wandb project: needs wandb, which is not installed; pip install 'torch-strategist[wandb]'",
        ),
        (["--learning-rate-schedule", "wild", "--save", "DIR/new", "--steps", "9"], "wild: is not known"),
        (["--data-type", "text"], "--data-type text: is not known; choose one of uint16, uint32, int32"),
    ],
)
def test_a_wrong_training_option_prints_one_error_line_before_any_rank_starts(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    plan = codec.load(Plan, plan_file)
    there = tmp_path / "save" / checkpoint.name_of(4)
    there.mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "a.jsonl").touch()
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
