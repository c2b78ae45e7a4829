"""Applies safe corrections to files: only the characters of a fix change; comments and order stay."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from strategist.cards.deck import card_files
from strategist.contract.diagnostic import Fix
from strategist.errors import FileError
from strategist.files import outputs
from strategist.files.yaml_file import parse
from strategist.frozen import frozen
from strategist.lint.run import lint_text

MAX_ROUNDS = 50
BOM = "\ufeff"


@frozen
class Repair:
    """A file before and after its corrections."""

    path: str
    before: str
    after: str
    fixes: int


def repairs(paths: Iterable[str | Path], codes: Collection[str]) -> Iterator[Repair]:
    """Repairs of files of cards and flows, for findings with these codes; nothing is written.

    Raises:
        FileError: a path does not exist, or cannot be read.
    """
    for path in map(Path, paths):
        for file in card_files(path) if path.is_dir() else [path]:
            try:
                before = file.read_bytes().decode()
            except UnicodeDecodeError:
                continue  # reported by a check
            except OSError as error:
                raise FileError(file, f"cannot be read: {error.strerror}; name another file") from None
            after, count = corrected(str(file), before.removeprefix(BOM), codes)
            if count:
                mark = BOM if before.startswith(BOM) else ""
                yield Repair(path=str(file), before=before, after=mark + after, fixes=count)


def corrected(path: str, text: str, codes: Collection[str]) -> tuple[str, int]:
    """The text with all corrections of these codes, and their number.

    Corrections that overlap, or that others make possible, are applied in further rounds.
    """
    count = 0
    for _ in range(MAX_ROUNDS):
        fixes = [finding.fix for finding in lint_text(path, text) if finding.fix and finding.code in codes]
        chosen = _disjoint_fixes(fixes)
        changed = applied(text, chosen)
        if not chosen or not _is_readable(path, changed):
            break
        text, count = changed, count + len(chosen)
    return text, count


def applied(text: str, fixes: Iterable[Fix]) -> str:
    """The text with the fixes applied; they must not touch each other."""
    for fix in sorted(fixes, key=lambda fix: fix.start, reverse=True):
        text = text[: fix.start] + fix.replacement + text[fix.end :]
    return text


def write(repair: Repair) -> None:
    """Replaces the file atomically: a concurrent reader sees the old file or the new one.

    Raises:
        FileError: the file no longer exists, or the folder cannot be written.
    """
    if not Path(repair.path).is_file():
        raise FileError(repair.path, "cannot be written: it no longer exists; name another file")
    outputs.write(repair.path, repair.after)


def _disjoint_fixes(fixes: Iterable[Fix]) -> list[Fix]:
    """Fixes that do not touch an earlier one; the rest is applied in the next round."""
    chosen: list[Fix] = []
    for fix in sorted(set(fixes), key=lambda fix: (fix.start, fix.end, fix.replacement)):
        if not chosen or fix.start > chosen[-1].end:
            chosen.append(fix)
    return chosen


def _is_readable(path: str, text: str) -> bool:
    try:
        parse(text, path)
    except FileError:
        return False
    return True
