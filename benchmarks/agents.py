"""Seconds of `describe_machine` for an agent: alone, beside a simulation of 405B on 512 GPUs, and for eight clients at once over
HTTP: python benchmarks/agents.py"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

TOKEN = "a-token-of-this-benchmark"
REQUEST = {"model": "llama3-405b", "gpus": "64x8xH100", "wait_seconds": 120}
CALLS, CLIENTS = 20, 8


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[Client]:
    """A client of the SDK at that address."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=600) as own,
        Client(streamable_http_client(address, http_client=own)) as client,
    ):
        yield client


async def seconds_of(client: Client, calls: int = CALLS) -> list[float]:
    """Of so many calls, one after the other."""
    found = []
    for _ in range(calls):
        begin = perf_counter()
        answer = await client.call_tool("describe_machine", {})
        found.append(perf_counter() - begin)
        if answer.is_error:
            sys.exit(str(answer.structured_content))
    return found


async def state_of(client: Client, job: str) -> str:
    """Of a job, as its owner hears it."""
    answer = (await client.call_tool("job_status", {"job": job})).structured_content
    return str(answer["items"][0]["state"])


async def measure(address: str) -> None:
    """Prints one line a figure."""
    async with client_of(address) as client:
        plan = (await client.call_tool("plan", REQUEST)).structured_content["best"]["plan"]
        alone = show("alone", await seconds_of(client))
        job = (await client.call_tool("simulate", {"plan": plan, "wait_seconds": 0})).structured_content["job"]
        during_simulation = show("beside a simulation", await seconds_of(client))
        print(f"{'':24} {during_simulation / alone:.1f} times as long; the simulation then: {await state_of(client, job)}")
        together: list[float] = []

        async def ask() -> None:
            async with client_of(address) as other:
                together.extend(await seconds_of(other))

        async with anyio.create_task_group() as group:
            for _ in range(CLIENTS):
                group.start_soon(ask)
        crowd = show(f"{CLIENTS} clients beside it", together)
        print(f"{'':24} {crowd / alone:.1f} times as long; the simulation then: {await state_of(client, job)}")
        begin = perf_counter()
        await client.call_tool("cancel_job", {"job": job})
        print(f"{'cancel_job':24} {perf_counter() - begin:.3f} s")


def show(name: str, seconds: list[float]) -> float:
    """Prints the median and the longest; the median."""
    median = statistics.median(seconds)
    print(f"{name:24} {len(seconds)} calls, {median:.3f} s in the median, {max(seconds):.3f} s at most", flush=True)
    return median


def main() -> None:
    """A server of its own in an empty workspace."""
    with tempfile.TemporaryDirectory() as workspace:
        command = [sys.executable, "-m", "strategist.cli.main", "mcp", "--workspace", workspace, "--http", "127.0.0.1:0"]
        environment = {**os.environ, "STRATEGIST_MCP_TOKEN": TOKEN}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            address = server.stderr.readline().split()[-1]
            try:
                print(f"load of the machine {Path('/proc/loadavg').read_text(encoding='ascii').split()[0]}")
                anyio.run(measure, address)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
