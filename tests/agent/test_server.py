"""The server with an SDK client, over stdio and HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from agent.calls import answered, serving
from agent.processes import children, wait_until_gone
from agent.served import COMMAND, TOKEN, client_of, started
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from strategist.agent import catalog, server_tools
from strategist.agent.prompts import PROMPTS
from strategist.cli.main import main

ASKED = {"model": "tiny", "gpus": "1xH100"}
CARDS = ("FSDP-001", "FSDP-002", "TP-001", "PP-001", "AC-001", "MESH-003", "BATCH-001", "PREC-001")


@asynccontextmanager
async def over_stdio(workspace: Path) -> AsyncIterator[Client]:
    arguments = [*COMMAND[1:], "--workspace", str(workspace)]
    server = StdioServerParameters(command=COMMAND[0], args=arguments, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        yield client


def test_a_stdio_client_uses_tools_resources_and_prompts(workspace: Path) -> None:
    async def talk() -> None:
        async with over_stdio(workspace) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [tool.name for tool in (*catalog.TOOLS, *server_tools.TOOLS)]
            assert all(tool.input_schema["additionalProperties"] is False and tool.input_schema["examples"] for tool in tools)
            assert all(tool.output_schema["type"] == "object" for tool in tools)
            answer = await client.call_tool("plan", {"model": "tiny", "gpus": "2xH100"})
            assert not answer.is_error
            assert json.loads(answer.content[0].text) == answer.structured_content
            page = await client.call_tool("more", {"handle": answer.structured_content["handle"]})
            assert page.structured_content["items"]
            problem = await client.call_tool("plan", {"model": "8b", "gpus": "8x24GB", "surprise": 1})
            assert problem.is_error
            assert problem.structured_content["code"] == "invalid_arguments"
            addresses = [str(item.uri) for item in (await client.list_resources()).resources]
            for address in addresses:
                assert (await client.read_resource(address)).contents[0].text
            with pytest.raises(MCPError, match="unknown_tool"):
                await client.read_resource("strategist://nothing")
            listed = (await client.list_prompts()).prompts
            assert [prompt.name for prompt in listed] == [prompt.__name__ for prompt in PROMPTS]
            filled = await client.get_prompt("choose_a_layout", {"model": "8b {x}", "gpus": "8xH100"})
            assert "8b {x} on 8xH100" in filled.messages[0].content.text
            with pytest.raises(MCPError, match="invalid_arguments"):
                await client.get_prompt("choose_a_layout", {"model": "8b"})
            await check_concurrent_calls(client, ("FSDP-001", "FSDP-002", "TP-001", "PP-001"))

    anyio.run(talk)
    log = (workspace / ".strategist" / "audit.jsonl").read_text()
    assert log.count('"tool": "plan"') == 2


async def check_concurrent_calls(client: Client, cards: tuple[str, ...]) -> None:
    """Checks that concurrent calls are all answered."""
    found: dict[str, str] = {}

    async def ask(card: str) -> None:
        found[card] = (await client.call_tool("read_card", {"id": card})).structured_content["id"]

    async with anyio.create_task_group() as group:
        for card in cards:
            group.start_soon(ask, card)
    assert found == {card: card for card in cards}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_ends_an_http_server_in_one_line(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as (process, address):
        httpx2.post(address, json={}, timeout=None)  # it handles signals from its first answer on
        process.send_signal(number)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (130, "strategist: interrupted\n")


def test_eight_http_clients_are_answered_concurrently(address: str) -> None:
    """Each client has its own question and receives its own progress."""
    found: dict[int, list[Any]] = {}
    received: dict[int, list[str | None]] = {number: [] for number in range(8)}

    async def ask(number: int, begun: anyio.Event, all_begun: anyio.Event) -> None:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            received[number].append(message)

        async with client_of(address) as client:
            begun.set()
            await all_begun.wait()
            plan = await client.call_tool("plan", {**ASKED, "global_batch": 8 * (number + 1)}, progress_callback=on_progress)
            best = plan.structured_content["best"]["plan"]
            why = await client.call_tool("why_not", {"plan": best, "setting": "tp=64"})
            card = await client.call_tool("read_card", {"id": CARDS[number]})
            found[number] = [best, why.structured_content["obstacle"], card.structured_content["id"]]

    async def talk() -> None:
        begun, all_begun = [anyio.Event() for _ in range(8)], anyio.Event()
        async with anyio.create_task_group() as group:
            for number, event in enumerate(begun):
                group.start_soon(ask, number, event, all_begun)
            for event in begun:
                await event.wait()
            all_begun.set()

    anyio.run(talk)
    assert len({best for best, _, _ in found.values()}) == 8
    assert {number: rest for number, (_, *rest) in found.items()} == {number: ["illegal", CARDS[number]] for number in range(8)}
    assert all(received.values())


def test_a_killed_server_leaves_no_process_and_its_jobs_are_lost(workspace: Path) -> None:
    async def talk(address: str) -> tuple[str, list[int]]:
        async with client_of(address) as client:
            best = (await client.call_tool("plan", ASKED)).structured_content["best"]["plan"]
            job = (await client.call_tool("simulate", {"plan": best, "wait_seconds": 0})).structured_content["job"]
            while not (forked := [worker for child in children(process.pid) for worker in children(child)]):
                await anyio.sleep(0.005)
            process.kill()
            return job, forked

    with started(workspace) as (process, address):
        job, forked = anyio.run(talk, address)
    wait_until_gone(*forked)
    with serving(workspace) as dispatcher:
        assert answered(dispatcher, "job_status", job=job)["items"][0]["state"] == "lost"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
    ],
)
def test_unauthorized_http_requests_are_refused(address: str, headers: dict[str, str], status: int) -> None:
    assert httpx2.post(address, json={}, headers=headers, timeout=None).status_code == status


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--http", "8765"], "a host and a port are needed"),
        (["--http", "127.0.0.1:0"], "a token of at least 16"),
        (["--http", "127.0.0.1:0", "--token-file", "missing"], "cannot be read"),
        (["--token-file", "x"], "is nothing without --http"),
        (["--study", "x"], "is nothing without --grant"),
        (["--grant", "trials=3"], "needs both"),
        (["--workspace", "nowhere"], "is not a folder"),
    ],
)
def test_a_wrong_command_line_prints_one_error_line(
    arguments: list[str], words: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("STRATEGIST_MCP_TOKEN", raising=False)
    assert main(["mcp", *arguments]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1


def test_the_plan_command_does_not_import_the_sdk() -> None:
    program = "import sys, strategist.cli.plan; print([name for name in ('mcp', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
