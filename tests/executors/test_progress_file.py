"""The progress file of a run is read as far as its lines are whole."""

from pathlib import Path

from strategist.executors.progress_file import PROGRESS_FILE, read_steps


def test_lines_that_are_cut_or_no_objects_are_left_out(tmp_path: Path) -> None:
    assert read_steps(tmp_path) == []
    (tmp_path / PROGRESS_FILE).write_text('{"step": 1}\n7\nnone\n{"step": 2}\n{"step": 3')
    assert read_steps(tmp_path) == [{"step": 1}, {"step": 2}]
    assert read_steps(tmp_path, last_bytes=25) == [{"step": 2}]
