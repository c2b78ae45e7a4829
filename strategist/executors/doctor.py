"""Doctor: problems of the machine or the installation, each with its reason and the next step.

A check is a function from facts to findings; ``CHECKS`` holds all of them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from strategist.contract.diagnostic import Diagnostic, Level
from strategist.executors.machine_facts import PORT, MachineFacts, examine
from strategist.executors.requirements import INSTALL
from strategist.units import GIB, MIB, show_bytes

Check = Callable[[MachineFacts], Iterator[Diagnostic]]

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH, TORCH_TESTED = (2, 11), (2, 13)
"""The oldest supported torch, and the newest that the tests have run with."""

OLDEST_DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
"""The oldest driver for each major version of CUDA (docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility)."""

MIN_SHARED_BYTES, MIN_DISK_BYTES = GIB, 10 * GIB
FULL_SHARED_BYTES = 4 * MIB
MIN_FILES, FATAL_FILE_LIMIT = 4096, 128
"""Open files per process: a rank holds a connection to each peer and an open file for each shard of data."""


def diagnose(folder: Path) -> tuple[Diagnostic, ...]:
    """All findings about this machine, most severe first."""
    return findings(examine(folder))


def findings(facts: MachineFacts) -> tuple[Diagnostic, ...]:
    """Findings of all checks, most severe first."""
    level_order = [Level.ERROR, Level.WARNING, Level.INFO]
    found = [finding for check in CHECKS for finding in check(facts)]
    return tuple(sorted(found, key=lambda finding: level_order.index(finding.level)))


def _error(code: str, message: str, do: str) -> Diagnostic:
    return Diagnostic(code=code, level=Level.ERROR, message=message, do=do)


def _warning(code: str, message: str, do: str) -> Diagnostic:
    return Diagnostic(code=code, level=Level.WARNING, message=message, do=do)


def _info(code: str, message: str, do: str = "") -> Diagnostic:
    return Diagnostic(code=code, level=Level.INFO, message=message, do=do)


def system(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Operating system and Python: the supervision of trials needs Linux."""
    if facts.system != "linux":
        yield _error(
            "system", f"{facts.system}: trials cannot be supervised here, so none is run; plans can be made", "run on Linux"
        )
    if facts.python < OLDEST_PYTHON:
        yield _error(
            "python",
            f"Python {_dotted(facts.python)} is older than {_dotted(OLDEST_PYTHON)}, the oldest supported",
            "install a newer one",
        )


def packages(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Packages that plans need, and torch, which only trials need."""
    for name in ("numpy", "pyyaml"):
        if name not in facts.packages:
            yield _error("package-missing", f"{name} is not installed: no plan can be made", "pip install torch-strategist")
    if "optuna" not in facts.packages:
        yield _warning("package-missing", "optuna is not installed: strategist tune cannot search", "pip install torch-strategist")
    if "torch" not in facts.packages:
        yield _warning("torch-missing", "torch is not installed: plans can be made, trials cannot be run", f"pip install {INSTALL}")
    elif facts.torch is None:
        yield _error(
            "torch-broken",
            f"torch cannot be imported ({facts.torch_error}): no trial can start",
            f"pip install --force-reinstall {INSTALL}",
        )
    elif _numbers(facts.packages["torch"]) < OLDEST_TORCH:
        yield _error(
            "torch-old",
            f"torch {facts.packages['torch']} is older than {_dotted(OLDEST_TORCH)}, whose APIs trials need",
            f"pip install -U {INSTALL}",
        )
    elif _numbers(facts.packages["torch"]) > TORCH_TESTED:
        yield _info(
            "torch-new",
            f"torch {facts.packages['torch']} is newer than {_dotted(TORCH_TESTED)}, the newest tested: names may have moved",
        )


def gpus(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Whether torch, the driver and the GPUs are compatible."""
    if facts.smi_error:
        yield _error(
            "driver", f"{facts.smi_error}: no GPU can be used", "reinstall or reload the driver, then run nvidia-smi by hand"
        )
    torch = facts.torch or {}
    cuda = str(torch.get("cuda", ""))
    if torch and facts.gpus and not cuda:
        yield _error(
            "torch-cpu",
            f"torch {torch['torch']} is a CPU build on a machine with {len(facts.gpus)} GPUs: trials would not use them",
            "install a CUDA build of torch",
        )
    if cuda and not facts.gpus and not facts.smi_error:
        yield _info(
            "no-gpu",
            f"torch is built for CUDA {cuda}, and there is no GPU or driver: trials run on CPU with gloo",
            "install the driver if there is a GPU",
        )
    if cuda and facts.gpus and (driver := _too_old(facts.gpus[0]["driver_version"], cuda)):
        yield _error(
            "driver-old",
            f"driver {facts.gpus[0]['driver_version']} is older than {driver}, which CUDA {cuda} needs",
            "upgrade the driver, or install torch for an older CUDA",
        )
    elif cuda and facts.gpus and not torch.get("cuda_available"):
        yield _error(
            "cuda-unavailable",
            "torch finds no CUDA device, though nvidia-smi lists some",
            "check CUDA_VISIBLE_DEVICES, and that the container was given the GPUs",
        )
    for capability in sorted(set(torch.get("capabilities", ()))):
        if not _has_kernels(capability, torch.get("architectures", ())):
            yield _warning(
                "architecture",
                f"torch has no kernels for {capability}: they are compiled at first use, or not at all",
                "install a build for this GPU",
            )


def _has_kernels(capability: str, architectures: Collection[str]) -> bool:
    """Whether kernels of a build run on a device: those of its own compute capability, or of an earlier one with the same major
    version (CUDA C++ Programming Guide, "Binary Compatibility").
    """
    major, minor = capability[:-1], int(capability[-1])
    return any(name[:-1] == major and name[-1].isdigit() and int(name[-1]) <= minor for name in architectures)


def gpu_state(facts: MachineFacts) -> Iterator[Diagnostic]:
    """The state of each GPU."""
    for gpu in facts.gpus:
        yield from _one_gpu(gpu)
    if facts.torch and facts.torch.get("no_peer_access"):
        yield _info(
            "peer-access",
            f"{facts.torch['no_peer_access']} pairs of GPUs have no peer access: what they exchange goes through host memory",
            "plan with what strategist profile measures, which shows it",
        )


def _one_gpu(gpu: Mapping[str, str]) -> Iterator[Diagnostic]:
    """The state of one GPU, as nvidia-smi reports it."""
    name = f"GPU {gpu['index']}"
    errors = gpu.get("ecc.errors.uncorrected.volatile.total", "0")
    if errors.isdigit() and int(errors):
        yield _error(
            "ecc",
            f"{name} has had memory errors that could not be corrected: results may be wrong",
            "reset it, and have it replaced if they come back",
        )
    for reason in ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"):
        if gpu.get(f"clocks_throttle_reasons.{reason}") == "Active":
            yield _warning(
                "throttled",
                f"{name} is slowed down now ({reason}): it paces all ranks, and measurements are too slow",
                "cool it or raise its limit, then measure again",
            )
    if gpu.get("persistence_mode") == "Disabled":
        yield _info(
            "persistence",
            f"{name} has persistence mode off: each first use loads the driver's state, seconds a start",
            "sudo nvidia-smi -pm 1",
        )
    if gpu.get("pcie.link.width.current", "") != gpu.get("pcie.link.width.max", ""):
        yield _warning(
            "pcie-width",
            f"{name} has {gpu['pcie.link.width.current']} of {gpu['pcie.link.width.max']} PCIe lanes: its link is slower",
            "reseat it, or look at the slot and its risers",
        )
    if gpu.get("memory.used", "").isdigit() and int(gpu["memory.used"]) > 1024:
        yield _warning(
            "memory-used",
            f"{name} has {gpu['memory.used']} MiB in use: a plan that fits may run out of memory",
            "end what uses it: nvidia-smi lists it",
        )


def communication(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Requirements of gloo and NCCL."""
    torch = facts.torch
    if torch is not None and not torch["gloo"]:
        yield _error(
            "gloo-missing",
            "this torch has no gloo: ranks on CPU cannot connect, and no distributed checkpoint can be written",
            "install another build of torch",
        )
    if torch is not None and facts.gpus and torch["cuda"] and not torch["nccl"]:
        yield _error("nccl-missing", "this torch has no NCCL: GPUs cannot communicate", "install another build of torch")
    yield from _unknown_interfaces(facts)
    if not facts.hostname_resolves and not facts.environment.get("GLOO_SOCKET_IFNAME"):
        yield _warning(
            "hostname",
            "this machine's name does not resolve: gloo binds to loopback, and ranks on other nodes cannot reach it",
            "name it in /etc/hosts, or set GLOO_SOCKET_IFNAME",
        )
    if not facts.can_listen:
        yield _error(
            "ports",
            "no port can be opened on 127.0.0.1: the launcher cannot start",
            "look at firewalls and at what the sandbox allows",
        )
    if not facts.port_is_free:
        yield _info("port-taken", f"port {PORT} is taken: a plain torchrun would fail; strategist takes a free one")


def _unknown_interfaces(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Interfaces of the network that variables name and this machine does not have."""
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        names = facts.environment.get(variable, "")
        if names.startswith("^"):
            continue
        for name in filter(None, names.removeprefix("=").split(",")):
            if not any(known.startswith(name) if variable[0] == "N" else known == name for known in facts.interfaces):
                yield _error(
                    "interface",
                    f"{variable}={names}: this machine has no interface {name}, so ranks cannot connect",
                    f"unset it, or choose one of {', '.join(facts.interfaces)}",
                )


def limits(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Limits of the system on a process."""
    shared = facts.shared_memory_bytes
    if shared is not None and shared < MIN_SHARED_BYTES:
        yield (_error if shared < FULL_SHARED_BYTES else _warning)(
            "shared-memory",
            f"/dev/shm has {show_bytes(shared)}: NCCL and data loaders pass data through it, and die with a bus error",
            "make room there, or docker run --shm-size=8g, or --ipc=host",
        )
    if facts.file_limit is not None and 0 <= facts.file_limit < MIN_FILES:
        yield (_error if facts.file_limit < FATAL_FILE_LIMIT else _warning)(
            "file-limit", f"a process may open {facts.file_limit} files: many ranks or shards need more", "ulimit -n 65536"
        )
    if facts.infiniband and facts.locked_memory_limit is not None and 0 <= facts.locked_memory_limit < 64 * MIB:
        yield _error(
            "locked-memory",
            f"a process may lock {show_bytes(facts.locked_memory_limit)}: InfiniBand cannot register its buffers",
            "ulimit -l unlimited, or docker run --ulimit memlock=-1",
        )
    if facts.memory_limit_bytes is not None and facts.memory_limit_bytes < facts.memory_bytes:
        machine_memory = show_bytes(facts.memory_bytes)
        yield _warning(
            "memory-limit",
            f"this container may use {show_bytes(facts.memory_limit_bytes)} of {machine_memory}: --gpus local counts all of it",
            "give --host-memory, or raise the limit",
        )
    if facts.core_quota is not None and facts.core_quota < facts.cores:
        yield _warning(
            "core-quota",
            f"this container may use {facts.core_quota:g} of {facts.cores} cores: more ranks than that slow each other down",
            "plan for as many ranks, or raise the limit",
        )
    free = facts.disk_free_bytes
    if free is not None and free < MIN_DISK_BYTES:
        level = _error if free < GIB else _warning
        yield level(
            "disk",
            f"{facts.folder} has {show_bytes(free)} left: a checkpoint takes 12 bytes a parameter",
            "make room, or save elsewhere",
        )


def measurement_conditions(facts: MachineFacts) -> Iterator[Diagnostic]:
    """Conditions that distort measurements."""
    if facts.clock_synchronised is False:
        yield _info(
            "clock",
            "the clock is not synchronised: logs of several nodes cannot be put in order",
            "start chrony or systemd-timesyncd",
        )
    threads = facts.environment.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > facts.cores:
        yield _warning(
            "threads",
            f"OMP_NUM_THREADS={threads} on {facts.cores} cores: threads wait for each other",
            f"set it to {facts.cores} / ranks, or unset it",
        )
    elif not threads:
        yield _info(
            "threads", "OMP_NUM_THREADS is not set: a trial gives each rank one thread", "set it where ranks have cores to spare"
        )
    if facts.numa_nodes > 1:
        yield _info(
            "numa",
            f"{facts.numa_nodes} NUMA nodes: a rank far from its GPU copies more slowly",
            "bind each rank: numactl --cpunodebind --membind",
        )


CHECKS: tuple[Check, ...] = (system, packages, gpus, gpu_state, communication, limits, measurement_conditions)


def _too_old(driver: str, cuda: str) -> str:
    """The driver that this CUDA needs, if the installed one is older; otherwise empty."""
    needed = OLDEST_DRIVERS.get(int(cuda.split(".")[0]))
    return _dotted(needed) if needed is not None and _numbers(driver) < needed else ""


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    parts = version.split("+")[0].split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
