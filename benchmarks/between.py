"""Tables that benchmarks write into the README."""

import sys
from pathlib import Path


def put(readme: Path, name: str, table: str, target: str = "") -> None:
    """Replaces what stands between the two comments of that name, which say the Makefile's target, of that name too by default."""
    begin, end = f"<!-- {name}: made by `make {target or name}` -->", f"<!-- {name} ends -->"
    before, _, rest = readme.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{readme} has no place for the table: {begin} ... {end}")
    readme.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
