"""Writer of output files that a user names: a regular file is replaced atomically, a device or pipe is written to directly."""

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strategist.errors import FileError

STANDARD_INPUT, STANDARD_OUTPUT = "/dev/stdin", "/dev/stdout"
"""Paths of the input and of the output that ``-`` stands for."""

MARKER_SEARCH_BYTES = 4096
"""Bytes at the start and at the end of a file that are searched for a marker."""


def write(
    path: str | Path, content: str | bytes, *, marker: str | None = None, force: bool = False, executable: bool = False
) -> None:
    """Writes ``content`` atomically; see :func:`replacement` for ``path``, ``marker`` and ``force``.

    Raises:
        FileError: the path cannot be written.
    """
    with replacement(path, marker=marker, force=force) as draft:
        # writes a lone surrogate as its JSON escape
        draft.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
        if executable:
            mode = draft.stat().st_mode
            draft.chmod(mode | (mode & 0o444) >> 2)


@contextmanager
def replacement(path: str | Path, *, marker: str | None = None, force: bool = False) -> Iterator[Path]:
    """Context manager: a draft file that replaces the file at ``path`` when the context ends without an error.

    Symbolic links are followed. Something else than a regular file, such as a pipe, is not replaced: the content is written to it.

    Args:
        marker: text at the start or end of files that may be replaced; empty: no file with content may be replaced. None: any
            regular file may.
        force: ignores ``marker``.

    Raises:
        FileError: the path cannot be written, or holds a file that may not be replaced.
    """
    target = Path(path)
    try:
        status = _status(target)
        if status is not None and (not stat.S_ISREG(status.st_mode) or _is_stdout(status)):
            from tempfile import TemporaryDirectory  # 3 ms with what it imports, for what is not a regular file

            with TemporaryDirectory() as folder:
                yield (draft := Path(folder, target.name))
                _write_through(target, draft)
            return
        resolved = _resolved(target)
        if status is not None and marker is not None and not force:
            _check_replaceable(target, status, marker)
        draft = resolved.with_name(f".{resolved.name[:200]}.{os.getpid()}-{threading.get_ident()}.draft")
        try:
            yield draft
            if status is not None:
                draft.chmod(stat.S_IMODE(resolved.stat().st_mode))
            draft.replace(resolved)
        finally:
            draft.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _write_error(path, error) from None


def check(path: str | Path, *, marker: str | None = None, force: bool = False) -> None:
    """Raises the FileError that :func:`replacement` would raise, before the content is computed."""
    target = Path(path)
    try:
        status = _status(target)
        if status is not None and marker is not None and not force:
            _check_replaceable(target, status, marker)
    except OSError as error:
        raise _write_error(path, error) from None


def make_folder(path: str | Path) -> None:
    """Creates a folder for outputs, if it does not exist.

    Raises:
        FileError: it cannot be created.
    """
    check_folder(path)
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _write_error(path, error) from None


def check_folder(path: str | Path) -> None:
    """Raises the FileError of :func:`make_folder` for a path that is not a folder, before the content is computed."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise FileError(path, "cannot be written: it is not a folder; name a folder")


def is_standard_output(path: str | Path | None) -> bool:
    """Whether the path is the same file as standard output."""
    try:
        return path is not None and _is_stdout(os.stat(path))
    except OSError:
        return False


def is_stream(path: str | Path) -> bool:
    """Whether the path is a device, a pipe or standard output, whose name does not imply a file format."""
    return is_standard_output(path) or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def _resolved(target: Path) -> Path:
    """Path of the file itself, with a symbolic link resolved."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def _status(target: Path) -> os.stat_result | None:
    """``stat`` of the path; None where a new file can be created.

    Raises:
        FileError: no output can be written there.
    """
    try:
        status = target.stat()
    except FileNotFoundError:
        folder = _resolved(target).parent
        if not folder.is_dir():
            raise FileError(target, f"cannot be written: there is no folder {folder}; make it, or choose another place") from None
        return None
    if stat.S_ISDIR(status.st_mode):
        raise FileError(target, "cannot be written: it is a folder; name a file in it")
    if stat.S_ISBLK(status.st_mode):
        raise FileError(target, "cannot be written: it is a block device, and its content would be lost; name a file")
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise FileError(target, "cannot be written: Permission denied; choose another place")
    return status


def _write_error(path: str | Path, error: OSError) -> FileError:
    return FileError(path, f"cannot be written: {error.strerror or error}; choose another place")


def _check_replaceable(target: Path, status: os.stat_result, marker: str) -> None:
    if not stat.S_ISREG(status.st_mode) or not status.st_size or _is_stdout(status):
        return
    with target.open("rb") as file:
        sample = file.read(MARKER_SEARCH_BYTES)
        file.seek(max(0, status.st_size - MARKER_SEARCH_BYTES))
        sample += file.read(MARKER_SEARCH_BYTES)
    if not marker or marker.encode() not in sample:
        origin = " and is not an earlier output" if marker else ""
        raise FileError(target, f"is there already{origin}; name another place, or replace it with --force")


def _is_stdout(status: os.stat_result) -> bool:
    try:
        return os.path.samestat(status, os.fstat(1))
    except OSError:  # standard output is closed
        return False


def _write_through(target: Path, draft: Path) -> None:
    """Copies the draft into the target, which is neither truncated nor replaced."""
    from shutil import copyfileobj

    to_stdout = is_standard_output(target)
    if to_stdout and sys.stdout is not None:
        sys.stdout.flush()
    output = os.dup(1) if to_stdout else os.open(target, os.O_WRONLY | os.O_NOCTTY)
    with draft.open("rb") as source, open(output, "wb") as stream:
        copyfileobj(source, stream)
