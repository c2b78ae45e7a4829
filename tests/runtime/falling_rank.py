"""A rank that fails as requested on its first start and succeeds on the second; started by test_launch."""

import os
import signal
import sys
from pathlib import Path

from strategist_runtime.rank_process import leave


def main(starts: Path, end: str) -> None:
    """Records the start in a file."""
    with starts.open("a", encoding="utf-8") as file:
        file.write("started\n")
    if len(starts.read_text(encoding="utf-8").splitlines()) == 1:
        if end == "exit":
            leave(1)
        os.kill(os.getpid(), signal.Signals[end])
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
