"""Figures read from log lines by patterns."""

import pytest

from strategist.programs.log_pattern import LINE_CHARACTERS, PatternError, pattern

TITAN = "step: {step} loss: {loss} ... memory: {peak_reserved_gib}GiB( ... tps: {tokens_per_second_per_device}"
MEGATRON = "iteration {step}/ ... elapsed time per iteration (ms): {step_milliseconds} | ... lm loss: {loss} |"
LINES = (
    (
        TITAN,
        "[rank0]: step: 12  loss:  8.12345  grad_norm:  1.5  memory: 12.50GiB(15.6%)  tps: 1,234,567  tflops: 3",
        {"step": 12.0, "loss": 8.12345, "peak_reserved_bytes": 12.5 * 2**30, "tokens_per_second_per_device": 1234567.0},
    ),
    (
        MEGATRON,
        " [2026-11-22 10:00:00.5] iteration        3/       5 | consumed samples:  24 | elapsed time per iteration (ms): 512.4 |"
        " learning rate: 1.0E-04 | lm loss: 1.076514E+01 | loss scale: 1.0 |",
        {"step": 3.0, "step_seconds": 0.5124, "loss": 10.76514},
    ),
    ("{{'loss': {loss}, ", "{'loss': 0.5, 'grad_norm': 1}", {"loss": 0.5}),
    ("{{'loss': '{loss}'", "{'loss': '5e-05', 'grad_norm': '1'}", {"loss": 5e-05}),
    ("took {step_seconds} s", "took .25s", {"step_seconds": 0.25}),
    ("a.b*c: {peak_memory_mb}", "a.b*c: 3", {"peak_memory_bytes": 3e6}),
)


@pytest.mark.parametrize(("text", "line", "figures"), LINES)
def test_figures_are_converted_to_base_units(text: str, line: str, figures: dict[str, float]) -> None:
    assert pattern(text).read(line) == pytest.approx(figures)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TITAN, "validate step: 12  loss:  8.1  tps: 5"),
        (TITAN, "step: twelve loss: 8.1 memory: 1GiB( tps: 5"),
        ("a.b: {loss}", "axb: 3"),
        ("took {step_seconds} s", "took 12 minutes"),
        ("loss: {loss}", "x" * LINE_CHARACTERS + "loss: 3"),
    ],
)
def test_other_lines_give_no_figures(text: str, line: str) -> None:
    assert pattern(text).read(line) is None


def test_nan_is_read_as_nan() -> None:
    found = pattern("loss: {loss}").read("loss: nan")
    assert found is not None
    assert found["loss"] != found["loss"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step: {stap}", r"unknown figure stap.*step"),
        ("{loss} {loss}", "needs the words"),
        ("a {loss} b {loss}", "loss stands twice"),
        ("a ... {loss}", "needs the words that stand before it"),
        ("a loss", "has no figure"),
        ("a {loss", "no partner"),
    ],
)
def test_invalid_patterns_raise_an_error(text: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        pattern(text)
