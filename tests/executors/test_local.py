"""Every fault of a trial ends in one Measurement with the right outcome, and leaves no process behind."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from chaos import Chaos
from executors.conftest import StandInEngine, in_full, wait_until
from executors.messes import places

from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.errors import FileError, InputError
from strategist.executors.deadlines import Watch
from strategist.executors.host_memory import floor_bytes
from strategist.executors.local import RANK_START_BYTES, LocalExecutor, threads, trial_environment
from strategist.executors.processes import tagged
from strategist.executors.trial_process import start_supervised, sweep
from strategist.ledger.ledger import Ledger
from strategist.profiles import history
from strategist.profiles.local_machine import host_memory_bytes

SETTINGS = TrialSettings(steps=4, init_timeout_seconds=20.0, step_timeout_seconds=20.0, wall_timeout_seconds=40.0)
QUICK_STEP = replace(SETTINGS, step_timeout_seconds=1.5)
MakeExecutor = Callable[..., LocalExecutor]


def left() -> dict[int, str]:
    """What is left of the trials that this process ran."""
    return {pid: tag for pid, tag in tagged("").items() if f".{os.getpid()}." in tag}


@pytest.fixture
def execute(make_executor: MakeExecutor, plan: Plan, tmp_path: Path) -> Callable[..., Measurement]:
    def run(fault: str, settings: TrialSettings = SETTINGS, **options: object) -> Measurement:
        measurement = make_executor(fault).execute(plan, tmp_path / "trial", settings, **options)
        assert left() == {}
        assert codec.load(Measurement, tmp_path / "trial" / "measurement.json") == measurement
        return measurement

    return run


def test_a_trial_that_goes_well_is_measured(execute: Callable[..., Measurement], plan: Plan):
    measurement = execute("well")
    assert (measurement.outcome, measurement.kind, measurement.plan_id) == (Outcome.OK, Kind.REAL, plan.id)
    assert measurement.evidence.message == ""
    assert measurement.step_seconds == pytest.approx(0.01115)  # of rank 1, the slower
    assert measurement.step_seconds_spread == pytest.approx(0.00024 / 0.01115)
    assert measurement.steps_measured == 4
    assert measurement.tokens_per_second == pytest.approx(64 / 0.01115)
    assert measurement.mfu == pytest.approx(0.4 * 0.022 / 0.01115)
    assert measurement.peak_memory_bytes == (1000, 1001)
    assert (measurement.comm_ratio, measurement.exposed_comm_ratio) == (pytest.approx(0.5), pytest.approx(0.25))
    assert (measurement.losses, measurement.grad_norms) == ((3.0, 2.0), (1.0, 0.5))
    assert measurement.versions == {"torch": "0"}


@pytest.mark.parametrize(
    ("fault", "settings", "outcome", "rank", "phase", "message"),
    [
        in_full("hang-in-init", replace(SETTINGS, init_timeout_seconds=8.0), Outcome.TIMEOUT, 1, "init", "were not ready in time"),
        ("hang", QUICK_STEP, Outcome.TIMEOUT, 1, "measure", "no rank moved any more; furthest behind is rank 1, in measure"),
        in_full("hang-deaf", QUICK_STEP, Outcome.TIMEOUT, None, "measure", "no rank moved"),
        in_full("stopped", QUICK_STEP, Outcome.TIMEOUT, None, "measure", "no rank moved"),
        in_full("move-for-ever", replace(SETTINGS, wall_timeout_seconds=8.0), Outcome.TIMEOUT, None, "measure", "took too long"),
        in_full("grandchild-and-hang", QUICK_STEP, Outcome.TIMEOUT, None, "measure", "no rank moved"),
        ("killed", SETTINGS, Outcome.CRASH, 1, "measure", "left no record and ended with signal 9"),
        in_full("segfault", SETTINGS, Outcome.CRASH, 1, "measure", "signal 11"),
        in_full("raises", SETTINGS, Outcome.CRASH, 1, "measure", "exit code 1"),
        in_full("leaves-early", SETTINGS, Outcome.CRASH, 1, "measure", "left no record and ended with exit code 0"),
        in_full("leaves-nothing", SETTINGS, Outcome.BAD_MEASUREMENT, None, "measure", "left no record"),
        ("oom", SETTINGS, Outcome.OOM, 1, "measure", "can't allocate memory"),
        in_full("oom-without-record", SETTINGS, Outcome.OOM, 1, "measure", "std::bad_alloc"),
        in_full("oom-code", SETTINGS, Outcome.OOM, 1, "measure", "exit code 77"),
        ("nan", SETTINGS, Outcome.NAN, None, "measure", "loss nan"),
        ("refused", SETTINGS, Outcome.REFUSED, None, "spawn", "offload=streamed"),
        in_full("nan-figures", SETTINGS, Outcome.BAD_MEASUREMENT, 1, "measure", "NaN is not a finite number"),
        ("torn", SETTINGS, Outcome.BAD_MEASUREMENT, 1, "measure", "not a JSON document"),
        in_full("zero-seconds", SETTINGS, Outcome.BAD_MEASUREMENT, 1, "done", "a step of 0.0 s is impossible"),
        ("never-starts", SETTINGS, Outcome.INFRASTRUCTURE, None, "", "before it could read the plan"),
    ],
)
def test_each_fault_has_its_outcome(
    execute: Callable[..., Measurement],
    fault: str,
    settings: TrialSettings,
    outcome: Outcome,
    rank: int | None,
    phase: str,
    message: str,
):
    measurement = execute(fault, settings)
    evidence = measurement.evidence
    assert (measurement.outcome, evidence.phase) == (outcome, phase), evidence
    assert message in evidence.message
    assert rank in (None, evidence.rank)
    assert measurement.step_seconds is None


def test_the_log_of_the_rank_that_failed_is_evidence(execute: Callable[..., Measurement]):
    tail = execute("raises").evidence.log_tail
    assert tail.endswith("ValueError: the layer is not there")
    assert "Traceback" in tail


@pytest.mark.full
def test_a_rank_that_is_slow_but_moves_is_left_alone(execute: Callable[..., Measurement]):
    assert execute("slow", replace(SETTINGS, step_timeout_seconds=1.2)).outcome is Outcome.OK


def test_a_peer_that_does_not_notice_a_crash_is_not_waited_for(execute: Callable[..., Measurement]):
    patient = replace(SETTINGS, step_timeout_seconds=600.0, wall_timeout_seconds=600.0)
    measurement = execute("crash-that-leaves-a-deaf-peer", patient)
    assert (measurement.outcome, measurement.evidence.message) == (Outcome.CRASH, "ValueError: bad")


def test_work_that_is_done_counts_even_when_the_ranks_do_not_end(execute: Callable[..., Measurement]):
    measurement = execute("hang-at-exit", QUICK_STEP)
    assert (measurement.outcome, measurement.steps_measured) == (Outcome.OK, 4)
    assert "did not end by itself" in measurement.evidence.message


@pytest.mark.full
def test_a_log_of_any_length_takes_little_room(execute: Callable[..., Measurement], tmp_path: Path):
    assert execute("noisy").outcome is Outcome.OK
    logs = list((tmp_path / "trial").glob("*.log*"))
    assert sum(log.stat().st_size for log in logs) < 3 * 2**20
    assert b"the last line" in (tmp_path / "trial" / "rank-0.log").read_bytes()[-100:]


def test_a_daemon_that_a_rank_started_is_ended(execute: Callable[..., Measurement]):
    assert execute("grandchild").outcome is Outcome.OK


def test_records_of_an_earlier_attempt_are_not_believed(execute: Callable[..., Measurement]):
    assert execute("well").outcome is Outcome.OK
    assert execute("leaves-nothing").outcome is Outcome.BAD_MEASUREMENT


@pytest.mark.parametrize("launcher", [("/nowhere/torchrun",), (sys.executable, "-c", "import sys; sys.exit('no port')")])
def test_a_launcher_that_fails_says_nothing_about_the_plan(plan: Plan, tmp_path: Path, launcher: tuple[str, ...]):
    measurement = LocalExecutor(engine=StandInEngine(launcher), program=("true",)).execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert "before any rank started" in measurement.evidence.message
    assert "cannot be started" in measurement.evidence.log_tail or "no port" in measurement.evidence.log_tail


def test_a_measured_trial_comes_out_of_the_ledger_as_history(execute: Callable[..., Measurement], plan: Plan, tmp_path: Path):
    with Ledger.open(tmp_path / "study", create=True) as ledger:
        ledger.enqueue("candidate", codec.dumps(plan), "predicted")
        claim = ledger.claim("tuner", 60.0)
        given = codec.loads(Plan, claim.plan_json)
        assert given == plan
        measurement = execute("well", on_event=lambda _: ledger.renew(claim, 60.0))
        assert ledger.finish(claim, measurement.outcome, codec.dumps(measurement))
        ledger.export_jsonl(tmp_path / "history.jsonl")
    (record,) = history.read(tmp_path / "history.jsonl").records
    assert (record.plan, record.measurement) == (plan, measurement)


def test_progress_is_told(execute: Callable[..., Measurement], tmp_path: Path):
    """The rank goes on once each step was told."""
    told: list[Progress] = []

    def hear(progress: Progress) -> None:
        told.append(progress)
        (tmp_path / "trial" / "told").write_text(f"{progress.step}")

    execute("waits-to-be-told", on_event=hear)
    assert [event.phase for event in told][-1] in ("measure", "done")
    assert list(dict.fromkeys(event.step for event in told if event.step is not None)) == [0, 1, 2]
    assert told[-1].elapsed_seconds > told[0].elapsed_seconds


@pytest.mark.parametrize("error", [KeyboardInterrupt, in_full(ValueError)])
def test_what_interrupts_the_wait_ends_the_trial_and_goes_on(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, error: type[BaseException]
):
    def interrupt(progress: Progress) -> None:
        if progress.phase == "measure":
            assert left()
            raise error

    with pytest.raises(error):
        make_executor("grandchild-and-hang").execute(plan, tmp_path, SETTINGS, interrupt)
    assert left() == {}


@pytest.mark.parametrize(
    ("event", "function"),
    [
        ("return", subprocess.Popen._execute_child),
        ("return", subprocess.Popen.__init__),
        ("return", start_supervised),
        ("call", Watch.look),
    ],
    ids=["its process runs", "before it is known", "before it is watched", "before the first look"],
)
def test_an_interruption_while_a_trial_is_started_leaves_nothing(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, event: str, function: Callable[..., object]
):
    """A signal's exception can come between any two instructions."""

    def interrupt(frame: FrameType, what: str, value: object) -> None:
        if what == event and frame.f_code is function.__code__:
            sys.setprofile(None)
            wait_until(lambda: bool(tagged(study)))  # a process shows no environment while it changes its program
            raise KeyboardInterrupt

    executor = make_executor("hang")
    study = f"{executor.study}."
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.execute(plan, tmp_path / "trial", SETTINGS)
    finally:
        sys.setprofile(None)
    assert left() == {}
    assert not places(os.getpid())


TUNER = """
import sys
from pathlib import Path
from types import FrameType
sys.path.insert(0, sys.argv[1])
from conftest import STAND_IN, StandInEngine
from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.local import LocalExecutor
executor = LocalExecutor(study=sys.argv[3], engine=StandInEngine(), program=(sys.executable, STAND_IN, "rank", sys.argv[4]))
folder = Path(sys.argv[2])
executor.execute(codec.load(Plan, folder / "given.json"), folder / "trial", TrialSettings())
"""


Tuner = tuple[subprocess.Popen[bytes], str]


@pytest.fixture
def start_tuner(plan: Plan, tmp_path: Path) -> Iterator[Callable[[], Tuner]]:
    """Each call starts a process that runs a trial which hangs, with daemons in sessions of their own, and waits until all are
    there."""
    started: list[Tuner] = []

    def start() -> Tuner:
        folder = tmp_path / f"{len(started)}"
        folder.mkdir()
        codec.save(plan, folder / "given.json")
        study = f"tuner-{os.getpid()}-{folder}"
        arguments = [str(Path(__file__).parent), str(folder), study, "grandchild-and-hang"]
        process = subprocess.Popen([sys.executable, "-c", TUNER, *arguments], stderr=subprocess.DEVNULL)
        started.append((process, study))
        wait_until(lambda: len(list(folder.glob("trial/hanging-*"))) == 2)
        return process, study

    yield start
    for process, study in started:
        process.kill()
        process.wait()
        sweep(study)


@pytest.mark.chaos("Trials", "nothing is left of a trial whose tuner is killed")
def test_a_tuner_killed_at_once_leaves_nothing(start_tuner: Callable[[], Tuner], chaos: Chaos):
    kills, seconds = chaos.size(1, 50), list[float]()
    for _ in range(kills):
        process, study = start_tuner()
        assert len(tagged(study)) >= 7  # keeper, launcher, two keepers and ranks, daemons
        assert places(process.pid)
        process.kill()
        killed = time.monotonic()
        process.wait()
        wait_until(lambda study=study, process=process: not tagged(study) and not places(process.pid))
        seconds.append(time.monotonic() - killed)
    chaos.found(f"{kills} kills, 0 processes and temporary folders left {max(seconds):.2f} s later (1 s asked)")


@pytest.mark.chaos("Trials", "what a tuner and its keeper leave is swept at the next start")
def test_the_next_start_sweeps(start_tuner: Callable[[], Tuner], chaos: Chaos):
    kills, swept = chaos.size(1, 50), 0
    for _ in range(kills):
        process, study = start_tuner()
        os.kill(min(tagged(study)), signal.SIGSTOP)  # the keeper, which would see to it
        process.kill()
        process.wait()
        assert tagged(study)
        assert places(process.pid)
        swept += sweep(study)
        assert not tagged(study)
        assert not places(process.pid)
    assert swept >= 7 * kills
    chaos.found(f"{kills} kills of tuners whose keeper could not help: {swept} processes swept, 0 left, nor temporary folders")


def test_a_tuner_interrupted_leaves_nothing(start_tuner: Callable[[], Tuner]):
    process, study = start_tuner()
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    assert not tagged(study)
    assert not places(process.pid)


def test_killing_the_keeper_of_a_trial_leaves_nothing_and_says_so(make_executor: MakeExecutor, plan: Plan, tmp_path: Path):
    def strike(progress: Progress) -> None:
        if progress.phase == "measure":
            os.kill(min(left()), signal.SIGKILL)

    measurement = make_executor("grandchild-and-hang").execute(plan, tmp_path, SETTINGS, strike)
    assert left() == {}
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert "ended by signal 9" in measurement.evidence.message


def test_a_trial_sees_no_secrets():
    given = {"PATH": "/bin", "HF_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "PYTORCH_ALLOC_CONF": "y", "PYTHONPATH": "x"}
    kept = {"PATH": "/bin", "PYTORCH_ALLOC_CONF": "y", "PYTHONPATH": "x", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    assert trial_environment(given) == kept
    assert trial_environment({"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"


def test_beside_gpus_the_host_has_all_its_threads(plan: Plan):
    """It updates what is offloaded; ranks on a CPU share its cores."""
    on_gpus = replace(plan, cluster=replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda")))
    cores, ranks = len(os.sched_getaffinity(0)), plan.candidate.layout.world_size
    assert threads(plan) == 1
    assert threads(on_gpus) == max(1, cores // ranks)
    assert trial_environment({}, 8)["OMP_NUM_THREADS"] == "8"


def test_ranks_that_share_a_gpu_need_one(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho GPU 0: test\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    on_gpus = replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda"))
    with pytest.raises(InputError, match="2 ranks on cuda: this machine shows 1 devices"):
        LocalExecutor(program=("true",)).preflight(replace(plan, cluster=on_gpus))
    LocalExecutor(program=("true",)).preflight(replace(plan, cluster=replace(on_gpus, devices_share_one_gpu=True)))


def test_ranks_see_what_the_plan_says_over_what_was_there(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\necho GPU 0: test\necho GPU 1: test\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{driver.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    on_gpus = replace(plan, cluster=replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda")))
    options = replace(plan.candidate.options, nccl_algorithm="ring", expandable_segments=True)
    on_gpus = replace(on_gpus, candidate=replace(plan.candidate, options=options))
    assert make_executor("tells-its-environment").execute(on_gpus, tmp_path / "trial", SETTINGS).outcome is Outcome.OK
    for rank in (0, 1):
        seen = json.loads((tmp_path / "trial" / f"environment-{rank}.json").read_text())
        assert (seen["NCCL_ALGO"], seen["NCCL_DEBUG"]) == ("Ring", "WARN")
        assert seen["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


def test_a_machine_without_the_devices_is_said_before_anything_starts(plan: Plan, tmp_path: Path):
    device = replace(plan.cluster.device, kind="cuda")
    layout = replace(plan.candidate.layout, dp_shard=4096)
    large = replace(plan, cluster=replace(plan.cluster, device=device), candidate=replace(plan.candidate, layout=layout))
    with pytest.raises(InputError, match=r"4096 ranks on cuda: this machine shows.*strategist simulate\)"):
        LocalExecutor(program=("true",)).execute(large, tmp_path, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_torch_is_said_with_its_cure(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"torch: is not installed; pip install 'torch-strategist\[runtime\]'"):
        LocalExecutor().execute(plan, tmp_path, SETTINGS)


def test_a_machine_without_memory_free_is_infrastructure(plan: Plan, tmp_path: Path):
    ranks = (host_memory_bytes() - floor_bytes()) // RANK_START_BYTES  # of which this process and others hold some
    layout = replace(plan.candidate.layout, dp_shard=ranks)
    large = replace(plan, candidate=replace(plan.candidate, layout=layout))
    measurement = LocalExecutor(program=("true",)).execute(large, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert f"{ranks} ranks need" in measurement.evidence.message


def test_a_folder_that_cannot_be_written_is_one_line(make_executor: MakeExecutor, plan: Plan, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        make_executor("well").execute(plan, tmp_path / "file", SETTINGS)


TRAINING = replace(SETTINGS, total_steps=20, max_restarts=2)


def test_a_training_whose_rank_is_killed_begins_again(execute: Callable[..., Measurement]):
    measurement = execute("killed-once", TRAINING)
    assert (measurement.outcome, measurement.restarts, measurement.lost_ranks) == (Outcome.OK, 1, ())


@pytest.mark.full
def test_a_trial_does_not(execute: Callable[..., Measurement]):
    measurement = execute("killed-once", replace(SETTINGS, max_restarts=2))
    assert (measurement.outcome, measurement.restarts, measurement.lost_ranks) == (Outcome.CRASH, 0, (1,))


@pytest.mark.full
def test_restarts_are_counted_out(execute: Callable[..., Measurement]):
    measurement = execute("killed", TRAINING)
    assert (measurement.outcome, measurement.restarts, measurement.lost_ranks) == (Outcome.CRASH, 2, (1,))


def test_what_would_end_the_same_way_is_not_tried_again(execute: Callable[..., Measurement], tmp_path: Path):
    measurement = execute("oom-code", TRAINING)
    assert (measurement.outcome, measurement.evidence.rank, measurement.lost_ranks) == (Outcome.OOM, 1, ())
    assert "exit code 77" in measurement.evidence.message


@pytest.mark.full
def test_a_rank_that_stands_still_is_lost(execute: Callable[..., Measurement]):
    measurement = execute("hang", replace(TRAINING, step_timeout_seconds=1.5))
    assert (measurement.outcome, measurement.lost_ranks) == (Outcome.TIMEOUT, (1,))


@pytest.mark.full
def test_a_fault_of_all_ranks_takes_no_device_away(execute: Callable[..., Measurement]):
    assert execute("raises", TRAINING).lost_ranks == ()


def test_lost_devices_are_hidden(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    executor = replace(make_executor("tells-its-environment"), lost=frozenset({1, 2}))
    assert executor.execute(plan, tmp_path, SETTINGS).outcome is Outcome.OK
    told = json.loads((tmp_path / "environment-0.json").read_text(encoding="utf-8"))
    assert told["CUDA_VISIBLE_DEVICES"] == "4,7"
