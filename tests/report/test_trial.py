"""A trial as text: measurement next to prediction, and failures."""

from dataclasses import fields, replace

import pytest

from strategist.cli.run import SECTIONS as RUN_SECTIONS
from strategist.contract.estimate import TimeParts
from strategist.contract.measurement import GLOO_NOTE, Evidence, Outcome
from strategist.contract.rank_observation import Moment, Traffic
from strategist.report.trial import OUTCOME_WORDS, SECTIONS, trial_report
from strategist.units import GIB
from tests.contract.samples import MEASUREMENT
from tests.report.samples import PLAN, rendered

OK = replace(
    MEASUREMENT, step_seconds=95.0, step_seconds_spread=0.03, tokens_per_second=2758.0, mfu=0.206, comm_ratio=None,
    peak_memory_bytes=(9 * GIB, 12 * GIB),
)  # fmt: skip
GATHERS = Traffic(axis="dp_shard", collective="all_gather", calls=9, message_bytes=4 * GIB, seconds=31.0, exposed_seconds=30.0)
CPU_PLAN = replace(PLAN, cluster=replace(PLAN.cluster, device=replace(PLAN.cluster.device, kind="cpu")))


def line(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.strip().startswith(name)).split()


def test_each_figure_is_next_to_its_prediction() -> None:
    text = rendered(trial_report(PLAN, OK))
    assert line(text, "step time") == ["step", "time", "47.5", "s", "95", "s", "2.00"]
    assert line(text, "tokens/s")[-3:] == ["5,516", "2,758", "0.50"]
    assert line(text, "peak memory allocated")[-3:] == ["12.0", "GiB", "0.68"]  # reserved memory is not measured here
    assert line(text, "comm ratio")[-2:] == ["-", "-"]
    assert "10 steps after warm-up, spread 3.0%" in text
    assert "5.5 -> 5.4" in text


def test_a_cpu_trial_has_a_note_on_its_comm_ratio() -> None:
    assert GLOO_NOTE[:40] in rendered(trial_report(CPU_PLAN, replace(OK, comm_ratio=0.3)))
    assert GLOO_NOTE[:40] not in rendered(trial_report(CPU_PLAN, OK))
    assert GLOO_NOTE[:40] not in rendered(trial_report(PLAN, OK))


def test_measured_parts_of_a_step_are_next_to_predicted_parts() -> None:
    seen = replace(
        OK, profiled_step_seconds=100.0, time={"matmul": 60.0, "dp_communication": 30.0, "bubble": 9.99, "other": 0.01},
        bubble_ratio_by_stage=(0.02, 0.18),
        traffic=(GATHERS,),
        peak_moments=(Moment(phase="forward"), Moment(phase="backward", module="layers.3")),
        peak_reserved_bytes=(10 * GIB, 13 * GIB),
    )  # fmt: skip
    assert tuple(SECTIONS) == RUN_SECTIONS
    text = rendered(trial_report(PLAN, seen, tuple(SECTIONS)))
    assert line(text, "DP communication")[-4:][-3:] == ["30", "s", "30%"]
    assert "none of these" not in text
    assert "first to last: 2.0%, 18%" in text
    assert line(text, "dp_shard")[1:] == ["all_gather", "9", "4.0", "GiB", "31", "s", "30", "s"]
    assert "rank 1 with 12.0 GiB allocated, in backward, at layers.3; the allocator reserved 13.0 GiB" in text.replace("\n", " ")


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_a_failure_names_rank_phase_and_message(outcome: Outcome) -> None:
    evidence = Evidence(message="rank 3 asked for 9 GiB", rank=3, phase="warm-up", log_tail="first\n[last] line")
    text = rendered(trial_report(PLAN, replace(OK, outcome=outcome, evidence=evidence)))
    assert OUTCOME_WORDS[outcome] in text.replace("\n", " ")
    assert "rank 3, phase warm-up" in text
    assert "rank 3 asked for 9 GiB" in text
    assert "[last] line" in text
    assert "predicted" not in text


def test_notes_and_reserved_memory_of_a_program_are_shown() -> None:
    measured = replace(OK, notes=("Steps are timed by its lines.",), peak_memory_bytes=(), peak_reserved_bytes=(3 * 2**30,))
    text = " ".join(rendered(trial_report(CPU_PLAN, measured)).split())
    assert "Steps are timed by its lines." in text
    assert "peak memory reserved" in text
    assert "3.0 GiB" in text
    assert "peak memory reserved" not in rendered(trial_report(CPU_PLAN, OK))


def test_a_run_fits_a_screen_with_every_part_of_its_time() -> None:
    time = {part.name: 1.0 for part in fields(TimeParts)} | {"data": 1.0, "other": 1.0, "world_communication": 1.0}
    seen = replace(OK, profiled_step_seconds=20.0, time=time, traffic=(GATHERS,) * 20, comm_ratio=0.3)
    text = rendered(trial_report(CPU_PLAN, seen), 80)
    assert len(text.splitlines()) <= 40 - 2  # two lines for the output folder follow
    assert "all_gather" not in text
    assert "all_gather" in rendered(trial_report(CPU_PLAN, seen, ("collectives",)), 80)
