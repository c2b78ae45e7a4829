"""History: plans with their measurements, one JSON object a line, in a readable file."""

import json
import os
from pathlib import Path
from typing import Any

from strategist.contract import codec, json_document
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.errors import FileError, StrategistError
from strategist.frozen import frozen


@frozen
class Record:
    """A plan and one measurement of it.

    trial: its number in a study; None outside of a study.
    proposed_by: its proposer in a study, such as ``card:FSDP-002/policy``.
    """

    plan: Plan
    measurement: Measurement
    trial: int | None = None
    proposed_by: str = ""


@frozen
class History:
    """The records of a file, and a finding for each invalid line."""

    records: tuple[Record, ...] = ()
    findings: tuple[Diagnostic, ...] = ()


def append(path: str | Path, plan: Plan, measurement: Measurement) -> None:
    """Adds a record in one write, on a new line even after an incomplete one.

    Raises:
        FileError: the file cannot be written.
    """
    record = codec.encode(Record(plan=plan, measurement=measurement))
    line = json.dumps({"version": codec.VERSION, **record}, ensure_ascii=False, separators=(",", ":")) + "\n"
    try:
        with Path(path).open("ab+", buffering=0) as file:
            content = line.encode("utf-8", "backslashreplace")  # a lone surrogate becomes its JSON escape
            file.write((b"" if _ends_with_newline(file) else b"\n") + content)
            os.fsync(file.fileno())
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}; choose another place") from None


def _ends_with_newline(file: Any) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def read(path: str | Path) -> History:
    """All records of a file. An invalid line is a finding, never an error.

    Raises:
        FileError: the file cannot be read at all.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}; name another file") from None
    records: list[Record] = []
    findings: list[Diagnostic] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_record(line))
        except (UnicodeDecodeError, json_document.NoJsonError):  # an interrupted write
            message = "the line is torn and is skipped: its writer was stopped"
            findings.append(_finding("HIST001", Level.WARNING, message, path, number))
        except StrategistError as error:
            findings.append(_finding("HIST002", Level.ERROR, f"the line holds no record and is skipped: {error}", path, number))
    return History(records=tuple(records), findings=tuple(findings))


def _record(line: bytes) -> Record:
    data = json_document.read(line.decode("utf-8"))
    if not isinstance(data, dict):
        raise codec.CodecError(f"a record is a JSON object, not {type(data).__name__}; remove the line")
    version = data.pop("version", None)
    if type(version) is not int or not 1 <= version <= codec.VERSION:
        raise codec.CodecError(f"version {version!r} is none that this strategist reads (1 to {codec.VERSION}); upgrade it")
    record: Record = codec.decode(Record, data, "record")
    return record


def _finding(code: str, level: Level, message: str, path: str | Path, line: int) -> Diagnostic:
    return Diagnostic(code=code, level=level, message=message, path=str(path), line=line)
