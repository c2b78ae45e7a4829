"""A day on a GPU, in three commands (docs/gpu-day.md): python benchmarks/gpu_day.py prepare|first|grid|shadow|absorb FOLDER

``prepare`` needs no GPU: it plans, prices and simulates every case into FOLDER. ``first``, ``grid`` and ``shadow`` run the cases
on the device and write rows; ``absorb`` compares them with what was predicted, and keeps them under profiles/measurements.
"""

import argparse
import sys
import time
from pathlib import Path

from gpu.packages import reach

BEGIN = time.monotonic()
SESSIONS = {"first": 420, "grid": 540, "shadow": 420}
"""The commands of the day, and the seconds each may take."""


def main() -> None:
    """One line and exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare", help="every case planned, priced and simulated")
    preparing.add_argument("folder", type=Path)
    preparing.add_argument("--gpu", default="H200", help="the device's name, or cpu for a rehearsal (default: H200)")
    preparing.add_argument("--python", default="3.12", help="the device's Python, for packages (default: 3.12)")
    preparing.add_argument("--only", action="append", metavar="CASE", help="this case, for a second look (default: all)")
    preparing.add_argument("--no-wheels", action="store_true", help="the device's machine has all packages")
    for name, seconds in SESSIONS.items():
        session = commands.add_parser(name, help=f"run these cases, within {seconds} seconds")
        session.add_argument("folder", type=Path)
        session.add_argument("--out", type=Path, required=True, help="where the rows are written")
        session.add_argument("--seconds", type=float, default=seconds, help=f"end after so many (default: {seconds})")
        session.add_argument("--only", action="append", metavar="CASE", help="this case, done or not (default: all not done)")
    absorbing = commands.add_parser("absorb", help="errors of what was predicted; keeps the rows")
    absorbing.add_argument("folder", type=Path, help="with the rows of the sessions")
    absorbing.add_argument("--into", type=Path, help="default: profiles/measurements/<device>.jsonl")
    options = parser.parse_args()
    reach(options.folder)
    sys.exit(_done(options))


def _done(options: argparse.Namespace) -> str | None:
    """What is wrong, in one line. Imported here and not above: these need the packages that were reached just now."""
    from strategist.errors import StrategistError

    try:
        if options.command == "prepare":
            from gpu.prepare import prepare

            prepare(options.folder, options.gpu, options.only, None if options.no_wheels else options.python)
        elif options.command == "absorb":
            from gpu.absorb import absorb

            absorb(options.folder, options.into)
        else:
            from gpu.day import run

            run(options.command, options.folder, options.out, BEGIN + options.seconds - time.monotonic(), options.only)
    except (StrategistError, OSError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    main()
