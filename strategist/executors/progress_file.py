"""Progress file: one line of JSON per step, which rank 0 of a run appends while it trains."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRESS_FILE = "progress.jsonl"


def read_steps(folder: Path, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """Complete lines of a run's progress file: all, or those within its ``last_bytes``; empty if there is no file."""
    try:
        with (folder / PROGRESS_FILE).open("rb") as file:
            if last_bytes is not None:
                file.seek(max(0, file.seek(0, 2) - last_bytes))
            lines = file.read().rpartition(b"\n")[0].splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):  # the first line may be incomplete
            found.append(json.loads(line))
    return [step for step in found if isinstance(step, dict)]
