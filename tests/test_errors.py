"""Errors name the nearest known names."""

import pytest

from strategist.errors import did_you_mean, not_among


@pytest.mark.parametrize(
    ("word", "known", "count", "hint"),
    [
        ("fsdp-01", ("FSDP-001", "TP-003"), 1, "did you mean FSDP-001?"),
        ("H101", ("h100", "h101x", "cpu"), 2, "did you mean h101x or h100?"),
        ("zzz", ("h100", "h200"), 2, ""),
    ],
)
def test_similar_names_are_suggested_in_any_case(word: str, known: tuple[str, ...], count: int, hint: str) -> None:
    assert did_you_mean(word, known, count=count) == hint


def test_a_choice_is_suggested_by_its_beginning() -> None:
    assert str(not_among("--fix pp_schedule=zbv", "zbv", ("gpipe", "zbv_zero_bubble"))) == (
        "--fix pp_schedule=zbv: is not known; did you mean zbv_zero_bubble? Else choose one of gpipe, zbv_zero_bubble"
    )
