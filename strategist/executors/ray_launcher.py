"""A trial on Ray: ``python -m strategist.executors.ray_launcher ADDRESS RESOURCE ORDER COMMAND...`` stands where torchrun does.

It is Ray's driver. A TorchTrainer of Ray Train (see ``ray_job``) asks for one worker a node, with as many devices (Ray's resource
``GPU`` or ``CPU``) as ranks run there; what a worker runs is an agent (see ``agents``), which starts torchrun. Ray ends the workers
with this process, however it ends, and an agent ends with its worker, whose pipe it reads.
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
from strategist.executors.host_agents import RUNNING, STAYS, Order, variables
from strategist.executors.processes import TAG

LOST = 128 + signal.SIGKILL
"""The exit code where Ray lost a worker: nothing that its ranks did."""

GIVEN = (*STAYS, "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Variables that a rank has from its worker: those of the node, and the devices that Ray gave it."""

POLL_VARIABLE = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
POLL_SECONDS = 0.5
"""How often Ray looks for workers that it lost: before a trial is ended because its other ranks wait in vain."""

SAID = "agent-{}.log"
"""What an agent and what it started said."""

CONNECT_SECONDS = 10.0
ECHO_SECONDS = 0.1
END_SECONDS = 6.0
"""What agents get to end what they started, once Ray has ended their workers."""


def work(given: dict[str, Any]) -> None:
    """What a worker runs: an agent that listens to it. Ray sends this by value: a worker need not import it.

    Raises:
        CalledProcessError: the agent failed.
    """
    number, address = ray.train.get_context().get_world_rank(), ray.util.get_node_ip_address()
    order = json.dumps({**given["order"], "number": number, "address": address})
    environment = {name: os.environ[name] for name in given["keeps"] if name in os.environ} | given["environment"]
    # a shell between, since Ray kills a worker's own children before they have ended what they started
    words = ["sh", "-c", 'exec 3<&0; "$@" <&3 3<&- & wait $!', "agent", *given["agent"], order, *given["command"]]
    said = Path(given["folder"], given["said"].format(number))
    with said.open("wb") as log:
        agent = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd=given["folder"], start_new_session=True
        )
    if code := agent.wait():
        raise subprocess.CalledProcessError(code, f"agent {number}", said.read_text(errors="replace")[-2000:])


def main(address: str, resource: str, order: Order, command: Sequence[str]) -> int:
    """Runs the agents to their end; the exit code of one that failed."""
    os.environ.setdefault(POLL_VARIABLE, str(POLL_SECONDS))
    try:
        _check(address)
        ray.init(address=address, logging_level="warning", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"--ray {address}: cannot be reached: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _leave)
    try:
        with _echoed(Path(order.folder, SAID.format(0)), wanted=order.each):
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
    """The trial is over: Ray's workers go with this process."""
    sys.exit(128 + number)


@contextmanager
def _echoed(path: Path, *, wanted: bool) -> Iterator[None]:
    """What comes into a file, which need not be there yet, is said here as well."""
    ended = threading.Event()
    echo = threading.Thread(target=_echo, args=(path, ended), daemon=True)
    if wanted:
        echo.start()
    try:
        yield
    finally:
        ended.set()
        if wanted:
            echo.join()


def _echo(path: Path, ended: threading.Event) -> None:
    done, over = 0, False
    while not over:
        over = ended.wait(ECHO_SECONDS)
        if path.exists():
            with path.open("rb") as file:
                file.seek(done)
                data = file.read()
            done += len(data)
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _await_agents(folder: Path) -> None:
    """Until agents have ended what they started; one on a node that was lost does not say so."""
    patience = time.monotonic() + END_SECONDS
    while any(folder.glob(RUNNING.format("*"))) and time.monotonic() < patience:
        time.sleep(0.05)


def _trainer(resource: str, order: Order, command: Sequence[str]) -> TorchTrainer:
    """One agent a node; a failure ends it, since what is begun again is for the study to say."""
    ray.cloudpickle.register_pickle_by_value(ray_job)
    given = {
        "agent": order.words("agent")[:-1], "order": asdict(order), "command": command, "keeps": GIVEN, "said": SAID,
        "folder": order.folder,
        "environment": dict(pair.split("=", 1) for pair in variables(os.environ)),
    }  # fmt: skip
    return ray_job.trainer(
        work, given, nodes=order.nodes, resource=resource, each=order.ranks_per_node, restarts=0, storage=order.folder
    )


def _fit(trainer: TorchTrainer) -> int:
    """The exit code: that of an agent that failed, or ``LOST``."""
    try:
        trainer.fit()
    except WorkerGroupError as error:
        failures = error.worker_failures
        lost = {worker: why for worker, why in failures.items() if not isinstance(why, subprocess.CalledProcessError)}
        for worker, why in (lost or failures).items():
            print(f"Ray lost worker {worker}: {why}" if lost else f"{why}\n{why.output}", file=sys.stderr)
        return LOST if lost else max(why.returncode for why in failures.values())
    except (TrainingFailedError, ray.exceptions.RayError) as error:
        print(f"Ray ended the trial: {error}", file=sys.stderr)
        return LOST
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Order(**json.loads(sys.argv[3])), sys.argv[4:]))
