"""Quantities with units, parsed and formatted: ``24GiB``, ``25 GB/s``, ``1.5 s``.

Memory sizes are shown in binary units (GiB), data rates in decimal units (GB/s). Values are in bytes, bytes per second and seconds.
"""

import re
from collections.abc import Mapping
from math import isfinite

from strategist.errors import InputError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
}  # fmt: skip
RATES = {f"{name}/s": size for name, size in BYTES.items()}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "d": 86400.0, "h": 3600.0}
WATTS = {"W": 1.0, "kW": 1e3}
FLOPS = {"GFLOPS": 1e9, "TFLOPS": 1e12, "PFLOPS": 1e15}
COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
MAX_COUNT = 1e18
"""Largest accepted count; a larger one is a typing error."""

_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse_quantity(text: str, units: dict[str, float] | dict[str, int], name: str) -> float:
    """The number in ``text`` times its unit from ``units``; ``name`` is for the error.

    Raises:
        InputError: no number, a unit that is not in ``units``, or an infinite value.
    """
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2) if match else ""
    if match is None or unit not in units:
        example = next(reversed(units))
        raise InputError(f"{name} {text!r}", f"a number and one of {' '.join(units)} is needed", f"write e.g. 2{example}")
    if not isfinite(value := float(match.group(1)) * units[unit]):
        raise InputError(f"{name} {text!r}", "is not a finite number", "write a smaller one")
    return value


def parse_count(text: str, name: str) -> int:
    """The count in a text such as ``15T``, ``300B`` or ``2.5e9``.

    Raises:
        InputError: not a count from 1 to MOST.
    """
    match = _QUANTITY.fullmatch(text)
    scale = COUNTS.get(match[2].upper()) if match else None
    count = float(match[1]) * scale if match and scale else 0.0
    if not 1 <= count <= MAX_COUNT:
        raise InputError(f"{name} {text}", "is not a count from 1 to a million trillions", f"write e.g. {name} 300B or 15T")
    return round(count)


def parse_memory_bytes(text: str, name: str) -> int:
    """A memory size. Vendors write GB for GiB, so here ``24GB``, ``24GiB`` and ``24gb`` are the same size."""
    binary = {**BYTES, "KB": KIB, "MB": MIB, "GB": GIB, "TB": TIB, "G": GIB, "T": TIB}
    if text.strip().isdecimal():
        raise InputError(f"{name} {text.strip()}", "the unit is missing", f"did you mean {text.strip()}GiB? Else write e.g. 2T")
    spelled = {unit.lower(): unit for unit in binary}
    match = _QUANTITY.fullmatch(text)
    known = spelled.get(match[2].lower()) if match else None
    size = int(parse_quantity(f"{match[1]}{known}" if match and known else text, binary, name))
    if size <= 0:
        raise InputError(f"{name} {text!r}", "a memory size is positive", "write e.g. 512GiB")
    return size


def _in_units(value: float, units: Mapping[str, float], digits: str) -> str:
    """The value in the first of the units that is not larger than it; empty if all are."""
    return next((f"{value / size:{digits}}{name}" for name, size in units.items() if abs(value) >= size), "")


def show_bytes(size: float) -> str:
    """A size in bytes as text: ``25769803776`` as ``24.0 GiB``."""
    return _in_units(size, {" TiB": TIB, " GiB": GIB, " MiB": MIB, " KiB": KIB}, ".1f") or f"{size:.0f} B"


def show_seconds(seconds: float) -> str:
    """A time in seconds as text: ``0.0123`` as ``12.3 ms``."""
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return _in_units(seconds, {" s": 1.0, " ms": 1e-3}, ".3g") or f"{seconds * 1e6:.3g} us"


def show_days(seconds: float) -> str:
    """A time in seconds as text in days or years: ``864000`` as ``10 days``; below two days as ``show_seconds``."""
    days = seconds / 86400
    return show_seconds(seconds) if days < 2 else f"{days:,.1f} days" if days < 1000 else f"{days / 365.25:,.1f} years"


def show_energy(joules: float) -> str:
    """An energy in joules as text: ``7200000`` as ``2 kWh``; below a watt-hour in joules."""
    return _in_units(joules, {" GWh": 3.6e12, " MWh": 3.6e9, " kWh": 3.6e6, " Wh": 3.6e3}, ".3g") or f"{joules:.3g} J"


def show_money(dollars: float) -> str:
    """US dollars as text: ``1234.5`` as ``$1,234``; below $100 with three significant digits."""
    return f"${dollars:,.0f}" if dollars >= 100 else f"${dollars:.3g}"


def show_count(count: float) -> str:
    """A count as text: ``32763876352`` as ``32.8 B``."""
    return _in_units(count, {" T": 1e12, " B": 1e9, " M": 1e6, " k": 1e3}, ".1f") or f"{count:.0f}"
