"""What an agent's call can reach."""

import socket
import sqlite3
from pathlib import Path

import pytest

from strategist.agent.problem import RefusedError
from strategist.agent.workspace import Workspace
from strategist.errors import FileError
from strategist.paths import data_dir


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text("secret")
    return file


def test_paths_inside_are_taken_as_they_are(workspace: Path) -> None:
    place = Workspace.at(workspace)
    assert place.inside("a/../b.json") == workspace / "b.json"
    assert place.inside(str(workspace / "b")) == workspace / "b"
    assert place.inside(".") == workspace
    assert place.show(workspace / "a" / "b") == "a/b"


@pytest.mark.parametrize("path", ["..", "../secret.txt", "/etc", "a/../../secret.txt", "~/x", "a\0b", "link", ".strategist/x"])
def test_paths_that_lead_out_are_refused(workspace: Path, outside: Path, path: str) -> None:
    (workspace / "link").symlink_to(outside)
    with pytest.raises(RefusedError) as caught:
        Workspace.at(workspace).inside(path)
    assert caught.value.problem.code == "outside_workspace"


def test_a_workspace_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is no folder"):
        Workspace.at(tmp_path / "nowhere")


def test_a_confined_call_opens_nothing_outside(workspace: Path, outside: Path) -> None:
    (workspace / "link").symlink_to(outside)
    with Workspace.at(workspace).confined():
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
    assert outside.read_text() == "secret"


def test_a_confined_call_changes_nothing_outside(workspace: Path, outside: Path) -> None:
    with Workspace.at(workspace).confined():
        for change in (
            lambda: outside.write_text("other"),
            outside.unlink,
            lambda: outside.rename(workspace / "mine"),
            lambda: (outside.parent / "new").mkdir(),
            lambda: (data_dir("cards") / "new.yaml").write_text("x"),
        ):
            with pytest.raises(PermissionError):
                change()
    assert outside.read_text() == "secret"
    assert not (outside.parent / "new").exists()


def test_a_confined_call_opens_no_connection(workspace: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with Workspace.at(workspace).confined(), pytest.raises(PermissionError):
            socket.create_connection(listening.getsockname())
        socket.create_connection(listening.getsockname()).close()
