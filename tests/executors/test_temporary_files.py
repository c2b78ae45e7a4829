"""Temporary files of a trial are removed at its end; files of other processes stay."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strategist.executors import processes, temporary_files

HOLD = "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); print(flush=True); sys.stdin.read()"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def shared(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Path]]:
    """``shared(name)``: path of a file in shared memory, removed at the end."""
    made: list[Path] = []

    def place(name: str) -> Path:
        made.append(temporary_files.SHARED_MEMORY / f"strategist-test-{os.getpid()}-{name}")
        return made[-1]

    yield place
    for path in made:
        path.unlink(missing_ok=True)


def test_only_shared_memory_of_the_trial_is_removed(start: Start, shared: Callable[[str], Path]) -> None:
    tag = processes.new_tag("scratch")
    place, before = temporary_files.make(tag), shared("before")
    before.touch()
    watch = temporary_files.SharedMemoryWatch(tag, place)
    own, other, used, left = shared("own"), shared("other"), shared("used"), shared("left")
    ours = [start(tag, HOLD, str(path)) for path in (own, used, before)]
    start("another", HOLD, str(other))
    start("another", HOLD, str(used))
    left.touch()  # like a file that another process wrote and closed
    for _ in range(2):
        watch.look()
    for process in ours:
        process.kill()
        process.wait()
    temporary_files.clear(place)
    assert not place.exists()
    assert not own.exists()
    assert all(path.exists() for path in (before, other, used, left))


def test_the_sweep_removes_files_of_dead_tuners_only(start: Start, tmp_path: Path) -> None:
    study = f"scratch-{os.getpid()}"
    owner = start("other", HOLD, str(tmp_path / "file"))
    stale = temporary_files.make(f"{study}.{owner.pid}.{processes.started(owner.pid)}.1")
    living, elsewhere = temporary_files.make(processes.new_tag(study)), temporary_files.make(f"{study}-other.1.1.1")
    assert temporary_files.sweep(study) == 0
    owner.kill()
    owner.wait()
    assert temporary_files.sweep(study) == 1
    assert [place.exists() for place in (stale, living, elsewhere)] == [False, True, True]
    for place in (living, elsewhere):
        temporary_files.clear(place)


def test_the_compile_cache_outlives_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    given = temporary_files.environment(tmp_path)
    assert given["TMPDIR"] == str(tmp_path)
    assert not given["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/fast/cache")
    assert temporary_files.environment(tmp_path)["TORCHINDUCTOR_CACHE_DIR"] == "/fast/cache"
