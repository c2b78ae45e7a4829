"""Paths and connections that a tool call can reach."""

import multiprocessing
import socket
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strategist.agent.problem import RefusedError
from strategist.agent.workspace import Workspace, confine
from strategist.errors import FileError
from strategist.paths import data_dir


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text("secret")
    return file


def test_paths_inside_the_workspace_are_accepted(workspace: Path) -> None:
    place = Workspace.at(workspace)
    assert place.inside("a/../b.json") == workspace / "b.json"
    assert place.inside(str(workspace / "b")) == workspace / "b"
    assert place.inside(".") == workspace
    assert place.show(workspace / "a" / "b") == "a/b"


@pytest.mark.parametrize("path", ["..", "../secret.txt", "/etc", "a/../../secret.txt", "~/x", "a\0b", "link", ".strategist/x"])
def test_paths_outside_the_workspace_are_refused(workspace: Path, outside: Path, path: str) -> None:
    (workspace / "link").symlink_to(outside)
    with pytest.raises(RefusedError) as caught:
        Workspace.at(workspace).inside(path)
    assert caught.value.problem.code == "outside_workspace"


def test_a_workspace_must_exist(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is not a folder"):
        Workspace.at(tmp_path / "nowhere")


def confined(workspace: Path, check: Callable[[], None]) -> None:
    """Runs a check in a process confined to the workspace like a worker."""

    def run() -> None:
        place = Workspace.at(workspace)
        confine(place, place.server_folder("temporary"))
        check()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_confined_process_cannot_read_outside_the_workspace(workspace: Path, outside: Path) -> None:
    (workspace / "link").symlink_to(outside)

    def check() -> None:
        (workspace / "own.txt").write_text("own")
        assert (workspace / "own.txt").read_text() == "own"
        assert next(data_dir("cards").glob("*/*.yaml")).read_text()
        for path in (outside, workspace / "link", workspace / ".." / "secret.txt"):
            with pytest.raises(PermissionError):
                path.read_text()
        with pytest.raises(PermissionError):
            list(outside.parent.iterdir())
        with pytest.raises(PermissionError):
            sqlite3.connect(f"file:{outside}?mode=rw", uri=True)
        with ThreadPoolExecutor() as threads, pytest.raises(PermissionError):
            threads.submit(outside.read_text).result()

    confined(workspace, check)
    assert outside.read_text() == "secret"


def test_a_confined_process_cannot_write_outside_the_workspace(workspace: Path, outside: Path) -> None:
    def check() -> None:
        for change in (
            lambda: outside.write_text("other"),
            outside.unlink,
            lambda: outside.rename(workspace / "mine"),
            lambda: (outside.parent / "new").mkdir(),
            lambda: (data_dir("cards") / "new.yaml").write_text("x"),
        ):
            with pytest.raises(PermissionError):
                change()

    confined(workspace, check)
    assert outside.read_text() == "secret"
    assert not (outside.parent / "new").exists()


def test_a_confined_process_opens_no_connection(workspace: Path) -> None:
    def check() -> None:
        with pytest.raises(PermissionError):
            socket.create_connection(address)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = listening.getsockname()
        confined(workspace, check)
        socket.create_connection(address).close()


def test_an_existing_file_is_never_overwritten(workspace: Path) -> None:
    place = Workspace.at(workspace)
    assert place.write_new("a/b.json", "1") == "a/b.json"
    with pytest.raises(FileError, match="is there already"):
        place.write_new("a/b.json", "2")
    assert (workspace / "a" / "b.json").read_text() == "1"
    with pytest.raises(RefusedError):
        place.write_new("../b.json", "1")
