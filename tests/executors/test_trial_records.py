"""Records of a trial name the ranks killed by a signal, and not those terminated by their launcher."""

from pathlib import Path

from strategist.executors.trial_records import collect

REPORT = """W1125 api.py:1028] Sending process 31715 closing signal SIGTERM
Failures:
[1]:
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 31715)  (SIGKILL)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 31713)  (SIGKILL)
"""


def test_the_exit_code_of_a_rank_with_a_killed_supervisor_is_the_launchers(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text(REPORT)
    (tmp_path / "rank-0.exit").write_text("1 5.0")
    assert [end.exit_code for end in collect(tmp_path, 3)] == [1, -9, None]
