"""Outcome of a trial: the most severe class wins, consequences of another rank's failure do not count."""

from dataclasses import replace

import pytest

from strategist.contract.measurement import Measurement, Outcome, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.deadlines import Deadline, Ending
from strategist.executors.trial_outcome import judge
from strategist.executors.trial_records import RankEnd

SETTINGS = TrialSettings(steps=4)
ENDING = Ending(exit_code=0, deadline=None, ended=frozenset({0, 1}), straggler=0, wall_seconds=10.0, oom_kills=0)
FAILED = replace(ENDING, exit_code=1)
GOOD = RankRecord(
    rank=0, outcome=Outcome.OK, phase="done", step_seconds=(0.1, 0.2, 0.3, 0.4), peak_memory_bytes=9, profiled_step_seconds=0.4,
    communication_seconds=0.2, exposed_communication_seconds=0.1,
)  # fmt: skip
PEER_LOST = "RuntimeError: Connection closed by peer [127.0.0.1]"


def successful_rank(rank: int, **changes: object) -> RankEnd:
    record = replace(GOOD, rank=rank, **changes)
    return RankEnd(rank=rank, record=record, exit_code=0, ended_at=1.0, phase="done")


def recorded(rank: int, outcome: Outcome, message: str = "", ended_at: float = 1.0) -> RankEnd:
    record = RankRecord(rank=rank, outcome=outcome, phase="measure", message=message)
    return RankEnd(rank=rank, record=record, exit_code=1, ended_at=ended_at, phase="measure")


def rank_without_record(
    rank: int, code: int | None, ended_at: float | None = 1.0, phase: str = "measure", log_tail: str = ""
) -> RankEnd:
    return RankEnd(rank=rank, exit_code=code, ended_at=ended_at, phase=phase, log_tail=log_tail)


def verdict(plan: Plan, ending: Ending, *ends: RankEnd) -> Measurement:
    return judge(plan, SETTINGS, ending, ends, "the launcher's log")


WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 milliseconds"
"""Log line of NCCL's watchdog before it ends the process by SIGABRT."""


@pytest.mark.parametrize(
    ("first", "second", "outcome", "rank"),
    [
        (recorded(0, Outcome.OOM), recorded(1, Outcome.REFUSED), Outcome.REFUSED, 1),
        (recorded(0, Outcome.NAN), recorded(1, Outcome.OOM), Outcome.OOM, 1),
        (recorded(0, Outcome.CRASH, "ValueError"), recorded(1, Outcome.NAN), Outcome.NAN, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST), recorded(1, Outcome.OOM, ended_at=2.0), Outcome.OOM, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST), recorded(1, Outcome.CRASH, "ValueError", 2.0), Outcome.CRASH, 1),
        (recorded(0, Outcome.CANCELLED), rank_without_record(1, -11, 2.0), Outcome.CRASH, 1),
        (recorded(0, Outcome.CANCELLED), recorded(1, Outcome.CRASH, "ValueError", 2.0), Outcome.CRASH, 1),
        (recorded(0, Outcome.CRASH, "Timed out waiting 3000ms for recv"), recorded(1, Outcome.CANCELLED), Outcome.TIMEOUT, 0),
        (recorded(0, Outcome.CRASH, "Timed out waiting 3000ms"), recorded(1, Outcome.CRASH, "ValueError"), Outcome.CRASH, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST), recorded(1, Outcome.CRASH, PEER_LOST, 0.5), Outcome.CRASH, 1),
        (rank_without_record(0, -15), rank_without_record(1, -9), Outcome.CRASH, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST, 2.0), recorded(1, Outcome.CANCELLED), Outcome.INFRASTRUCTURE, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST, 2.0), rank_without_record(1, -15), Outcome.INFRASTRUCTURE, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST), recorded(1, Outcome.CANCELLED, ended_at=2.0), Outcome.CRASH, 0),
        (successful_rank(0), rank_without_record(1, 0), Outcome.BAD_MEASUREMENT, 1),
        (recorded(0, Outcome.CRASH, PEER_LOST), rank_without_record(1, 0), Outcome.CRASH, 1),
        (successful_rank(0), recorded(1, Outcome.OK), Outcome.BAD_MEASUREMENT, 1),
        (successful_rank(0), replace(successful_rank(0), rank=1), Outcome.BAD_MEASUREMENT, 1),
        (rank_without_record(0, -6, log_tail="what(): std::bad_alloc"), rank_without_record(1, -15), Outcome.OOM, 0),
        (rank_without_record(0, -6, log_tail=WATCHDOG), rank_without_record(1, -15), Outcome.TIMEOUT, 0),
        (rank_without_record(0, -15), rank_without_record(1, 77), Outcome.OOM, 1),
        (rank_without_record(0, 1, phase=""), rank_without_record(1, None), Outcome.INFRASTRUCTURE, 0),
    ],
)
def test_the_most_severe_outcome_wins_and_names_its_rank(plan: Plan, first: RankEnd, second: RankEnd, outcome: Outcome, rank: int):
    measurement = verdict(plan, FAILED, first, second)
    assert (measurement.outcome, measurement.evidence.rank) == (outcome, rank), measurement.evidence
    assert (measurement.step_seconds, measurement.wall_seconds) == (None, 10.0)


@pytest.mark.parametrize(("code", "lost"), [(-6, ()), (-11, (0,))])
def test_a_rank_that_aborts_keeps_its_device(plan: Plan, code: int, lost: tuple[int, ...]):
    assert verdict(plan, ENDING, rank_without_record(0, code), rank_without_record(1, -15)).lost_ranks == lost


def test_ranks_killed_by_the_executor_are_not_lost(plan: Plan):
    ending = replace(FAILED, deadline=Deadline.PEERS, ended=frozenset({0}))
    assert verdict(plan, ending, rank_without_record(0, -9), rank_without_record(1, -9)).lost_ranks == (0,)


def test_a_sigkill_is_out_of_memory_only_if_the_kernel_counts_an_oom_kill(plan: Plan):
    assert verdict(plan, FAILED, successful_rank(0), rank_without_record(1, -9)).outcome is Outcome.CRASH
    assert verdict(plan, replace(FAILED, oom_kills=1), successful_rank(0), rank_without_record(1, -9)).outcome is Outcome.OOM
    launcher = rank_without_record(1, 1, log_tail="exitcode  : -9 (pid: 7)\ntraceback : Signal 9 (SIGKILL) received by PID 7")
    assert verdict(plan, FAILED, successful_rank(0), launcher).outcome is Outcome.CRASH
    assert verdict(plan, replace(FAILED, oom_kills=1), successful_rank(0), launcher).outcome is Outcome.OOM


def test_a_kill_after_a_deadline_is_a_timeout(plan: Plan):
    hung = replace(FAILED, deadline=Deadline.STEP, ended=frozenset(), straggler=1, oom_kills=1)
    measurement = verdict(plan, hung, recorded(0, Outcome.CANCELLED, "ended by SIGTERM"), rank_without_record(1, -9))
    assert (measurement.outcome, measurement.evidence.rank) == (Outcome.TIMEOUT, 1)


def test_a_crash_before_the_deadline_explains_the_hang_of_the_peer(plan: Plan):
    hung = replace(FAILED, deadline=Deadline.STEP, ended=frozenset({1}), straggler=0)
    measurement = verdict(plan, hung, rank_without_record(0, None), recorded(1, Outcome.CRASH, "ValueError: bad"))
    assert (measurement.outcome, measurement.evidence.message) == (Outcome.CRASH, "ValueError: bad")


def test_a_launcher_killed_from_outside_is_infrastructure(plan: Plan):
    for code in (-9, 137):
        measurement = verdict(
            plan, replace(ENDING, exit_code=code), rank_without_record(0, None, None), rank_without_record(1, None, None)
        )
        assert measurement.outcome is Outcome.INFRASTRUCTURE
        assert "signal 9" in measurement.evidence.message


def test_a_launcher_that_never_started_a_rank_shows_its_own_log(plan: Plan):
    measurement = verdict(plan, FAILED, RankEnd(rank=0), RankEnd(rank=1))
    assert (measurement.outcome, measurement.evidence.rank) == (Outcome.INFRASTRUCTURE, None)
    assert measurement.evidence.log_tail == "the launcher's log"


def test_the_step_is_the_slowest_ranks_and_communication_the_mean(plan: Plan):
    slow = successful_rank(1, step_seconds=(0.2, 0.3, 0.4, 0.5), communication_seconds=0.4, exposed_communication_seconds=0.3)
    measurement = verdict(plan, ENDING, successful_rank(0), slow)
    assert measurement.outcome is Outcome.OK
    assert measurement.step_seconds == pytest.approx(0.35)
    assert measurement.step_seconds_spread == pytest.approx(0.24 / 0.35)
    assert (measurement.communication_seconds, measurement.exposed_communication_seconds) == pytest.approx((0.3, 0.2))
    assert (measurement.comm_ratio, measurement.exposed_comm_ratio) == pytest.approx((0.75, 0.5))


def test_losses_are_those_of_the_first_rank_with_losses(plan: Plan):
    assert verdict(plan, ENDING, successful_rank(0), successful_rank(1, losses=(2.0, 1.0))).losses == (2.0, 1.0)


def test_unprofiled_communication_is_left_out(plan: Plan):
    measurement = verdict(
        plan, ENDING, successful_rank(0), successful_rank(1, communication_seconds=None, exposed_communication_seconds=None)
    )
    assert (measurement.outcome, measurement.comm_ratio, measurement.exposed_comm_ratio) == (Outcome.OK, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_seconds": ()}, "0 steps were timed, not 4"),
        ({"step_seconds": (0.1, 0.1)}, "2 steps were timed, not 4"),
        ({"step_seconds": (0.1, 0.1, 0.0, 0.1)}, "a step of 0.0 s is impossible"),
        ({"step_seconds": (0.1, 0.1, -0.2, 0.1)}, "a step of -0.2 s is impossible"),
        ({"step_seconds": (100.0,) * 4}, "its steps add up to 400 s, the whole trial took 10 s"),
        ({"peak_memory_bytes": None}, "a peak memory of None bytes"),
        ({"peak_memory_bytes": 0}, "a peak memory of 0 bytes"),
        ({"profiled_step_seconds": 0.0}, "a profiled step of 0.0 s"),
        ({"communication_seconds": 0.5}, "0.5 s of communication do not fit"),
        ({"communication_seconds": -0.1}, "-0.1 s of communication do not fit"),
        ({"exposed_communication_seconds": 0.3}, "0.3 s of exposed communication do not fit"),
        ({"exposed_seconds_by_axis": {"tp": 0.1, "world": 0.1}}, "0.2 s of exposed communication by axis do not fit"),
        ({"compute_seconds": 0.5}, "0.5 s of computation do not fit"),
        ({"pipeline_waits": (0.3, 0.2)}, "0.5 s of waiting do not fit"),
        ({"profiled_step_seconds": None}, "do not fit in a step of None s"),
    ],
)
def test_impossible_figures_are_a_bad_measurement(plan: Plan, changes: dict[str, object], message: str):
    measurement = verdict(plan, ENDING, successful_rank(0), successful_rank(1, **changes))
    assert (measurement.outcome, measurement.evidence.rank) == (Outcome.BAD_MEASUREMENT, 1)
    assert message in measurement.evidence.message
    assert measurement.step_seconds is None
