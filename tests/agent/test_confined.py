"""Tool calls reach nothing outside the workspace: with any path, and while symbolic links change."""

import ctypes
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.calls import Caller, serving
from agent.test_tools import CARD
from agent.test_workspace import confined
from chaos import Chaos
from inotify import watched

from strategist import api
from strategist.agent import landlock
from strategist.agent.catalog import TOOLS
from strategist.contract import codec
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.ledger.ledger import Ledger

CANARY = "canary-7c1f"
NEEDS_KERNEL = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
EXCHANGE = 2
"""linux/fs.h: RENAME_EXCHANGE."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return api.plan(Request(model="8b", gpus="8xH100"), top=1).plans[0]


@pytest.fixture
def outside(tmp_path: Path, plan: Plan) -> Path:
    """A folder next to the workspace with a valid file of every kind that a call may read; each contains the canary."""
    folder = tmp_path / "outside"
    (folder / "cards").mkdir(parents=True)
    (folder / "cards" / "TP-101.yaml").write_text(CARD.replace("No splitting here", CANARY))
    codec.save(plan, folder / "plan.json")
    (folder / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}, CANARY: 1}))
    (folder / "config.json").write_text(json.dumps({"architectures": [CANARY]}))
    (folder / "cluster.yaml").write_text(f"name: {CANARY}\n")
    (folder / "calibration.json").write_text(json.dumps({CANARY: 1}))
    (folder / "sweep.csv").write_text(f"tp,{CANARY}\n1,2\n")
    with Ledger.open(folder / "study", create=True) as ledger:
        ledger.enqueue("a", codec.dumps(plan), CANARY)
        measured = Measurement(
            plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OOM, evidence=Evidence(message=CANARY), wall_seconds=1.0
        )
        claim = ledger.claim("w", 100.0)
        assert claim is not None
        ledger.finish(claim, Outcome.OOM, codec.dumps(measured))
    return folder


def escaping_paths(workspace: Path, outside: Path) -> list[str]:
    """Paths that escape, or seem to escape, the workspace."""
    targets = [f"outside/{path.relative_to(outside)}" for path in sorted(outside.rglob("*"))] + ["outside"]
    up, whole = "../{}", f"{outside.parent}/{{}}"
    (workspace / "folder").mkdir()
    for name, target in (("link", outside), ("chain", Path("link")), ("up", Path("..")), ("gone", outside / "new")):
        (workspace / name).symlink_to(target)
    forms = [
        up, whole, "./../{}", "folder/../../{}", "folder//..//..//{}", "/" + whole, "//" + whole, f"{workspace}/../{{}}", "up/{}",
        "file://" + whole, "..\\{}", "....//{}", "%2e%2e/{}", "..%2f{}", "..;/{}", "․․/{}", "~/../{}", "~root/{}", "$PWD/../{}",
        "../{} ", "../{}\n", "../{}\0.json", "../{}/.", " ../{}", "'../{}'", "../{}#x", "../{}?x", "/proc/self/cwd/../{}",
        f"/proc/self/root{outside.parent}/{{}}", "/dev/fd/../../{}", f"{workspace}-not/../{{}}",
    ]  # fmt: skip
    linked = [f"{link}/{path.relative_to(outside)}" for link in ("link", "chain") for path in sorted(outside.rglob("*"))]
    own = [".strategist/audit.jsonl", "folder/../.strategist", ".strategist/../../outside/plan.json", "link", "gone", "gone/new"]
    return [form.format(target) for form in forms for target in targets] + linked + own


def slots() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Every free-text argument (or list of texts) of every tool, with a complete call."""
    for tool in TOOLS:
        for example in tool.examples[-1:]:
            for name, schema in tool.input_schema["properties"].items():
                texts = schema if schema.get("type") == "string" else schema.get("items", {})
                if texts.get("type") == "string" and "enum" not in texts:
                    yield tool.name, {key: value for key, value in example.items() if key != _exclusive_with(name)}, name


def _exclusive_with(name: str) -> str:
    """The argument that excludes this one."""
    return {"path": "text", "text": "path", "file": "plan", "study": "plan"}.get(name, "")


@pytest.mark.chaos("Security", "paths that escape the workspace, in every text argument of every agent tool")
def test_no_path_argument_escapes_the_workspace(workspace: Path, outside: Path, dispatcher: Caller, chaos: Chaos) -> None:
    tried = escaping_paths(workspace, outside)
    assert len(tried) >= 200
    plan = dispatcher.call("plan", {"model": "8b", "gpus": "8xH100"}).content["best"]["plan"]
    random, each = chaos.random(), chaos.size(2, len(tried))
    chosen: list[tuple[str, dict[str, Any] | None]] = [
        (tool, {**call, name: [text] if name in ("cards", "without", "fix", "allow") else text})
        for tool, call, name in slots()
        for text in random.sample(tried, each)
    ]
    kinds = ("studies", "cards", "schemas")
    chosen += [(f"strategist://{kind}/{text}", None) for kind in kinds for text in random.sample(tried, each)]
    random.shuffle(chosen)
    with watched(outside) as kernel:
        for name, arguments in chosen:
            if arguments is None:
                reply = dispatcher.read(name)
            else:
                given = {key: plan if key == "plan" and value in ("58698c070e9c",) else value for key, value in arguments.items()}
                reply = dispatcher.call(name, given)
            said = json.dumps(reply.content)
            assert CANARY not in said, (name, arguments)
            assert "Traceback" not in said
            assert not (reply.is_problem and reply.content["code"] == "failed"), (name, arguments, reply.content)
        events = kernel.events()
    assert events == []
    assert sorted(path.name for path in workspace.parent.iterdir()) == ["outside", "workspace"]
    chaos.found(
        f"{len(events)} openings or changes outside in {len(chosen):,} calls: {len(tried)} names, {len(list(slots()))} arguments"
    )


def _exchange(pairs: list[tuple[bytes, bytes]]) -> None:
    libc = ctypes.CDLL(None)
    while True:
        for first, second in pairs:
            libc.renameat2(-100, first, -100, second, EXCHANGE)


@NEEDS_KERNEL
@pytest.mark.chaos("Security", "a symbolic link in the workspace that another process swaps repeatedly")
def test_a_swapped_symbolic_link_never_escapes_the_workspace(
    workspace: Path, outside: Path, dispatcher: Caller, chaos: Chaos
) -> None:
    plan = dispatcher.call("plan", {"model": "8b", "gpus": "8xH100"}).content["best"]["plan"]
    for name in ("plan.json", "ds.json"):
        (workspace / name).write_text("{")  # refused at once, so that many calls are made
        (workspace / f"{name}.link").symlink_to(outside / name)
    for name in ("cards", "study"):
        (workspace / name).mkdir()
        (workspace / f"{name}.link").symlink_to(outside / name)
    names = ("plan.json", "ds.json", "cards", "study")
    pairs = [(bytes(workspace / name), bytes(workspace / f"{name}.link")) for name in names]
    racer = multiprocessing.get_context("fork").Process(target=_exchange, args=(pairs,), daemon=True)
    somewhere = {"model": "8b", "gpus": "8xH100"}
    calls = (
        ("explain", {"plan": "plan.json", "setting": "recompute"}),
        ("check_config", {"file": "ds.json", **somewhere}),
        ("lint_card", {"path": "cards"}),
        ("record_evidence", {"study": "study", "plan": plan, "measured": {"step_seconds": 1.0}}),
        ("export", {"plan": plan, "format": "pytorch", "folder": "cards/{}"}),
    )
    tried, read_inside, rounds = 0, 0, chaos.size(20, 1_300)
    with watched(outside) as kernel:
        racer.start()
        while (
            tried < rounds * len(calls) or not 0 < read_inside < tried
        ):  # until both kinds of target were read, also on a busy machine
            for name, arguments in calls:
                reply = dispatcher.call(
                    name, {key: value.format(tried) if key == "folder" else value for key, value in arguments.items()}
                )
                tried += 1
                read_inside += not (reply.is_problem and reply.content["code"] == "outside_workspace")
                assert CANARY not in json.dumps(reply.content)
        racer.kill()
        racer.join()
        events = kernel.events()
    assert events == []
    chaos.found(f"{len(events)} openings or changes outside in {tried:,} calls")


@NEEDS_KERNEL
def test_landlock_confines_native_libraries_and_child_processes(workspace: Path, outside: Path) -> None:
    """A C library that opens files directly, and a program that a call starts."""
    libc = ctypes.CDLL(None, use_errno=True)

    def opened_by_libc(path: Path, flags: int) -> int:
        return int(libc.open(bytes(path), flags, 0o600))

    def check() -> None:
        assert opened_by_libc(outside / "plan.json", os.O_RDONLY) == -1
        assert opened_by_libc(outside / "new", os.O_CREAT | os.O_WRONLY) == -1
        assert opened_by_libc(workspace / "new", os.O_CREAT | os.O_WRONLY) >= 0
        assert os.system(f"cat {outside / 'plan.json'} > {workspace / 'copy'} 2> /dev/null") != 0
        assert (workspace / "copy").read_text() == ""

    confined(workspace, check)
    assert opened_by_libc(outside / "plan.json", os.O_RDONLY) >= 0, "only the worker is confined"


@NEEDS_KERNEL
@pytest.mark.skipif(landlock.version() < 4, reason="this kernel's Landlock does not know TCP")
def test_landlock_refuses_tcp_connections_of_a_native_library(workspace: Path) -> None:
    psycopg = pytest.importorskip("psycopg")

    def check() -> None:
        with pytest.raises(psycopg.OperationalError, match="Permission denied"):
            psycopg.connect("postgresql://127.0.0.1:1/x", connect_timeout=2)

    confined(workspace, check)


def test_a_closed_server_leaves_no_thread(workspace: Path) -> None:
    before = set(threading.enumerate())
    with serving(workspace) as dispatcher:
        dispatcher.call("list_cards", {})
    assert set(threading.enumerate()) <= before  # threads of earlier tests may end meanwhile
