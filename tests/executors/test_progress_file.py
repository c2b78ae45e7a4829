"""The progress file of a run is read up to its last complete line."""

from pathlib import Path

from strategist.executors.progress_file import PROGRESS_FILE, read_steps


def test_truncated_and_invalid_lines_are_skipped(tmp_path: Path) -> None:
    assert read_steps(tmp_path) == []
    (tmp_path / PROGRESS_FILE).write_text('{"step": 1}\n7\nnone\n{"step": 2}\n{"step": 3')
    assert read_steps(tmp_path) == [{"step": 1}, {"step": 2}]
    assert read_steps(tmp_path, last_bytes=25) == [{"step": 2}]
