"""Tables that benchmarks write into pages."""

import sys
from pathlib import Path


def put(page: Path, name: str, table: str, target: str = "") -> None:
    """Replaces what stands between the two comments of that name, which say the Makefile's target, of that name too by default."""
    begin, end = f"<!-- {name}: made by `make {target or name}` -->", f"<!-- {name} ends -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{page} has no place for the table: {begin} ... {end}")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
