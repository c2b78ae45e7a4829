"""Every fault of a trial gives one Measurement with the correct outcome, and leaves no process behind."""

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
from executors.conftest import StandInEngine, full_only, wait_until
from executors.leftovers import places

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


def leftover_processes() -> dict[int, str]:
    """Processes left of the trials that this process ran."""
    return {pid: tag for pid, tag in tagged("").items() if f".{os.getpid()}." in tag}


@pytest.fixture
def execute(make_executor: MakeExecutor, plan: Plan, tmp_path: Path) -> Callable[..., Measurement]:
    def run(fault: str, settings: TrialSettings = SETTINGS, **options: object) -> Measurement:
        measurement = make_executor(fault).execute(plan, tmp_path / "trial", settings, **options)
        assert leftover_processes() == {}
        assert codec.load(Measurement, tmp_path / "trial" / "measurement.json") == measurement
        return measurement

    return run


def test_a_successful_trial_is_measured(execute: Callable[..., Measurement], plan: Plan):
    measurement = execute("well")
    assert (measurement.outcome, measurement.kind, measurement.plan_id) == (Outcome.OK, Kind.REAL, plan.id)
    assert measurement.evidence.message == ""
    assert measurement.step_seconds == pytest.approx(0.01115)  # of rank 1, the slower rank
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
        full_only(
            "hang-in-init", replace(SETTINGS, init_timeout_seconds=8.0), Outcome.TIMEOUT, 1, "init", "were not ready in time"
        ),
        ("hang", QUICK_STEP, Outcome.TIMEOUT, 1, "measure", "no rank moved any more; furthest behind is rank 1, in measure"),
        full_only("hang-ignoring-sigterm", QUICK_STEP, Outcome.TIMEOUT, None, "measure", "no rank moved"),
        full_only("stopped", QUICK_STEP, Outcome.TIMEOUT, None, "measure", "no rank moved"),
        full_only("move-forever", replace(SETTINGS, wall_timeout_seconds=8.0), Outcome.TIMEOUT, None, "measure", "took too long"),
        full_only("grandchild-and-hang", QUICK_STEP, Outcome.TIMEOUT, None, "measure", "no rank moved"),
        ("killed", SETTINGS, Outcome.CRASH, 1, "measure", "left no record and ended with signal 9"),
        full_only("segfault", SETTINGS, Outcome.CRASH, 1, "measure", "signal 11"),
        full_only("raises", SETTINGS, Outcome.CRASH, 1, "measure", "exit code 1"),
        full_only("leaves-early", SETTINGS, Outcome.CRASH, 1, "measure", "left no record and ended with exit code 0"),
        full_only("leaves-nothing", SETTINGS, Outcome.BAD_MEASUREMENT, None, "measure", "left no record"),
        ("oom", SETTINGS, Outcome.OOM, 1, "measure", "can't allocate memory"),
        full_only("oom-without-record", SETTINGS, Outcome.OOM, 1, "measure", "std::bad_alloc"),
        full_only("oom-code", SETTINGS, Outcome.OOM, 1, "measure", "exit code 77"),
        ("nan", SETTINGS, Outcome.NAN, None, "measure", "loss nan"),
        ("refused", SETTINGS, Outcome.REFUSED, None, "spawn", "offload=streamed"),
        full_only("nan-figures", SETTINGS, Outcome.BAD_MEASUREMENT, 1, "measure", "NaN is not a finite number"),
        ("torn", SETTINGS, Outcome.BAD_MEASUREMENT, 1, "measure", "not a JSON document"),
        full_only("zero-seconds", SETTINGS, Outcome.BAD_MEASUREMENT, 1, "done", "a step of 0.0 s is impossible"),
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


def test_the_log_of_the_failed_rank_is_evidence(execute: Callable[..., Measurement]):
    tail = execute("raises").evidence.log_tail
    assert tail.endswith("ValueError: the layer is not there")
    assert "Traceback" in tail


@pytest.mark.full
def test_a_slow_rank_with_progress_is_not_terminated(execute: Callable[..., Measurement]):
    assert execute("slow", replace(SETTINGS, step_timeout_seconds=1.2)).outcome is Outcome.OK


def test_a_hung_peer_of_a_crashed_rank_is_terminated(execute: Callable[..., Measurement]):
    patient = replace(SETTINGS, step_timeout_seconds=600.0, wall_timeout_seconds=600.0)
    measurement = execute("crash-with-hanging-peer", patient)
    assert (measurement.outcome, measurement.evidence.message) == (Outcome.CRASH, "ValueError: bad")


def test_a_finished_trial_counts_although_its_ranks_do_not_exit(execute: Callable[..., Measurement]):
    measurement = execute("hang-at-exit", QUICK_STEP)
    assert (measurement.outcome, measurement.steps_measured) == (Outcome.OK, 4)
    assert "did not end by itself" in measurement.evidence.message


@pytest.mark.full
def test_log_files_are_bounded(execute: Callable[..., Measurement], tmp_path: Path):
    assert execute("noisy").outcome is Outcome.OK
    logs = list((tmp_path / "trial").glob("*.log*"))
    assert sum(log.stat().st_size for log in logs) < 3 * 2**20
    assert b"the last line" in (tmp_path / "trial" / "rank-0.log").read_bytes()[-100:]


def test_a_daemon_started_by_a_rank_is_terminated(execute: Callable[..., Measurement]):
    assert execute("grandchild").outcome is Outcome.OK


def test_records_of_an_earlier_attempt_are_ignored(execute: Callable[..., Measurement]):
    assert execute("well").outcome is Outcome.OK
    assert execute("leaves-nothing").outcome is Outcome.BAD_MEASUREMENT


@pytest.mark.parametrize("launcher", [("/nowhere/torchrun",), (sys.executable, "-c", "import sys; sys.exit('no port')")])
def test_a_failed_launcher_is_an_infrastructure_failure(plan: Plan, tmp_path: Path, launcher: tuple[str, ...]):
    measurement = LocalExecutor(engine=StandInEngine(launcher), program=("true",)).execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert "before any rank started" in measurement.evidence.message
    assert "cannot be started" in measurement.evidence.log_tail or "no port" in measurement.evidence.log_tail


def test_a_measured_trial_is_exported_from_the_ledger_as_history(execute: Callable[..., Measurement], plan: Plan, tmp_path: Path):
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


def test_progress_events_are_sent(execute: Callable[..., Measurement], tmp_path: Path):
    """The rank continues after each step's event."""
    received: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        received.append(progress)
        (tmp_path / "trial" / "acknowledged").write_text(f"{progress.step}")

    execute("waits-for-acknowledgement", on_event=on_progress)
    assert [event.phase for event in received][-1] in ("measure", "done")
    assert list(dict.fromkeys(event.step for event in received if event.step is not None)) == [0, 1, 2]
    assert received[-1].elapsed_seconds > received[0].elapsed_seconds


@pytest.mark.parametrize("error", [KeyboardInterrupt, full_only(ValueError)])
def test_an_exception_while_waiting_ends_the_trial_and_propagates(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, error: type[BaseException]
):
    def interrupt(progress: Progress) -> None:
        if progress.phase == "measure":
            assert leftover_processes()
            raise error

    with pytest.raises(error):
        make_executor("grandchild-and-hang").execute(plan, tmp_path, SETTINGS, interrupt)
    assert leftover_processes() == {}


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
def test_an_interruption_during_the_start_leaves_nothing(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, event: str, function: Callable[..., object]
):
    """A signal's exception can be raised between any two instructions."""

    def interrupt(frame: FrameType, happened: str, value: object) -> None:
        if happened == event and frame.f_code is function.__code__:
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
    assert leftover_processes() == {}
    assert not places(study)


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
    """Each call starts a tuner process whose trial hangs, with daemons in new sessions, and waits until all run."""
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


@pytest.mark.chaos("Trials", "a trial whose tuner is killed leaves nothing behind")
def test_a_killed_tuner_leaves_nothing_of_its_trial(start_tuner: Callable[[], Tuner], chaos: Chaos):
    kills, seconds = chaos.size(1, 50), list[float]()
    for _ in range(kills):
        process, study = start_tuner()
        assert len(tagged(study)) >= 7  # supervisor, launcher, two supervisors and ranks, daemons
        assert places(study)
        process.kill()
        killed = time.monotonic()
        process.wait()
        wait_until(lambda study=study: not tagged(study) and not places(study))
        seconds.append(time.monotonic() - killed)
    chaos.found(f"{kills} kills, 0 processes and temporary folders left {max(seconds):.2f} s later (1 s allowed)")


@pytest.mark.chaos("Trials", "leftovers of a killed tuner and its supervisor are removed at the next start")
def test_the_next_start_removes_leftovers_of_killed_tuners(start_tuner: Callable[[], Tuner], chaos: Chaos):
    kills, swept = chaos.size(1, 50), 0
    for _ in range(kills):
        process, study = start_tuner()
        os.kill(min(tagged(study)), signal.SIGSTOP)  # the supervisor, which would clean up
        process.kill()
        process.wait()
        assert tagged(study)
        assert places(study)
        swept += sweep(study)
        assert not tagged(study)
        assert not places(study)
    assert swept >= 7 * kills
    chaos.found(f"{kills} kills of tuners whose supervisor was stopped: {swept} processes swept, 0 left, nor temporary folders")


def test_an_interrupted_tuner_leaves_nothing(start_tuner: Callable[[], Tuner]):
    process, study = start_tuner()
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    assert not tagged(study)
    assert not places(study)


def test_a_killed_trial_supervisor_is_an_infrastructure_failure_and_leaves_nothing(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path
):
    def kill_supervisor(progress: Progress) -> None:
        if progress.phase == "measure":
            os.kill(min(leftover_processes()), signal.SIGKILL)

    measurement = make_executor("grandchild-and-hang").execute(plan, tmp_path, SETTINGS, kill_supervisor)
    assert leftover_processes() == {}
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert "ended by signal 9" in measurement.evidence.message


def test_a_trial_sees_no_secrets():
    given = {"PATH": "/bin", "HF_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "PYTORCH_ALLOC_CONF": "y", "PYTHONPATH": "x"}
    kept = {"PATH": "/bin", "PYTORCH_ALLOC_CONF": "y", "PYTHONPATH": "x", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    assert trial_environment(given) == kept
    assert trial_environment({"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"


def test_gpu_trials_use_all_host_threads(plan: Plan):
    """The host updates offloaded parameters; CPU ranks share the cores."""
    on_gpus = replace(plan, cluster=replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda")))
    cores, ranks = len(os.sched_getaffinity(0)), plan.candidate.layout.world_size
    assert threads(plan) == 1
    assert threads(on_gpus) == max(1, cores // ranks)
    assert trial_environment({}, 8)["OMP_NUM_THREADS"] == "8"


def test_ranks_sharing_a_gpu_need_one_device(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho GPU 0: test\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    on_gpus = replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda"))
    with pytest.raises(InputError, match="2 ranks on cuda: this machine shows 1 devices"):
        LocalExecutor(program=("true",)).preflight(replace(plan, cluster=on_gpus))
    LocalExecutor(program=("true",)).preflight(replace(plan, cluster=replace(on_gpus, devices_share_one_gpu=True)))


def test_variables_of_the_plan_override_the_environment_of_ranks(
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
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(16))
    on_gpus = replace(plan, cluster=replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda")))
    options = replace(plan.candidate.options, nccl_algorithm="ring", expandable_segments=True)
    on_gpus = replace(on_gpus, candidate=replace(plan.candidate, options=options))
    assert make_executor("writes-its-environment").execute(on_gpus, tmp_path / "trial", SETTINGS).outcome is Outcome.OK
    for rank in (0, 1):
        seen = json.loads((tmp_path / "trial" / f"environment-{rank}.json").read_text())
        assert (seen["NCCL_ALGO"], seen["NCCL_DEBUG"]) == ("Ring", "WARN")
        assert seen["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
        assert seen["OMP_NUM_THREADS"] == "8"  # two ranks share 16 cores


def test_missing_devices_are_refused_before_starting(plan: Plan, tmp_path: Path):
    device = replace(plan.cluster.device, kind="cuda")
    layout = replace(plan.candidate.layout, dp_shard=4096)
    large = replace(plan, cluster=replace(plan.cluster, device=device), candidate=replace(plan.candidate, layout=layout))
    with pytest.raises(InputError, match=r"4096 ranks on cuda: this machine shows.*strategist simulate\)"):
        LocalExecutor(program=("true",)).execute(large, tmp_path, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_torch_is_reported_with_the_install_command(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"torch: is not installed; pip install 'torch-strategist\[runtime\]'"):
        LocalExecutor().execute(plan, tmp_path, SETTINGS)


def test_a_machine_without_free_memory_is_an_infrastructure_failure(plan: Plan, tmp_path: Path):
    ranks = (host_memory_bytes() - floor_bytes()) // RANK_START_BYTES  # more than is free, as other processes hold memory, too
    layout = replace(plan.candidate.layout, dp_shard=ranks)
    large = replace(plan, candidate=replace(plan.candidate, layout=layout))
    measurement = LocalExecutor(program=("true",)).execute(large, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert f"{ranks} ranks need" in measurement.evidence.message


def test_an_unwritable_folder_is_refused_in_one_line(make_executor: MakeExecutor, plan: Plan, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        make_executor("well").execute(plan, tmp_path / "file", SETTINGS)


TRAINING = replace(SETTINGS, total_steps=20, max_restarts=2)


def test_a_training_with_a_killed_rank_restarts(execute: Callable[..., Measurement]):
    measurement = execute("killed-once", TRAINING)
    assert (measurement.outcome, measurement.restarts, measurement.lost_ranks) == (Outcome.OK, 1, ())


@pytest.mark.full
def test_a_trial_with_a_killed_rank_does_not_restart(execute: Callable[..., Measurement]):
    measurement = execute("killed-once", replace(SETTINGS, max_restarts=2))
    assert (measurement.outcome, measurement.restarts, measurement.lost_ranks) == (Outcome.CRASH, 0, (1,))


@pytest.mark.full
def test_a_training_ends_after_its_maximum_of_restarts(execute: Callable[..., Measurement]):
    measurement = execute("killed", TRAINING)
    assert (measurement.outcome, measurement.restarts, measurement.lost_ranks) == (Outcome.CRASH, 2, (1,))


def test_a_training_out_of_memory_is_not_restarted(execute: Callable[..., Measurement], tmp_path: Path):
    measurement = execute("oom-code", TRAINING)
    assert (measurement.outcome, measurement.evidence.rank, measurement.lost_ranks) == (Outcome.OOM, 1, ())
    assert "exit code 77" in measurement.evidence.message


@pytest.mark.full
def test_a_hung_rank_is_lost(execute: Callable[..., Measurement]):
    measurement = execute("hang", replace(TRAINING, step_timeout_seconds=1.5))
    assert (measurement.outcome, measurement.lost_ranks) == (Outcome.TIMEOUT, (1,))


@pytest.mark.full
def test_a_fault_of_the_code_loses_no_device(execute: Callable[..., Measurement]):
    assert execute("raises", TRAINING).lost_ranks == ()


def test_lost_devices_are_hidden_from_ranks(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    executor = replace(make_executor("writes-its-environment"), lost=frozenset({1, 2}))
    assert executor.execute(plan, tmp_path, SETTINGS).outcome is Outcome.OK
    received = json.loads((tmp_path / "environment-0.json").read_text(encoding="utf-8"))
    assert received["CUDA_VISIBLE_DEVICES"] == "4,7"
