"""Cache of parsed shipped files in the user's cache folder. It changes speed, never results.

Each name is one file. Its first line is a digest of key and content, its second line the content as JSON. A file that is damaged,
or made from other sources or by another version of the code, is therefore ignored, and replaced where the folder is writable. A
file of another user is not read. Without a cache folder, everything is parsed again each time.
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


def cached(name: str, key: str | None, compute: Callable[[], Any]) -> Any:
    """Plain data from the cache entry ``name`` if its ``key`` matches; else the result of ``compute``, which is then cached."""
    cache_folder = folder()
    if cache_folder is None or key is None:
        return compute()
    path = cache_folder / f"{name}.json"
    if _is_private(path):
        digest, _, content = _read(path).partition(b"\n")
        if digest == _digest(key, content):
            return json.loads(content)
    value = compute()
    _write(path, _digest(key, content := _content(value)) + b"\n" + content)
    return value


def key_of(*parts: str | None) -> str | None:
    """Cache key of a sequence of texts; any change of a part or of the order changes it. None where a part is None (unknown)."""
    digest = sha256()
    for part in parts:
        if part is None:
            return None
        text = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text))
        digest.update(text)
    return digest.hexdigest()


@cache
def version(*modules: str) -> str | None:
    """Digest of the source code of these modules and packages, because their result for a file depends on it.

    None where the code cannot be read.
    """
    files = [file for module in modules for file in (sorted((_PACKAGE / module).rglob("*.py")) or [_PACKAGE / f"{module}.py"])]
    try:
        return key_of(*(file.read_text("utf-8") for file in files))
    except (OSError, UnicodeError):
        return None


def folder() -> Path | None:
    """Cache folder of this installation, in XDG_CACHE_HOME or the system's cache folder; None where that is not an absolute
    path.
    """
    home = Path(os.path.expanduser("~"))
    default = {"darwin": home / "Library/Caches", "win32": Path(os.environ.get("LOCALAPPDATA", ""))}.get(
        sys.platform, home / ".cache"
    )
    xdg_folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache_folder = xdg_folder if xdg_folder.is_absolute() else default
    installation = sha256(os.fsencode(_PACKAGE)).hexdigest()[:12]
    return cache_folder / "strategist" / installation if cache_folder.is_absolute() else None


def _content(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _digest(key: str, content: bytes) -> bytes:
    return sha256(key.encode() + b"\n" + content).hexdigest().encode()


def _is_private(path: Path) -> bool:
    """Whether the path is a regular file of the current user."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    """Writes the entry atomically, so that another process sees the old file or the new one. Errors are ignored."""
    if os.path.lexists(path) and not _is_private(path):
        return
    with suppress(OSError, FileError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        outputs.write(path, content)
