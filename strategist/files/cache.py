"""Cache of parsed shipped files in the user's cache folder; it changes speed, never an answer.

Each name is one file there. Its first line is a digest over the key and the content, its second line the content as JSON. So a
file that is damaged, of other sources or of another version of the code is passed over, and replaced where the folder can be
written; one that belongs to another user is not read. Where there is no such folder, everything is made anew each time.
"""

import json
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from strategist.errors import FileError
from strategist.files import outputs

_PACKAGE = Path(__file__).resolve().parents[1]


def kept(name: str, key: str | None, make: Callable[[], Any]) -> Any:
    """The plain data that ``make`` makes, from an earlier run where one left them under this ``name`` and ``key``."""
    home = folder()
    if home is None or key is None:
        return make()
    place = home / f"{name}.json"
    if _is_ours(place):
        digest, _, content = _read(place).partition(b"\n")
        if digest == _digest(key, content):
            return json.loads(content)
    made = make()
    _write(place, _digest(key, content := _content(made)) + b"\n" + content)
    return made


def key_of(*parts: str | None) -> str | None:
    """The key of what is made of these texts; a part that changes, moves or goes changes it. None where a part is not known."""
    digest = sha256()
    for part in parts:
        if part is None:
            return None
        text = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text))
        digest.update(text)
    return digest.hexdigest()


@cache
def version(*places: str) -> str | None:
    """A digest of our code in these modules and packages: what it makes of a file changes with it. None where it cannot be read."""
    files = [file for place in places for file in (sorted((_PACKAGE / place).rglob("*.py")) or [_PACKAGE / f"{place}.py"])]
    try:
        return key_of(*(file.read_text("utf-8") for file in files))
    except (OSError, UnicodeError):
        return None


def folder() -> Path | None:
    """Where this installation keeps what it made: in the folder for such things of the user's system; None where there is none."""
    home = Path(os.path.expanduser("~"))
    usual = {"darwin": home / "Library/Caches", "win32": Path(os.environ.get("LOCALAPPDATA", ""))}.get(
        sys.platform, home / ".cache"
    )
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    place = named if named.is_absolute() else usual
    own = sha256(os.fsencode(_PACKAGE)).hexdigest()[:12]
    return place / "strategist" / own if place.is_absolute() else None


def _content(made: Any) -> bytes:
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _digest(key: str, content: bytes) -> bytes:
    return sha256(key.encode() + b"\n" + content).hexdigest().encode()


def _is_ours(place: Path) -> bool:
    """Whether a regular file of this user's lies there."""
    try:
        status = place.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError:
        return b""


def _write(place: Path, content: bytes) -> None:
    """In one step, so that another process finds the old file or the new one; a place that cannot be written stays as it is."""
    if os.path.lexists(place) and not _is_ours(place):
        return
    with suppress(OSError, FileError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        outputs.write(place, content)
