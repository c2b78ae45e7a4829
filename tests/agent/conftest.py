"""A desk in a workspace of its own, and a server."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.served import over_http

from strategist.agent.desk import Desk
from strategist.agent.open import opened


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def desk(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "0"))  # put back afterwards
    with opened(str(workspace)) as made:
        yield made


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server that listens on a free port."""
    with over_http(tmp_path_factory.mktemp("workspace")) as found:
        yield found
