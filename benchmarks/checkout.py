"""The committed tree in a temporary folder, for benchmarks/mutation.py: a checkout with an environment of its own.

The packages of that environment are links to those of the environment that runs this; only where that one has this checkout, it has
the copy. So whatever is started there imports the copy, with any variables and in any folder, and neither the checkout nor its
environment is changed.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GRACE_SECONDS = 20.0
"""What tests have to end their own processes in, where they are stopped."""

PROBE = """
import subprocess, sys
query = "import strategist, strategist_runtime; print(strategist.__file__, strategist_runtime.__file__)"
sys.exit(subprocess.call([sys.executable, "-c", query], cwd="/", env={}))
"""


class TooLongError(Exception):
    """A program took longer than it may."""


def git(*arguments: str, at: Path = ROOT) -> bytes:
    """What git says; it ends this program in one line."""
    done = subprocess.run(["git", "-C", str(at), *arguments], capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"git {arguments[0]} in {at}: {' '.join(done.stderr.decode(errors='replace').split()) or 'failed'}")
    return done.stdout


def committed() -> dict[str, str]:
    """Source texts of both halves by path."""
    archive = io.BytesIO(git("archive", "--format=tar", "HEAD", "strategist", "runtime/strategist_runtime"))
    with tarfile.open(fileobj=archive) as files:
        sources = [(member.name, files.extractfile(member)) for member in files if member.name.endswith(".py")]
        return {name: file.read().decode() for name, file in sources if file is not None}


@dataclass(frozen=True)
class Copy:
    """A checkout of its own, whose environment imports it."""

    root: Path

    def run(self, command: Sequence[str], deadline: float) -> int:
        """The exit code of a program of the environment; what it says is in output.txt beside the checkout.

        Raises:
            TooLongError: the deadline came first; the program and all that it started are ended.
        """
        here, own = str(Path(sys.prefix)), str(self.root / ".venv")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV"))}
        environment = {"OMP_NUM_THREADS": "1", **kept, "PATH": kept.get("PATH", os.defpath).replace(here, own)}
        program = [str(self.root / ".venv" / "bin" / command[0]), *command[1:]]
        with (self.root.parent / "output.txt").open("wb") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(program, cwd=self.root, env=environment, start_new_session=True, **streams)
        try:
            return process.wait(max(deadline - monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            raise TooLongError from None
        finally:
            _end(process, self.root)

    @property
    def output(self) -> str:
        return (self.root.parent / "output.txt").read_text(encoding="utf-8", errors="replace")

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Within, a file has another text; after it the committed tree is there again, and nothing that tests remember."""
        compiled = Path(cache_from_source(str(self.root / path)))  # Python's own, where size and second of the source are the same
        compiled.unlink(missing_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            git("checkout", "-q", "--force", "--", ".", at=self.root)
            git("clean", "-fdq", at=self.root)
            compiled.unlink(missing_ok=True)
            for name in (".hypothesis", ".pytest_cache"):
                shutil.rmtree(self.root / name, ignore_errors=True)


def _end(process: subprocess.Popen[bytes], root: Path) -> None:
    """Ends a program that is not done, and processes of the copy's environment that it left in whatever group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if place.read_bytes().startswith(f"{root}/".encode()):
                os.kill(int(place.parent.name), signal.SIGKILL)


@contextmanager
def copied(commit: str) -> Iterator[Copy]:
    """The tree in a temporary folder, which goes at the end."""
    if sys.prefix == sys.base_prefix:
        sys.exit("run this with the Python of the project's environment: .venv/bin/python benchmarks/mutation.py")
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as name:
        copy = Copy(Path(name).resolve() / "tree")
        git("clone", "-q", "--shared", "--no-checkout", str(ROOT), str(copy.root))
        git("checkout", "-q", "--detach", commit, at=copy.root)
        _environment(copy.root / ".venv", copy.root)
        if (ROOT / ".frameworks").exists():
            (copy.root / ".frameworks").symlink_to(ROOT / ".frameworks")
        copy.run(("python", "-c", PROBE), monotonic() + 300)
        if copy.output.split() != [str(copy.root / part / "__init__.py") for part in ("strategist", "runtime/strategist_runtime")]:
            sys.exit(f"a process of the copy does not import the copy, but says: {' '.join(copy.output.split()) or 'nothing'}")
        yield copy


def _environment(folder: Path, root: Path) -> None:
    """Like the one that runs this, with its packages, but with ``root`` where that one has this checkout."""
    here = Path(sys.prefix)
    site = Path(sysconfig.get_path("purelib")).relative_to(here)
    for part in ("bin", site):
        (folder / part).mkdir(parents=True)
    shutil.copy(here / "pyvenv.cfg", folder)
    for entry in (here / site).iterdir():
        if entry.suffix == ".pth":
            (folder / site / entry.name).write_text(entry.read_text().replace(str(ROOT), str(root)))
        else:
            (folder / site / entry.name).symlink_to(entry)
    (folder / site / "links.pth").write_text(f"{here / site}\n")  # what may be read of Python is known by its path
    for entry in (here / "bin").iterdir():
        if entry.is_file():
            shutil.copy(entry, folder / "bin", follow_symlinks=False)
        if entry.is_file() and not entry.is_symlink() and (raw := entry.read_bytes()).startswith(b"#!"):
            (folder / "bin" / entry.name).write_bytes(raw.replace(str(here).encode(), str(folder).encode()))
