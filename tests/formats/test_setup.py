"""What a file says is made whole for some devices."""

import pytest

from strategist.errors import InputError
from strategist.formats.finding_codes import finding
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.setup import GivenValues, Setup, setup
from strategist.formats.source import parse

SOURCE = parse("stage: 3\nbatch: 8\n", "x.yaml")


def made(found: ParsedConfig, gpus: str = "8xH100", workload: dict | None = None, settings: dict | None = None, **given) -> Setup:
    given = {"model": "8b", **given}
    return setup(SOURCE, found, GivenValues(gpus=gpus, workload=workload or {}, settings=settings or {}, **given))


def codes(found: Setup) -> list[str]:
    return [item.code for item in found.findings]


def test_the_spare_axis_takes_the_devices_that_no_other_has() -> None:
    layout = made(ParsedConfig(settings={"tp": 2}, spare="dp_shard")).candidate.layout
    assert (layout.tp, layout.dp_shard) == (2, 4)


def test_degrees_that_do_not_make_up_the_devices_stay_for_the_law_to_say() -> None:
    found = made(ParsedConfig(settings={"tp": 3}, spare="dp_shard"))
    broken = found.candidate.violations(found.situation.model, found.situation.request.workload, 8)
    assert "must equal the 8 devices" in broken[0]


def test_batches_that_follow_from_wrong_degrees_are_not_told() -> None:
    found = made(
        ParsedConfig(settings={"tp": 3, "micro_batch": 1}, workload={"global_batch": 101}, accumulation=4, spare="dp_shard")
    )
    broken = found.candidate.violations(found.situation.model, found.situation.request.workload, 8)
    assert "FMT-004" not in codes(found)
    assert not any("global_batch" in law for law in broken)


def test_a_subgroup_of_all_ranks_is_plain_resharding() -> None:
    hpz = "zero_optimization.zero_hpz_partition_size"
    group = {"reshard_after_forward": "subgroup", "reshard_group_size": 8}
    found = ParsedConfig(settings=group, spare="dp_shard", said={"reshard_group_size": hpz})
    for gpus, expected in (("8xH100", True), ("4xH100", True), ("2x8xH100", "subgroup")):
        setup_ = made(found, gpus)
        assert setup_.candidate.knobs.reshard_after_forward == expected
        assert ("FMT-002" in codes(setup_)) == (expected is True)


def test_a_value_that_is_given_is_open_no_longer() -> None:
    told = finding("FMT-011", "batch is $B", "", SOURCE, "batch")
    found = ParsedConfig(findings=(told,), said={"micro_batch": "batch"}, spare="dp_shard")
    assert "FMT-011" in codes(made(found))
    assert "FMT-011" not in codes(made(found, settings={"micro_batch": 2}))


def test_batches_follow_from_each_other() -> None:
    whole = {"global_batch": 64}
    for found, expected in (
        (ParsedConfig(settings={"micro_batch": 2}, accumulation=4, spare="dp_shard"), (2, 64)),
        (ParsedConfig(workload=whole, accumulation=4, spare="dp_shard"), (2, 64)),
        (ParsedConfig(workload=whole, spare="dp_shard"), (8, 64)),
        (ParsedConfig(workload=whole, settings={"micro_batch": 4}, spare="dp_shard"), (4, 64)),
    ):
        setup_ = made(found, workload={"seq_len": 2048})
        assert (setup_.candidate.knobs.micro_batch, setup_.situation.request.workload.global_batch) == expected
        assert not setup_.findings


def test_batches_that_contradict_each_other_are_an_error() -> None:
    found = made(ParsedConfig(workload={"global_batch": 60}, settings={"micro_batch": 2}, accumulation=4, spare="dp_shard"))
    assert "FMT-004" in codes(found)
    assert any(
        "8 data ranks x micro_batch 2 x accumulation 4 = 64, and global_batch is 60" in item.message for item in found.findings
    )


def test_what_is_assumed_is_told() -> None:
    found = made(ParsedConfig(spare="dp_shard"))
    assert [(item.code, item.do) for item in found.findings] == [("FMT-003", "give --seq-len"), ("FMT-003", "give --global-batch")]


def test_what_is_given_goes_before_the_file_and_is_told() -> None:
    found = ParsedConfig(settings={"micro_batch": 2}, spare="dp_shard", accumulation=1, said={"micro_batch": "batch"})
    given = made(found, workload={"seq_len": 2048}, settings={"micro_batch": 1})
    assert given.candidate.knobs.micro_batch == 1
    [difference] = given.findings
    assert (difference.code, difference.line) == ("FMT-008", 2)


def test_nobody_says_which_model() -> None:
    with pytest.raises(InputError, match="the file does not say which model"):
        made(ParsedConfig(), model=None)
