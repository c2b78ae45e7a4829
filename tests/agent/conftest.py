"""Fixtures: a server with its own workspace and a client, and a server over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.calls import Caller, serving
from agent.served import over_http


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def dispatcher(workspace: Path) -> Iterator[Caller]:
    with serving(workspace) as made:
        yield made


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that listens on a free port."""
    with over_http(tmp_path_factory.mktemp("workspace")) as found:
        yield found
