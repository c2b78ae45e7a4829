"""Seconds of docs/tutorial.md from a clean environment, as a newcomer has them: installing, then every command: python
benchmarks/tutorial.py"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"


def commands() -> list[str]:
    """What follows a prompt in the console blocks of the tutorial."""
    blocks = re.findall(r"^```console\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def seconds(command: str, folder: Path, environment: dict[str, str]) -> float:
    """Wall time of one line at a shell; what it says is shown only where it fails."""
    begin = perf_counter()
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout}")
    taken = perf_counter() - begin
    print(f"{taken:7.1f} s  {command}", flush=True)
    return taken


def main() -> None:
    """A new environment, an empty folder, and a home without anything in it but what pip keeps."""
    with tempfile.TemporaryDirectory() as name:
        place, work = Path(name), Path(name) / "work"
        work.mkdir()
        bare = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
        environment = bare | {"PATH": f"{place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        set_up = (
            f"{sys.executable} -m venv {place / 'venv'}",
            f"pip install -qq -c {ROOT / 'constraints.txt'} '{ROOT}[runtime]'",
        )
        installing = sum(seconds(command, work, environment) for command in set_up)
        using = sum(seconds(command, work, environment) for command in commands())
    minutes = (installing + using) / 60
    print(f"installing {installing:.0f} s, {len(commands())} commands {using:.0f} s, in all {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
