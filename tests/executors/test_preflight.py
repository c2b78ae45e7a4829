"""Faults that would fail every trial are refused before the first, in one line with a next step; each fault is real."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chaos import Chaos

from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.executors.processes import tagged

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
RUN = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from strategist.files import yaml_file
from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import StrategistError
from strategist.executors.command import CommandExecutor
from strategist.executors.local import LocalExecutor
from strategist.programs.program_file import read_program
plan, folder = codec.load(Plan, sys.argv[1]), Path(sys.argv[2])
device = replace(plan.cluster.device, kind=sys.argv[3])
layout = replace(plan.candidate.layout, dp_shard=int(sys.argv[4]))
plan = replace(plan, cluster=replace(plan.cluster, device=device), candidate=replace(plan.candidate, layout=layout))
executor = LocalExecutor(study="preflight")
if sys.argv[5]:
    executor = CommandExecutor(program=read_program(yaml_file.parse(sys.argv[5], "mine.yaml")), study="preflight")
if sys.argv[6]:
    os.unlink(sys.executable)
begun = time.monotonic()
try:
    executor.execute(plan, folder, TrialSettings())
except StrategistError as error:
    print(time.monotonic() - begun)
    print(error)
else:
    print("ran")
"""
PROGRAM = """
program: mine
command: [COMMAND, "--tp={layout.tp}", "{knobs.micro_batch}", "{workload.seq_len}", "{workload.global_batch}", "{steps}"]
layout: {dp_shard: any}
metrics: {lines: "step: {step} tps: {tokens_per_second_per_device}"}
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a machine: ``within`` is a command that runs another command with the fault; ``message`` is the expected error.

    ``command``: a program other than the built-in trainer, for which the machine is examined without importing torch.
    """

    message: str
    within: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kind: str = "cpu"
    ranks: int = 2
    command: str = ""
    interpreter_goes: bool = False
    mode: int = 0o755
    files: Mapping[str, str] = field(default_factory=dict)


def mounted(options: str, place: str) -> tuple[str, ...]:
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} none {place} && exec "$@"', "sh")


WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
READ_ONLY = """
for place in /tmp /var/tmp; do mount --bind $place $place && mount -o remount,ro,bind $place; done
mount -t tmpfs none PLACE && exec "$@"
"""
"""Except for the trial's folder."""

FAULTS = {
    "no port": Fault(within=("unshare", "-n"), message="no port can be opened on 127.0.0.1"),
    "full disk": Fault(within=mounted("size=64k", "PLACE"), message="left, and a trial writes logs; make room"),
    "read-only disk": Fault(within=mounted("ro", "PLACE"), message="choose another folder", command='"true"'),
    "no permission": Fault(within=WITHOUT_RIGHTS, mode=0o555, message="Permission denied", command='"true"'),
    "a file for a folder": Fault(files={"place/trial": ""}, message="cannot be written", command='"true"'),
    "full shared memory": Fault(within=mounted("size=64k", "/dev/shm"), message="/dev/shm has 64.0 KiB", command='"true"'),
    "no temporary files": Fault(
        within=("unshare", "-m", "sh", "-c", READ_ONLY, "sh"), message="temporary files: cannot be written", command='"true"'
    ),
    "few descriptors": Fault(within=("sh", "-c", 'ulimit -n 40 && exec "$@"', "sh"), message="may open 40 files", command='"true"'),
    "torch that does not load": Fault(
        files={"place/torch/__init__.py": 'raise ImportError("libcudart.so.13: cannot open shared object file")'},
        environment={"PYTHONPATH": "PLACE"}, message="torch cannot be imported (ImportError: libcudart.so.13",
    ),
    "old torch": Fault(
        files={"place/torch-2.3.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.3.0\n"},
        environment={"PYTHONPATH": "PLACE"}, message="torch 2.3.0 is older than 2.11",
    ),
    "no such interface": Fault(environment={"GLOO_SOCKET_IFNAME": "nowhere0"}, message="this machine has no interface nowhere0"),
    "no devices": Fault(kind="cuda", message="2 ranks on cuda: this machine shows"),
    "no memory": Fault(ranks=10**5, message="100000 ranks: need"),
    "bad interpreter": Fault(interpreter_goes=True, message="cannot be started any more"),
    "no such program": Fault(command="no-such-program", message="no-such-program is not installed here"),
    "missing script": Fault(command='"{python}", train.py', message="train.py is not there"),
    "missing variable": Fault(command='"{python}", "--data={environment.MY_DATA}"', message="environment variable MY_DATA"),
}  # fmt: skip


def refused(fault: Fault, folder: Path, plan: Plan) -> tuple[float, str]:
    """Seconds until the refusal, and its message."""
    place = folder / "place"
    place.mkdir(parents=True)
    for name, text in fault.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    codec.save(plan, folder / "plan.json")
    python = sys.executable
    if fault.interpreter_goes:
        python = str(folder / "python")
        os.symlink(sys.executable, python)
    place.chmod(fault.mode)
    set_here = {name: value.replace("PLACE", str(place)) for name, value in fault.environment.items()}
    paths = [set_here.pop("PYTHONPATH", ""), str(ROOT), str(ROOT / "runtime"), *filter(os.path.isdir, sys.path)]
    within = [word.replace("PLACE", str(place)) for word in fault.within]
    program = PROGRAM.replace("COMMAND", fault.command) if fault.command else ""
    words = [str(folder / "plan.json"), str(place / "trial"), fault.kind, str(fault.ranks), program, "x" * fault.interpreter_goes]
    done = subprocess.run(
        [*within, python, "-c", RUN, *words], env={**os.environ, **set_here, "PYTHONPATH": ":".join(filter(None, paths))},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds, _, printed = done.stdout.partition("\n")
    return (float(seconds), printed.strip()) if printed else (0.0, f"NOTHING: {done.stdout}{done.stderr[-2000:]}")


def can_break_machine() -> bool:
    """Whether this machine permits namespaces and mounts, with which faults are made."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode == 0


needs_a_machine_to_break = pytest.mark.skipif(
    not can_break_machine(), reason="only root can break a machine so, and not in every container"
)


@pytest.mark.full
@needs_a_machine_to_break
@pytest.mark.parametrize("name", FAULTS)
def test_each_platform_fault_is_reported(name: str, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("machine")
    folder.chmod(0o755)
    _, printed = refused(FAULTS[name], folder, plan)
    assert FAULTS[name].message in printed
    assert "\n" not in printed


@needs_a_machine_to_break
@pytest.mark.chaos("Trials", "a platform fault is reported before the first trial")
def test_platform_faults_are_reported_before_the_first_trial(
    plan: Plan, tmp_path_factory: pytest.TempPathFactory, chaos: Chaos
) -> None:
    names = list(FAULTS) if chaos.weekly else chaos.random().sample(list(FAULTS), 2)
    wrong, seconds = {}, []
    for name in names:
        folder = tmp_path_factory.mktemp("machine")
        folder.chmod(0o755)
        took, printed = refused(FAULTS[name], folder, plan)
        seconds.append(took)
        if FAULTS[name].message not in printed or "\n" in printed or ";" not in printed:
            wrong[name] = printed
    assert not wrong, wrong
    assert not tagged("preflight.")
    chaos.found(
        f"{len(names)} faults of a machine: {len(names) - len(wrong)} reported in one line with a next step, 0 trials started"
    )
    chaos.found(f"{max(seconds):.1f} s at most (5 s allowed)")
