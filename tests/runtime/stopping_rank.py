"""One rank of a trial; rank 1 stops itself when steps are measured; started by test_trial."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from strategist_runtime.__main__ import main


def stop_at(phase: Path, name: str) -> None:
    """Stops this process when the phase file contains ``name``."""
    while not phase.exists() or name not in phase.read_text(encoding="utf-8"):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        folder = Path(sys.argv[sys.argv.index("--out") + 1])
        threading.Thread(target=stop_at, args=(folder / "rank-1.phase", "measure"), daemon=True).start()
    main([argument for argument in sys.argv[1:] if argument != "strategist_runtime"])
