"""A scripted agent without a language model: plans, simulates, tunes, compares and exports jobs from tool replies alone."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from agent.served import COMMAND
from mcp import Client, StdioServerParameters, stdio_client

GRANT = "trials=6,minutes=30"
TRIALS, MINUTES, STEPS = 2, 9, 3


@dataclass(frozen=True, kw_only=True)
class Task:
    """A user's request: arguments of ``plan``, and the scheduler of the exported job."""

    name: str
    text: str
    arguments: dict[str, Any]
    job: str


SMALL = {"model": "tiny", "seq_len": 128, "global_batch": 8, "backend": "native"}
TASKS = (
    Task(
        name="fast", text="Train tiny on two CPU ranks as fast as they can, and give me a job for Slurm.",
        arguments={**SMALL, "gpus": "2xcpu"}, job="slurm",
    ),
    Task(
        name="adapter", text="Train a LoRA adapter of tiny on one CPU rank, and give me a PyTorchJob for Kubernetes.",
        arguments={**SMALL, "gpus": "1xcpu", "train": "lora"}, job="pytorchjob",
    ),
    Task(
        name="pipeline", text="Split tiny into two stages, with as little memory as possible, and give me a JobSet for Kubernetes.",
        arguments={**SMALL, "gpus": "2xcpu", "fix": ["pp=2"], "objective": "memory"}, job="jobset",
    ),
)  # fmt: skip


@dataclass(kw_only=True)
class Agent:
    """Calls tools, and records calls and replies."""

    client: Client
    calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool, or of the job that the call became."""
        result = await self.client.call_tool(tool, arguments)
        content: dict[str, Any] = result.structured_content
        assert not result.is_error, (tool, arguments, content)
        self.calls.append((tool, arguments, content))
        if content.keys() >= {"job", "tool", "progress"}:
            return await self.call("more", handle=(await self.ended(content["job"]))["items"][0]["handle"])
        return content

    async def ended(self, job: str) -> dict[str, Any]:
        """The status of an ended job; the polling is not recorded."""
        while (status := await self.call("job_status", job=job, wait_seconds=60))["items"][0]["state"] == "running":
            self.calls.pop()
        return status

    async def handle(self, task: Task) -> list[str]:
        """Performs a task; returns the exported files."""
        plan = (await self.call("plan", **task.arguments))["best"]["plan"]
        assert (await self.call("simulate", plan=plan))["verdict"] == "fits"
        started = await self.call("start_tuning", plan=plan, study=task.name, trials=TRIALS, minutes=MINUTES, steps=STEPS)
        ran, *trials = (await self.ended(started["job"]))["items"]
        assert ran["exit_code"] == 0, ran["last_lines"]
        assert [trial for trial in trials if trial["best"]]
        best = (await self.call("load_plan", file=f"{started['folder']}/best-plan.json"))["plan"]["plan"]
        await self.call("compare", first=plan, second=best)
        page = (await self.call("report", study=started["folder"], file=f"{task.name}/report.html"))["file"]
        job = await self.call(
            "export", plan=best, format="pytorch", folder=f"{task.name}/train", job=task.job, image="pytorch:2.13"
        )
        return [page, *job["files"]]


@asynccontextmanager
async def agent(workspace: Path) -> AsyncIterator[Agent]:
    """An agent with its own server, and a grant of trials."""
    arguments = [*COMMAND[1:], "--workspace", str(workspace), "--grant", GRANT]
    server = StdioServerParameters(command=COMMAND[0], args=arguments, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    async with Client(stdio_client(server)) as client:
        yield Agent(client=client)


def transcript() -> Iterator[tuple[Task, list[tuple[str, dict[str, Any], dict[str, Any]]]]]:
    """Calls and replies of each task."""

    async def work(workspace: Path) -> list[list[tuple[str, dict[str, Any], dict[str, Any]]]]:
        done = []
        async with agent(workspace) as made:
            for task in TASKS:
                made.calls = []
                await made.handle(task)
                done.append(made.calls)
        return done

    with tempfile.TemporaryDirectory() as folder:
        yield from zip(TASKS, anyio.run(work, Path(folder)), strict=True)
