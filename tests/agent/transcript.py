"""A complete session with the server over stdio, from initialize to recorded evidence."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.served import COMMAND

PROTOCOL = "2025-11-25"
CONFIG = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}
MODEL = {"model": "8b", "gpus": "2x8xA100", "global_batch": 128}
TRIED = {"model": "tiny", "gpus": "2xcpu", "seq_len": 128, "global_batch": 8, "backend": "native"}
GRANT, MINUTES = "trials=1,minutes=5", 4
MEASURED = ("step_seconds", "peak_memory_gib", "comm_ratio", "exposed_comm_ratio")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A client's message and the server's reply; ``varies``: they depend on the machine or its clock."""

    asked: dict[str, Any]
    replied: dict[str, Any]
    varies: bool = False


@dataclass(kw_only=True)
class Wire:
    """The server's standard input and output, with a record of the exchanges."""

    process: "subprocess.Popen[str]"
    exchanges: list[Exchange] = field(default_factory=list)

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method: str, parameters: dict[str, Any], *, name: str | int, varies: bool = False) -> Exchange:
        """A request with this id, and its reply."""
        assert self.process.stdout is not None
        asked = {"jsonrpc": "2.0", "id": name, "method": method, "params": parameters}
        self.send(asked)
        replied = json.loads(self.process.stdout.readline())
        assert replied["id"] == name
        return Exchange(asked=asked, replied=replied, varies=varies)

    def ask(self, method: str, *, varies: bool = False, **parameters: Any) -> dict[str, Any]:
        """The result of a request that belongs to the transcript."""
        exchange = self.request(method, parameters, name=len(self.exchanges) + 1, varies=varies)
        self.exchanges.append(exchange)
        result: dict[str, Any] = exchange.replied["result"]
        return result

    def call(self, tool: str, *, varies: bool = False, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool."""
        content: dict[str, Any] = self.ask("tools/call", varies=varies, name=tool, arguments=arguments)["structuredContent"]
        return content

    def wait(self, job: str) -> None:
        """Waits until the job has ended; the polling is not part of the transcript."""
        waiting = {"name": "job_status", "arguments": {"job": job, "wait_seconds": 60}}
        for count in range(MINUTES + 1):
            status = self.request("tools/call", waiting, name=f"waiting-{count}").replied["result"]["structuredContent"]
            if status["items"][0]["state"] == "ended":
                return
        raise AssertionError(f"{job} has not ended: {status}")


@contextmanager
def _wire(workspace: Path) -> Iterator[Wire]:
    command, pipe = [*COMMAND, "--workspace", str(workspace), "--grant", GRANT], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield Wire(process=process)


def session() -> list[Exchange]:
    """Plans, explains, simulates, exports another framework's files, then runs a trial and records its evidence."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        (workspace / "ds_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        with _wire(workspace) as wire:
            wire.ask("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo={"name": "example", "version": "1"})
            wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            for kind in ("tools", "resources", "prompts"):
                wire.ask(f"{kind}/list")
            wire.ask("resources/read", uri="strategist://cards/FSDP-001")
            wire.call("describe_machine", varies=True)
            _decide(wire)
            _try(wire)
            return wire.exchanges


def _decide(wire: Wire) -> None:
    answer = wire.call("plan", **MODEL)
    best = answer["best"]["plan"]
    wire.call("more", handle=answer["handle"])
    wire.call("explain", plan=best, setting="recompute")
    wire.call("why_not", plan=best, setting="tp=16")
    wire.call("simulate", plan=best, wait_seconds=600)  # with the default a slow machine would answer with a job
    wire.call("check_config", file="ds_config.json", **MODEL)
    wire.call(
        "advise", plan=best, measured={"step_seconds": 9.4, "comm_ratio": 0.5, "exposed_comm_ratio": 0.4, "peak_memory_gib": 30.0}
    )
    wire.call("search_cards", query="communication shows micro_batch")
    wire.call("export", plan=best, format="torchtitan", folder="train")


def _try(wire: Wire) -> None:
    best = wire.call("plan", **TRIED)["best"]["plan"]
    job = wire.call("start_trial", plan=best, minutes=MINUTES)["job"]
    wire.wait(job)
    ran, trial = wire.call("job_status", job=job, varies=True)["items"]
    assert (ran["exit_code"], trial["outcome"]) == (0, "ok"), ran["last_lines"]
    measured = {name: trial[name] for name in MEASURED}
    wire.call("record_evidence", study="studies/first", plan=best, measured=measured, varies=True)
    refused = wire.call("start_trial", plan=best, minutes=1, varies=True)
    assert refused["code"] == "grant_spent", refused
