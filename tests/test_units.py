"""Parsing and formatting of quantities."""

import pytest

from strategist.errors import InputError
from strategist.units import (
    BYTES,
    RATES,
    parse_count,
    parse_memory_bytes,
    parse_quantity,
    show_bytes,
    show_count,
    show_days,
    show_energy,
    show_money,
    show_seconds,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("15T", 15 * 10**12),
        ("300B", 300 * 10**9),
        ("2.5m", 2_500_000),
        ("8 k", 8000),
        ("1e12", 10**12),
        ("7", 7),
        (".5B", 500_000_000),
    ],
)
def test_counts_are_parsed_with_suffixes(text: str, count: int) -> None:
    assert parse_count(text, "--tokens") == count


@pytest.mark.parametrize("text", ["", "T", "many", "-1T", "0", "0.2", "15TB", "1e30", "1e999", "nan", "inf", "1 2"])
def test_an_invalid_count_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"--tokens .*write e\.g\. --tokens 300B") as error:
        parse_count(text, "--tokens")
    assert "\n" not in str(error.value)


def test_sizes_are_decimal_in_rates_and_binary_in_memory() -> None:
    for power, unit in enumerate(("B", "KB", "MB", "GB", "TB")):
        assert parse_quantity(f"2{unit}/s", RATES, "rate") == 2 * 1000**power
        assert parse_quantity(f"2{unit}", BYTES, "size") == 2 * 1000**power
        assert parse_memory_bytes(f"2{unit}", "size") == parse_memory_bytes(f"2{unit.lower()}", "size") == 2 * 1024**power
    for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1):
        assert parse_quantity(f"2{unit}/s", RATES, "rate") == parse_memory_bytes(f"2 {unit}", "size") == 2 * 1024**power


def test_a_memory_size_without_a_unit_is_refused() -> None:
    with pytest.raises(InputError, match=r"--host-memory 24: the unit is missing; did you mean 24GiB"):
        parse_memory_bytes(" 24 ", "--host-memory")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (show_bytes(1023), "1023 B"),
        (show_bytes(2**10), "1.0 KiB"),
        (show_bytes(1.5 * 2**40), "1.5 TiB"),
        (show_seconds(5e-5), "50 us"),
        (show_seconds(0.0123), "12.3 ms"),
        (show_seconds(150), "2.5 min"),
        (show_seconds(7200), "2.0 h"),
        (show_count(999), "999"),
        (show_count(32763876352), "32.8 B"),
        (show_energy(0.5), "0.5 J"),
        (show_energy(7.2e6), "2 kWh"),
        (show_energy(1.56e12), "433 MWh"),
        (show_energy(4e12), "1.11 GWh"),
        (show_money(0.01234), "$0.0123"),
        (show_money(1234.5), "$1,234"),
        (show_days(60), "60 s"),
        (show_days(36 * 3600), "36.0 h"),
        (show_days(10 * 86400), "10.0 days"),
        (show_days(3652.5 * 86400), "10.0 years"),
    ],
)
def test_figures_are_formatted_briefly(shown: str, text: str) -> None:
    assert shown == text
