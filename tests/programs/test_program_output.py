"""A program's output: figures read line by line and from its metrics file."""

import json
from typing import Any

import pytest

from strategist.programs.program_output import Reader, Reading


def reader(*lines: str, warmup_steps: int = 1, **more: Any) -> Reader:
    given = {"json": "", "fields": {}, **more}
    return Reader(
        Reading(
            lines=lines, warmup_steps=warmup_steps, out_of_memory=(), out_of_memory_exit_codes=(), environment={},
            tokens_per_step=4096, sequences_per_step=8, devices=4, **given,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "value", "seconds"),
    [
        ("step_seconds", 0.5, 0.5),
        ("step_milliseconds", 500, 0.5),
        ("steps_per_second", 2, 0.5),
        ("sequences_per_second", 16, 0.5),
        ("tokens_per_second", 8192, 0.5),
        ("tokens_per_second_per_device", 2048, 0.5),
    ],
)
def test_step_time_is_read_from_each_kind_of_figure(figure: str, value: float, seconds: float) -> None:
    found = reader(f"it: {{step}} x: {{{figure}}}")
    for step in range(3):
        found.line(f"it: {step} x: {value}", now=float(step))
    assert found.seconds() == ([seconds, seconds], False)


def test_without_a_time_figure_lines_are_timed() -> None:
    found = reader("step {step}", warmup_steps=2)
    for step, now in enumerate((10.0, 19.0, 20.0, 20.5, 21.0), start=1):
        found.line(f"step {step}", now)
    assert found.seconds() == ([1.0, 0.5, 0.5], True)


def test_repeated_lines_of_several_ranks_count_once() -> None:
    found = reader("step {step} took {step_seconds} s")
    for step in (1, 1, 2, 2):
        found.line(f"step {step} took {step}.0 s", 0.0)
    assert found.seconds() == ([2.0], False)


def test_without_step_numbers_a_repeated_figure_starts_the_next_step() -> None:
    found = reader("loss {loss}", "took {step_seconds}", warmup_steps=0)
    for number in (1, 2):
        found.line(f"loss {number}", 0.0)
        found.line(f"took 0.{number}", 0.0)
    assert found.losses == [1.0, 2.0]
    assert found.seconds() == ([0.1, 0.2], False)


def test_memory_is_the_maximum_of_its_lines_which_are_not_steps() -> None:
    found = reader("peak {peak_memory_mib} MiB", "step {step}")
    assert [found.line(f"peak {size} MiB", 0.0) for size in (3, 5, 4)] == [None] * 3
    assert found.peaks == {"peak_memory_bytes": 5 * 2**20}
    assert found.line("step 1", 0.0) is not None


FIELDS = {"step_seconds": "time.step", "loss": "loss", "peak_memory_gib": "memory.0.gib"}


@pytest.mark.parametrize(
    ("text", "seconds", "losses"),
    [
        (json.dumps({"time": {"step": [9.0, 1.0, 2.0]}, "loss": [3, 2, 1], "memory": [{"gib": 2}]}), [1.0, 2.0], [3, 2, 1]),
        (json.dumps({"time": {"step": 1.5}, "loss": 2, "memory": [{"gib": 2}]}, indent=2), [1.5], [2]),
        ("\n".join(json.dumps({"time": {"step": n}, "memory": [{"gib": n}]}) for n in (1, 2)), [2.0], []),
    ],
)
def test_a_json_metrics_file_is_read(text: str, seconds: list[float], losses: list[float]) -> None:
    found = reader(fields=FIELDS, json="metrics.json")
    found.document(text)
    assert found.seconds() == (seconds, False)
    assert found.losses == losses
    assert found.peaks == {"peak_memory_bytes": 2 * 2**30}


def test_a_zero_rate_gives_no_step_time() -> None:
    found = reader("step {step} tps {tokens_per_second}", warmup_steps=0)
    found.line("step 1 tps 0", 1.0)
    found.line("step nan tps 5", 2.0)
    assert found.seconds() == ([], True)
