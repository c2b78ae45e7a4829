"""Ranks on several hosts, by remote shells and by a real Slurm: rendezvous, outcomes, and no process left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from executors.conftest import wait_until
from executors.network import SHELL, Pair, available, two_hosts
from formats.plans import deck
from slurm_cluster import SlurmCluster, missing

from strategist.contract import codec
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.executors.command import CommandExecutor
from strategist.executors.engine import Hosts, Slurm, hosts
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import sweep, tagged
from strategist.files import yaml_file
from strategist.planning.planner import price_candidate
from strategist.profiles.situation import situation
from strategist.programs.program_file import read_program

pytestmark = pytest.mark.torch
STAND_IN = str(Path(__file__).with_name("stand_in.py"))
HERE = "env HOST={host} sh -c {command}"
"""A remote shell to this machine, which plays both hosts."""

SETTINGS = TrialSettings(steps=4, init_timeout_seconds=60.0, step_timeout_seconds=60.0, wall_timeout_seconds=150.0)
PATIENT = replace(SETTINGS, init_timeout_seconds=600.0, step_timeout_seconds=600.0, wall_timeout_seconds=1200.0)
"""For ranks that import torch beside other programs; the test's timeout ends those that hang."""
CLUSTER = """
name: two boxes on a 100 Mbit/s link
device: cpu
nodes: 2
gpus_per_node: 1
inter: {name: a slow link, fabric: ethernet, bytes_per_second: 12 MB/s, pair_bytes_per_second: 12 MB/s, latency_seconds: 1ms}
"""


def executor(fault: str, shell: str = HERE) -> LocalExecutor:
    two = hosts("one=127.0.0.1,two=127.0.0.1", shell)
    return LocalExecutor(study="hosts", engine=two, program=(sys.executable, STAND_IN, "rank", fault))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hosts' folder for temporary files; this process keeps its own."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def leftover_processes() -> dict[int, str]:
    return {pid: tag for pid, tag in tagged("").items() if f".{os.getpid()}." in tag}


@pytest.mark.engine("torchrun --hosts")
def test_each_host_runs_the_same_number_of_ranks(plan: Plan, tmp_path: Path) -> None:
    measurement = executor("well").execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.OK
    assert measurement.peak_memory_bytes == (1000, 1001)
    assert leftover_processes() == {}


@pytest.mark.parametrize(
    ("fault", "outcome", "rank"),
    [("oom", Outcome.OOM, 1), ("temporary-files@measure", Outcome.CRASH, 1)],
)
@pytest.mark.full
@pytest.mark.engine("torchrun --hosts")
def test_a_fault_of_a_rank_on_another_host_is_reported(
    fault: str, outcome: Outcome, rank: int, plan: Plan, tmp_path: Path, temporary: Path
) -> None:
    measurement = executor(fault).execute(plan, tmp_path / "trial", SETTINGS)
    assert (measurement.outcome, measurement.evidence.rank) == (outcome, rank)
    assert leftover_processes() == {}
    assert list(temporary.iterdir()) == []


@pytest.mark.full
@pytest.mark.engine("torchrun --hosts")
def test_files_of_a_killed_agent_are_removed_by_the_next_agent(plan: Plan, tmp_path: Path, temporary: Path) -> None:
    """Slurm kills agents of a cancelled job like this."""
    code = "from strategist.executors import processes, temporary_files; temporary_files.make(processes.new_tag('hosts'))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(list(temporary.iterdir())) == 1
    assert executor("well").execute(plan, tmp_path / "trial", SETTINGS).outcome is Outcome.OK
    assert list(temporary.iterdir()) == []


@pytest.mark.engine("torchrun --hosts")
def test_a_host_that_cannot_be_reached_is_infrastructure(plan: Plan, tmp_path: Path) -> None:
    shell = "sh -c 'test {host} = one && sh -c \"$0\" || { echo no route to {host}; exit 255; }' {command}"
    measurement = executor("well", shell).execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert "no route to two" in measurement.evidence.log_tail
    assert leftover_processes() == {}


@pytest.mark.full
@pytest.mark.engine("torchrun --hosts")
def test_a_hung_trial_is_terminated_on_all_hosts(plan: Plan, tmp_path: Path) -> None:
    measurement = executor("grandchild-and-hang").execute(plan, tmp_path, replace(SETTINGS, step_timeout_seconds=2.0))
    assert measurement.outcome is Outcome.TIMEOUT
    assert leftover_processes() == {}


TUNER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from executors.test_engines import SETTINGS, executor
from strategist.contract import codec
from strategist.contract.plan import Plan
from dataclasses import replace
plan = codec.load(Plan, Path(sys.argv[2], "given.json"))
replace(executor("grandchild-and-hang"), study=sys.argv[3]).execute(plan, Path(sys.argv[2], "trial"), SETTINGS)
"""


@pytest.mark.full
@pytest.mark.engine("torchrun --hosts")
def test_a_killed_tuner_leaves_nothing_on_any_host(plan: Plan, tmp_path: Path, temporary: Path) -> None:
    codec.save(plan, tmp_path / "given.json")
    study = f"tuner-{os.getpid()}-hosts"
    arguments = [str(Path(__file__).parents[1]), str(tmp_path), study]
    process = subprocess.Popen([sys.executable, "-c", TUNER, *arguments])
    mine = lambda: [pid for pid, tag in tagged("").items() if f"{study}." in tag]  # noqa: E731
    try:
        wait_until(lambda: len(list(tmp_path.glob("trial/hanging-*"))) == 2)
        assert len(mine()) >= 9  # supervisor, launcher, two agents, torchruns, supervisors, ranks, daemons
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not mine() and not list(temporary.iterdir()))
    finally:
        process.kill()
        sweep(study)


@pytest.mark.parametrize(
    ("names", "shell", "message"),
    [
        ("one,one", HERE, "each host is named once"),
        ("one,", HERE, "each host is named once"),
        ("=10.0.0.1", HERE, "each host is named once"),
        ("one,two", "ssh {host}", "has no place for"),
        ("one,two", "ssh {command}", "has no place for"),
    ],
)
def test_invalid_host_names_are_refused_in_one_line(names: str, shell: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hosts(names, shell)


def test_ranks_that_hosts_do_not_divide_are_refused_before_starting(plan: Plan, tmp_path: Path) -> None:
    three = replace(executor("well"), engine=Hosts(names=("a", "b", "c"), remote=HERE))
    with pytest.raises(InputError, match="2 ranks on 3 hosts: are not equally many"):
        three.execute(plan, tmp_path / "trial", SETTINGS)
    assert not (tmp_path / "trial").exists()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    if not available():
        pytest.skip("networks of our own need root and iproute2")
    with two_hosts("100mbit") as made:
        yield made


@pytest.mark.full
@pytest.mark.engine("torchrun --hosts")
def test_pipeline_parallelism_across_hosts_beats_tensor_parallelism_as_predicted(pair: Pair, tmp_path: Path) -> None:
    """Uses both rendezvous back ends of torchrun."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    workload = Workload(seq_len=128, global_batch=8, precision="fp32")
    asked = situation(Request(model="tiny", gpus=str(tmp_path / "cluster.yaml"), workload=workload))
    options, batch = Options(rendezvous="c10d"), Knobs(micro_batch=2)
    stages = Candidate(layout=Layout(pp=2), knobs=replace(batch, no_sync=True), options=options)
    shards = Candidate(layout=Layout(tp=2), knobs=replace(batch, sequence_parallel=True))
    plans = {name: price_candidate(asked, chosen, deck=deck()) for name, chosen in (("stages", stages), ("shards", shards))}
    runner = LocalExecutor(study="hosts", engine=hosts(pair.hosts, SHELL))
    found = {name: runner.execute(plan, tmp_path / name, PATIENT) for name, plan in plans.items()}
    assert {name: item.outcome for name, item in found.items()} == dict.fromkeys(plans, Outcome.OK)
    assert found["shards"].step_seconds > 1.5 * found["stages"].step_seconds
    assert plans["shards"].estimate.step_seconds > 1.5 * plans["stages"].estimate.step_seconds
    assert found["stages"].losses == pytest.approx(found["shards"].losses, rel=1e-4)
    assert leftover_processes() == {}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(why)
    with SlurmCluster.started() as cluster:
        yield cluster


@pytest.fixture
def by_slurm(slurm: SlurmCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[..., LocalExecutor], Plan]:
    """``make(fault)``: an executor on the cluster; and a plan with one rank on each of its two nodes."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    two = replace(plan, cluster=replace(plan.cluster, nodes=2, gpus_per_node=1))

    def make(fault: str, options: str = "") -> LocalExecutor:
        program = (sys.executable, STAND_IN, "rank", fault)
        return LocalExecutor(study="slurm", engine=Slurm(options=options), program=program)

    return make, two


@pytest.mark.parametrize(("fault", "outcome"), [("well", Outcome.OK), ("raises", Outcome.CRASH), ("oom", Outcome.OOM)])
@pytest.mark.full
@pytest.mark.engine("slurm")
def test_slurm_runs_a_trial_in_its_own_allocation(fault: str, outcome: Outcome, by_slurm, slurm, tmp_path: Path) -> None:
    make, plan = by_slurm
    measurement = make(fault).execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is outcome, measurement.evidence
    assert leftover_processes() == {}
    wait_until(lambda: not slurm.output_of("squeue", "--noheader"))


@pytest.mark.full
@pytest.mark.engine("slurm")
def test_time_in_the_queue_is_not_counted_for_a_trial(by_slurm, tmp_path: Path) -> None:
    make, plan = by_slurm
    received: list[tuple[float, Progress]] = []
    begin = time.monotonic()
    measurement = make("well", "--begin=now+8").execute(
        plan, tmp_path, SETTINGS, lambda progress: received.append((time.monotonic(), progress))
    )
    seconds = time.monotonic() - begin
    assert measurement.outcome is Outcome.OK, measurement.evidence
    queued = [(when, progress) for when, progress in received if progress.phase == "queued"]
    waited = queued[-1][0] - queued[0][0]
    assert waited > 5  # Slurm counts whole seconds, and looks once in one
    assert {progress.elapsed_seconds for _, progress in queued} == {0.0}
    assert measurement.wall_seconds < seconds - waited


@pytest.mark.engine("slurm")
def test_slurm_runs_an_external_program_on_each_node(by_slurm, tmp_path: Path) -> None:
    make, plan = by_slurm
    text = (
        "program: script\ncommand: [sh, -c, 'echo on $NODE_RANK of $NNODES; echo step 1 took 0.5 s; sleep 1', '{ranks_per_node}']\n"
        "layout: {dp_shard: any}\nworkload: {seq_len: any, global_batch: any}\nknobs: {micro_batch: any}\n"
        'metrics: {lines: "step {step} took {step_seconds} s"}\n'
    )
    program = read_program(yaml_file.parse(text, "script.yaml"))
    external = CommandExecutor(program=program, study="slurm", engine=make("well").engine)
    measurement = external.execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.OK, measurement.evidence
    assert "on 0 of 2" in (tmp_path / "rank-0.log").read_text()
    assert "on 1 of 2" in (tmp_path / "host-1.log").read_text()
    assert leftover_processes() == {}


@pytest.mark.engine("slurm")
def test_a_refusal_of_slurm_is_an_infrastructure_failure_with_its_message(by_slurm, tmp_path: Path) -> None:
    make, plan = by_slurm
    measurement = make("well", "--partition=none").execute(plan, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.INFRASTRUCTURE
    assert "invalid partition" in measurement.evidence.log_tail.lower()


@pytest.mark.full
@pytest.mark.engine("slurm")
def test_a_hung_trial_and_its_slurm_job_are_terminated(by_slurm, slurm, tmp_path: Path) -> None:
    make, plan = by_slurm
    measurement = make("grandchild-and-hang").execute(plan, tmp_path, replace(SETTINGS, step_timeout_seconds=2.0))
    assert measurement.outcome is Outcome.TIMEOUT
    assert leftover_processes() == {}
    wait_until(lambda: not slurm.output_of("squeue", "--noheader"))


def test_invalid_slurm_options_are_refused_in_one_line(plan: Plan) -> None:
    with pytest.raises(InputError, match="--slurm '--x: are not shell words"):
        Slurm(options="'--x").launcher(plan, Path())
