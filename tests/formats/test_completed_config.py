"""Settings of a file are completed for given devices."""

from dataclasses import replace

import pytest

from strategist.errors import InputError
from strategist.formats.completed_config import GivenValues, Setup, setup
from strategist.formats.finding_codes import finding
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import parse

SOURCE = parse("stage: 3\nbatch: 8\n", "x.yaml")


def completed(
    found: ParsedConfig, gpus: str = "8xH100", workload: dict | None = None, settings: dict | None = None, **given
) -> Setup:
    given = {"model": "8b", **given}
    return setup(SOURCE, found, GivenValues(gpus=gpus, workload=workload or {}, settings=settings or {}, **given))


def codes(found: Setup) -> list[str]:
    return [item.code for item in found.findings]


def test_the_spare_axis_takes_the_remaining_devices() -> None:
    layout = completed(ParsedConfig(settings={"tp": 2}, spare="dp_shard")).candidate.layout
    assert (layout.tp, layout.dp_shard) == (2, 4)


def test_only_a_pipeline_reduces_its_gradients_after_the_last_micro_batch_without_being_asked() -> None:
    for settings, no_sync in (({"pp": 2}, True), ({"pp": 2, "no_sync": False}, False), ({}, False), ({"no_sync": True}, True)):
        found = completed(ParsedConfig(settings={"micro_batch": 1, **settings}, spare="dp_shard"))
        assert found.candidate.knobs.no_sync is no_sync, settings


def test_degrees_that_do_not_fill_the_devices_are_kept_and_reported() -> None:
    found = completed(ParsedConfig(settings={"tp": 3}, spare="dp_shard"))
    violations = found.candidate.violations(found.situation.model, found.situation.request.workload, 8)
    assert "must equal the 8 devices" in violations[0]


def test_batch_errors_caused_by_wrong_degrees_are_not_reported() -> None:
    found = completed(
        ParsedConfig(settings={"tp": 3, "micro_batch": 1}, workload={"global_batch": 101}, accumulation=4, spare="dp_shard")
    )
    violations = found.candidate.violations(found.situation.model, found.situation.request.workload, 8)
    assert "FMT-004" not in codes(found)
    assert not any("global_batch" in law for law in violations)


def test_a_reshard_group_of_all_ranks_is_full_resharding() -> None:
    hpz = "zero_optimization.zero_hpz_partition_size"
    group = {"reshard_after_forward": "subgroup", "reshard_group_size": 8}
    found = ParsedConfig(settings=group, spare="dp_shard", entry_names={"reshard_group_size": hpz})
    for gpus, expected in (("8xH100", True), ("4xH100", True), ("2x8xH100", "subgroup")):
        setup_ = completed(found, gpus)
        assert setup_.candidate.knobs.reshard_after_forward == expected
        assert ("FMT-002" in codes(setup_)) == (expected is True)


def test_a_given_value_settles_an_open_one() -> None:
    open_finding = finding("FMT-011", "batch is $B", "", SOURCE, "batch")
    found = ParsedConfig(findings=(open_finding,), entry_names={"micro_batch": "batch"}, spare="dp_shard")
    assert "FMT-011" in codes(completed(found))
    assert "FMT-011" not in codes(completed(found, settings={"micro_batch": 2}))


def test_micro_batch_and_global_batch_are_derived() -> None:
    whole = {"global_batch": 64}
    for found, expected in (
        (ParsedConfig(settings={"micro_batch": 2}, accumulation=4, spare="dp_shard"), (2, 64)),
        (ParsedConfig(workload=whole, accumulation=4, spare="dp_shard"), (2, 64)),
        (ParsedConfig(workload=whole, spare="dp_shard"), (8, 64)),
        (ParsedConfig(workload=whole, settings={"micro_batch": 4}, spare="dp_shard"), (4, 64)),
    ):
        setup_ = completed(found, workload={"seq_len": 2048})
        assert (setup_.candidate.knobs.micro_batch, setup_.situation.request.workload.global_batch) == expected
        assert not setup_.findings


def test_contradicting_batch_sizes_are_an_error() -> None:
    found = completed(ParsedConfig(workload={"global_batch": 60}, settings={"micro_batch": 2}, accumulation=4, spare="dp_shard"))
    assert "FMT-004" in codes(found)
    assert any(
        "8 data ranks x micro_batch 2 x accumulation 4 = 64, and global_batch is 60" in item.message for item in found.findings
    )


def test_assumed_values_are_findings() -> None:
    found = completed(ParsedConfig(spare="dp_shard", unstated=("recompute",)))
    assert [item.do.partition(",")[0] for item in found.findings] == [
        "give --seq-len 4096", "give --global-batch 8", "give --fix micro_batch=1", "give --fix recompute=none",
    ]  # fmt: skip
    assert found.assumed == ("seq_len", "global_batch", "micro_batch", "recompute")
    given = completed(
        ParsedConfig(spare="dp_shard", unstated=("recompute",)), workload={"seq_len": 2048}, settings={"recompute": "full"}
    )
    assert given.assumed == ("global_batch", "micro_batch")


def test_a_value_that_only_a_run_knows_is_assumed_until_it_is_given() -> None:
    found = ParsedConfig(
        spare="dp_shard", accumulation=1, workload={"seq_len": 2048}, settings={"micro_batch": 1},
        entry_names={"micro_batch": "batch"}, unresolved=("batch",),
    )  # fmt: skip
    assert completed(found).assumed == ("micro_batch",)
    assert completed(found, settings={"micro_batch": 1}).assumed == ()


def test_a_given_value_overrides_the_file_with_a_finding() -> None:
    found = ParsedConfig(settings={"micro_batch": 2}, spare="dp_shard", accumulation=1, entry_names={"micro_batch": "batch"})
    given = completed(found, workload={"seq_len": 2048}, settings={"micro_batch": 1})
    assert given.candidate.knobs.micro_batch == 1
    [difference] = given.findings
    assert (difference.code, difference.line) == ("FMT-008", 2)


def test_a_missing_model_is_an_error() -> None:
    with pytest.raises(InputError, match="the file does not say which model"):
        completed(ParsedConfig(), model=None)
    unresolved = ParsedConfig(model_entries=("num-layers", "hidden-size"), unresolved=("num-layers", "seq-length"))
    with pytest.raises(InputError, match="the file states it by num-layers, whose values are known only"):
        completed(unresolved, model=None)


def test_a_model_with_images_gets_a_finding_on_its_image_encoder() -> None:
    found = completed(ParsedConfig(settings={}, spare="dp_shard"), model="Qwen/Qwen2.5-VL-7B-Instruct")
    assert [item.entry for item in found.findings if item.code == "FMT-009"] == ["image encoder"]
    assert "FMT-009" not in codes(completed(ParsedConfig(settings={}, spare="dp_shard"), model="Qwen/Qwen2.5-7B-Instruct"))


def test_quantized_weights_of_the_model_decide_what_adapters_train_on() -> None:
    """4-bit weights of bitsandbytes are the base of QLoRA; other quantized weights have no price, so they get a finding."""
    lora = ParsedConfig(
        workload={"train": "lora"}, entry_names={"train": "adapter"}, spare="dp_shard",
        findings=(finding("FMT-011", "no argument states the bits of the base weights", "", SOURCE, "adapter"),),
    )  # fmt: skip
    stored = completed(lora, model="unsloth/Meta-Llama-3.1-8B-bnb-4bit")
    assert stored.situation.request.workload.train == "qlora"
    assert "FMT-011" not in codes(stored)
    assert any("LoRA on them is QLoRA" in item.message for item in stored.findings)
    for config, model in ((lora, "Qwen/Qwen3-8B-AWQ"), (ParsedConfig(spare="dp_shard"), "unsloth/Qwen3-14B-unsloth-bnb-4bit")):
        found = completed(config, model=model)
        assert found.situation.request.workload.train == config.workload.get("train", "full")
        assert "stored weights" in [item.entry for item in found.findings if item.code == "FMT-002"]


def test_a_compute_type_that_the_devices_lack_is_a_finding() -> None:
    stated = ParsedConfig(workload={"precision": "bf16"}, entry_names={"precision": "batch"}, spare="dp_shard")
    [warning] = [item for item in completed(stated, "8xV100").findings if item.entry == "compute type"]
    assert "does not multiply bf16" in warning.message
    assert warning.line == 2
    assert "compute type" not in [item.entry for item in completed(stated, "8xH100").findings]


def test_a_number_of_nodes_that_only_a_run_knows_does_not_contradict_the_given_devices() -> None:
    open_finding = finding("FMT-011", "nnodes is $NODES", "", SOURCE, about="nnodes")
    found = ParsedConfig(devices=8, unresolved=("nnodes",), findings=(open_finding,), spare="dp_shard")
    assert not {"FMT-008", "FMT-011"} & {*codes(completed(found, "2x8xH100"))}
    assert "FMT-008" in codes(completed(replace(found, unresolved=()), "2x8xH100"))
