"""Location of the data shipped with strategist: beside the code in a checkout, inside the package in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(kind: str) -> Path:
    """Folder of shipped data of one kind: ``cards`` or ``profiles``.

    Raises:
        FileNotFoundError: the installation has no such folder.
    """
    for place in (_PACKAGE / "_data" / kind, _PACKAGE.parent / kind):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"strategist is installed without its {kind}: reinstall torch-strategist")
