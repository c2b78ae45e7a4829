"""Hostile documents are refused in one line with their place; no code is run."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from chaos import Chaos

from hostile.documents import JSON, YAML
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.errors import FileError, StrategistError
from strategist.files import yaml_file

WATCHED = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "pickle.find_class", "exec")
_seen: list[str] = []
_watching: list[bool] = []


def _hook(event: str, _: tuple[object, ...]) -> None:
    if _watching and event in WATCHED:
        _seen.append(event)


sys.addaudithook(_hook)


@pytest.fixture(scope="module", autouse=True)
def parsers_are_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first document of a process imports its parser, which executes that module's code."""
    path = tmp_path_factory.mktemp("first") / "card.yaml"
    path.write_text("id: A-1\n", encoding="utf-8")
    yaml_file.load(path)


@contextmanager
def nothing_is_run() -> Iterator[None]:
    """Checks by audit events that no code, program or connection is started."""
    _seen.clear()
    _watching.append(True)
    try:
        yield
    finally:
        _watching.clear()
    assert _seen == []


def refused(read: Callable[[], object]) -> StrategistError:
    """The StrategistError that reading raises; any other exception fails the test."""
    with nothing_is_run():
        try:
            read()
        except StrategistError as error:
            return error
    pytest.fail("the document was accepted")


def raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", YAML)
def test_hostile_yaml_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    text, words = YAML[name]
    path = tmp_path / "card.yaml"
    path.write_bytes(raw(text))
    error = refused(lambda: yaml_file.load(path))
    assert isinstance(error, FileError)
    assert words in error.message
    assert "\n" not in str(error)
    assert len(str(error)) < 1000
    assert error.line or words in ("256 KiB", "not UTF-8", "not"), "errors of a whole file have no line"


@pytest.mark.parametrize("name", JSON)
def test_hostile_json_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    text, _ = JSON[name]
    path = tmp_path / "plan.json"
    path.write_bytes(raw(text))
    error = refused(lambda: codec.load(Plan, path))
    assert isinstance(error, FileError)
    assert str(error).startswith(str(path))
    assert "\n" not in str(error)
    assert len(str(error)) < 1000
    assert error.line or "is larger than" in error.message or "is not UTF-8" in error.message, "errors of a whole file have no line"


@pytest.mark.chaos("Bad input", "hostile documents are refused within 250 ms of CPU and 64 MB")
def test_hostile_documents_take_bounded_time_and_memory(chaos: Chaos, tmp_path: Path) -> None:
    """Each document is read in its own process, which reports the cost; every run reads a third of them."""
    documents = {
        f"{kind}: {name}": (kind, raw(text)) for kind, of in (("yaml", YAML), ("json", JSON)) for name, (text, _) in of.items()
    }
    costs: dict[str, tuple[float, int]] = {}
    for name in sorted(documents)[:: chaos.size(3, 1)]:
        kind, text = documents[name]
        path = tmp_path / f"document.{kind}"
        path.write_bytes(text)
        read = partial(yaml_file.load, path) if kind == "yaml" else partial(codec.load, Plan, path)
        costs[name] = min((cost(read) for _ in range(chaos.size(1, 5))), key=itemgetter(0))
    slowest, largest = (max(costs, key=lambda name, part=part: costs[name][part]) for part in (0, 1))
    assert costs[largest][1] < 64e6, largest
    chaos.found(f"{len(costs)} documents, all refused; most memory {costs[largest][1] / 1e6:.0f} MB ({largest})")
    chaos.found(f"slowest {costs[slowest][0] * 1000:.0f} ms of CPU ({slowest}; 250 allowed)")


def cost(read: Callable[[], object]) -> tuple[float, int]:
    """CPU seconds until the document is refused, and the additional memory, in a forked process."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        before, begun = memory("VmRSS"), time.process_time()
        try:
            read()
        except StrategistError:
            os.write(there, f"{time.process_time() - begun} {memory('VmHWM') - before}".encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here) as output:
        seconds, more = output.read().split()
    os.waitpid(child, 0)
    return float(seconds), int(more)


def memory(name: str) -> int:
    """Memory of this process in bytes: current (VmRSS) or peak (VmHWM)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def reads(text: str) -> Any:
    """The value according to a JSON reader; JSON is a subset of YAML 1.2."""
    return json.loads(text)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, True, None, "x"]}, {"a b": {"c": ""}}, [[], {}], "on", -0.0, 1e-300])
def test_json_documents_are_read_equally_as_yaml(value: Any) -> None:
    text = json.dumps(value)
    assert yaml_file.parse(text).data == reads(text)


def test_the_audit_hook_detects_exec() -> None:
    """Code that runs is detected."""
    with pytest.raises(AssertionError, match="exec"), nothing_is_run():
        exec("1")


COMMANDS = (
    ("run", "{}"), ("explain", "{}"), ("report", "{}"), ("check", "{}", "--model", "8b", "--gpus", "8xH100"),
    ("plan", "--model", "{}", "--gpus", "8xH100"), ("plan", "--model", "tiny", "--gpus", "4xcpu", "--calibration", "{}"),
    ("study", "import", "{}", "--study", "s", "--model", "tiny", "--gpus", "4xcpu"),
)  # fmt: skip
"""Commands that read a file, which may come from another person."""


@pytest.mark.parametrize(("number", "name"), list(enumerate(name for name in JSON if len(JSON[name][0]) < 1_000_000)))
def test_every_command_refuses_hostile_json_in_one_line(
    number: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two commands per document, in turn, since all commands use the same reader."""
    text, _ = JSON[name]
    monkeypatch.chdir(tmp_path)
    for file in (tmp_path / "file.json", tmp_path / "file.jsonl"):
        file.write_bytes(raw(text))
    for command in (COMMANDS[number % len(COMMANDS)], COMMANDS[(number + 1) % len(COMMANDS)]):
        file = "file.jsonl" if command[0] == "study" else "file.json"
        code = main([file if word == "{}" else word for word in command])
        output = capsys.readouterr()
        if command[0] == "study" and not text:
            assert code == 0, "an empty history holds no trials"
            continue
        assert code in (1, 2), command
        assert (output.err or output.out).count("\n") >= 1
        assert code == 1 or output.err.count("\n") == 1, output.err
        assert "Traceback" not in output.err
