"""The server as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN = "correct-horse-battery-staple"
COMMAND = [sys.executable, "-m", "strategist.cli.main", "mcp"]


@contextmanager
def over_http(workspace: Path) -> Iterator[str]:
    """The address of a server that listens on a free port, and lets in who has ``TOKEN``."""
    command = [*COMMAND, "--workspace", str(workspace), "--http", "127.0.0.1:0"]
    environment = {**os.environ, "STRATEGIST_MCP_TOKEN": TOKEN}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            assert "serves http://127.0.0.1:" in line
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
