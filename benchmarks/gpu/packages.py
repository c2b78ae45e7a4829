"""The project and prepared packages where nothing can be installed; with the standard library alone."""

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def reach(folder: Path) -> None:
    """Has this process, and those that it starts, find the project and the wheels of a prepared folder, which are unpacked once."""
    site = folder.resolve() / "site"
    if not site.exists():
        for wheel in sorted((folder / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(site)
    places = [str(place) for place in (ROOT, ROOT / "runtime", ROOT / "benchmarks", site) if place.exists()]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
