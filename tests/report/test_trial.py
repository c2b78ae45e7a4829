"""A measurement beside its prediction, and how a failure is told."""

from dataclasses import replace

import pytest

from strategist.contract.measurement import Evidence, Outcome
from strategist.report.trial import OUTCOME_WORDS, PLUMBING, trial_report
from strategist.units import GIB
from tests.contract.samples import MEASUREMENT
from tests.report.samples import PLAN, look

OK = replace(
    MEASUREMENT, step_seconds=95.0, step_seconds_spread=0.03, tokens_per_second=2758.0, mfu=0.206, comm_ratio=None,
    peak_memory_bytes=(9 * GIB, 12 * GIB),
)  # fmt: skip
CPU_PLAN = replace(PLAN, cluster=replace(PLAN.cluster, device=replace(PLAN.cluster.device, kind="cpu")))


def line(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.strip().startswith(name)).split()


def test_each_figure_stands_beside_its_prediction() -> None:
    text = look(trial_report(PLAN, OK))
    assert line(text, "step time") == ["step", "time", "47.5", "s", "95", "s", "2.00"]
    assert line(text, "tokens/s")[-3:] == ["5,516", "2,758", "0.50"]
    assert line(text, "peak memory allocated")[-3:] == ["12.0", "GiB", "0.68"]  # what the allocator reserves is not measured
    assert line(text, "comm ratio")[-2:] == ["-", "-"]
    assert "10 steps after warm-up, spread 3.0%" in text
    assert "5.5 -> 5.4" in text


def test_on_cpu_it_says_what_a_comm_ratio_is_worth() -> None:
    assert PLUMBING[:40] in look(trial_report(CPU_PLAN, OK))
    assert PLUMBING[:40] not in look(trial_report(PLAN, OK))


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_a_failure_names_rank_phase_and_message(outcome: Outcome) -> None:
    evidence = Evidence(message="rank 3 asked for 9 GiB", rank=3, phase="warm-up", log_tail="first\n[last] line")
    text = look(trial_report(PLAN, replace(OK, outcome=outcome, evidence=evidence)))
    assert OUTCOME_WORDS[outcome] in text.replace("\n", " ")
    assert "rank 3, phase warm-up" in text
    assert "rank 3 asked for 9 GiB" in text
    assert "[last] line" in text
    assert "predicted" not in text
