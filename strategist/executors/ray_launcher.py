"""Launcher of a trial on Ray: ``python -m strategist.executors.ray_launcher ADDRESS RESOURCE ORDER COMMAND...``, in place of
torchrun.

It is Ray's driver. A TorchTrainer of Ray Train (see ``ray_job``) requests one worker per node, with as many devices (Ray's
resource ``GPU`` or ``CPU``) as ranks run there. A worker runs an agent (see ``host_agents``), which starts torchrun. Ray ends
the workers with this process, however it ends; an agent ends with its worker, whose pipe it reads.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray
from ray.train import TrainingFailedError, WorkerGroupError
from ray.train.torch import TorchTrainer

from strategist.executors import ray_job
from strategist.executors.host_agents import HOST_VARIABLES, RUNNING, Order, variables
from strategist.executors.processes import TAG

LOST_EXIT_CODE = 128 + signal.SIGKILL
"""Exit code if Ray lost a worker, which is not a failure of its ranks."""

NODE_VARIABLES = (*HOST_VARIABLES, "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Variables that a rank gets from its worker: those of the node, and the devices that Ray assigned."""

POLL_VARIABLE = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
POLL_SECONDS = 0.5
"""Interval at which Ray looks for lost workers; shorter than the time after which a trial with waiting ranks is ended."""

AGENT_LOG = "agent-{}.log"
"""Output of an agent and of the processes that it started."""

CONNECT_SECONDS = 10.0
ECHO_SECONDS = 0.1
END_SECONDS = 6.0
"""Seconds for agents to end their processes after Ray has ended the workers."""


def work(given: dict[str, Any]) -> None:
    """Runs an agent in a worker. Ray sends this function by value, so that a worker need not import it.

    Raises:
        CalledProcessError: the agent failed.
    """
    number, address = ray.train.get_context().get_world_rank(), ray.util.get_node_ip_address()
    order = json.dumps({**given["order"], "number": number, "address": address})
    environment = {name: os.environ[name] for name in given["keeps"] if name in os.environ} | given["environment"]
    # with a shell in between: Ray kills the direct children of a worker before they have ended their own processes
    words = ["sh", "-c", 'exec 3<&0; "$@" <&3 3<&- & wait $!', "agent", *given["agent"], order, *given["command"]]
    log_path = Path(given["folder"], given["said"].format(number))
    with log_path.open("wb") as log:
        agent = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd=given["folder"], start_new_session=True
        )
    if code := agent.wait():
        raise subprocess.CalledProcessError(code, f"agent {number}", log_path.read_text(errors="replace")[-2000:])


def main(address: str, resource: str, order: Order, command: Sequence[str]) -> int:
    """Runs the agents to their end; returns the exit code of one that failed, otherwise 0."""
    os.environ.setdefault(POLL_VARIABLE, str(POLL_SECONDS))
    try:
        _check(address)
        ray.init(address=address, logging_level="warning", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"--ray {address}: cannot be reached: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _leave)
    try:
        with _echoed(Path(order.folder, AGENT_LOG.format(0)), enabled=order.each):
            return _fit(_trainer(resource, replace(order, tag=os.environ[TAG]), command))
    finally:
        ray.shutdown()
        _await_agents(Path(order.folder))


def _check(address: str) -> None:
    """Checks that the address accepts connections: Ray would retry for minutes.

    Raises:
        OSError: it does not.
    """
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


def _leave(number: int, frame: object) -> None:
    """Ends this process, and with it Ray's workers: the trial is over."""
    sys.exit(128 + number)


@contextmanager
def _echoed(path: Path, *, enabled: bool) -> Iterator[None]:
    """Copies what is written to a file, which need not exist yet, to this process's output."""
    ended = threading.Event()
    echo = threading.Thread(target=_echo, args=(path, ended), daemon=True)
    if enabled:
        echo.start()
    try:
        yield
    finally:
        ended.set()
        if enabled:
            echo.join()


def _echo(path: Path, ended: threading.Event) -> None:
    bytes_written, has_ended = 0, False
    while not has_ended:
        has_ended = ended.wait(ECHO_SECONDS)
        if path.exists():
            with path.open("rb") as file:
                file.seek(bytes_written)
                data = file.read()
            bytes_written += len(data)
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _await_agents(folder: Path) -> None:
    """Waits until agents have ended their processes, at most ``END_SECONDS``; an agent on a lost node never reports it."""
    deadline = time.monotonic() + END_SECONDS
    while any(folder.glob(RUNNING.format("*"))) and time.monotonic() < deadline:
        time.sleep(0.05)


def _trainer(resource: str, order: Order, command: Sequence[str]) -> TorchTrainer:
    """A trainer that runs one agent per node. It does not restart after a failure, because the study decides on restarts."""
    ray.cloudpickle.register_pickle_by_value(ray_job)
    given = {
        "agent": order.words("agent")[:-1], "order": asdict(order), "command": command, "keeps": NODE_VARIABLES, "said": AGENT_LOG,
        "folder": order.folder,
        "environment": dict(pair.split("=", 1) for pair in variables(os.environ)),
    }  # fmt: skip
    return ray_job.trainer(
        work, given, nodes=order.nodes, resource=resource, each=order.ranks_per_node, restarts=0, storage=order.folder
    )


def _fit(trainer: TorchTrainer) -> int:
    """Runs the trainer; returns 0, the exit code of an agent that failed, or ``LOST_EXIT_CODE``."""
    try:
        trainer.fit()
    except WorkerGroupError as error:
        failures = error.worker_failures
        lost = {
            worker: error_of_worker
            for worker, error_of_worker in failures.items()
            if not isinstance(error_of_worker, subprocess.CalledProcessError)
        }
        for worker, error_of_worker in (lost or failures).items():
            print(
                f"Ray lost worker {worker}: {error_of_worker}" if lost else f"{error_of_worker}\n{error_of_worker.output}",
                file=sys.stderr,
            )
        return LOST_EXIT_CODE if lost else max(error_of_worker.returncode for error_of_worker in failures.values())
    except (TrainingFailedError, ray.exceptions.RayError) as error:
        print(f"Ray ended the trial: {error}", file=sys.stderr)
        return LOST_EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Order(**json.loads(sys.argv[3])), sys.argv[4:]))
