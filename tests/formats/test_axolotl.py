"""Axolotl's configurations: imports of users' files, and our exports as Axolotl reads them."""

from pathlib import Path

import pytest

from formats.frameworks import parsed
from formats.names import accepted, listed
from formats.plans import plans
from strategist.cli.main import main
from strategist.errors import FileError
from strategist.formats.axolotl import SETTING_ENTRIES, UNPRICED_ENTRIES
from strategist.formats.catalog import find_format, recognise
from strategist.formats.config_reader import parse_config
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import load, parse

FORMAT = find_format("axolotl")
EXAMPLE = Path(__file__).parents[2] / "examples" / "formats" / "axolotl.yaml"
FULL = "base_model: Qwen/Qwen2.5-7B\nsequence_len: 4096\nsample_packing: true\nbf16: auto\n"
SHARDED = f"{FULL}fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
LORA = f"{FULL}adapter: lora\nlora_target_linear: true\n"


def read(text: str) -> ParsedConfig:
    source = parse(text, "train.yaml")
    assert recognise(source).name == "axolotl"
    return parse_config(source, FORMAT)


def codes(found: ParsedConfig) -> list[str]:
    return [item.code for item in found.findings]


def test_defaults_are_those_of_axolotl() -> None:
    found = read("base_model: Qwen/Qwen2.5-7B\ndatasets: []\nsample_packing: true\n")
    assert found.settings == {
        "micro_batch": 1, "tp": 1, "cp": 1, "compile": False, "recompute": "none", "activation_offload": False,
        "no_sync": True, "reduce_dtype": "bf16",
    }  # fmt: skip
    assert found.workload == {"train": "full", "precision": "bf16-true", "seq_len": 512, "optimizer": "adamw"}
    assert (found.model, found.spare, found.accumulation) == ("Qwen/Qwen2.5-7B", "dp_replicate", 1)
    assert codes(found) == []


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    found = parse_config(load(EXAMPLE), FORMAT)
    assert (found.workload["train"], found.workload["lora_rank"], found.spare) == ("qlora", 16, "dp_shard")
    assert (found.settings["reshard_after_forward"], found.settings["recompute"]) == (True, "full")
    assert codes(found) == []
    assert main(["check", str(EXAMPLE), "--gpus", "8x24GB"]) == 0
    assert "dp_shard 8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "precision", "reduced"),
    [
        (FULL, "bf16-true", "bf16"),
        (SHARDED, "bf16", "bf16"),
        (LORA, "bf16", "fp32"),
        (FULL.replace("auto", "false"), "fp32", "fp32"),
        (FULL.replace("auto", "null"), "fp32", "fp32"),
        (LORA.replace("bf16: auto\n", ""), "bf16", "fp32"),
        (LORA.replace("bf16: auto", "fp16: true"), "fp16", "fp32"),
    ],
)
def test_bf16_without_sharding_or_adapters_is_pure_bf16(text: str, precision: str, reduced: str) -> None:
    found = read(text)
    assert (found.workload["precision"], found.settings["reduce_dtype"]) == (precision, reduced)


def test_degrees_are_read() -> None:
    found = read(f"{SHARDED}dp_shard_size: 2\ndp_replicate_size: 2\ntensor_parallel_size: 4\ncontext_parallel_size: 2\n")
    assert {name: found.settings[name] for name in ("dp_shard", "dp_replicate", "tp", "cp")} == {
        "dp_shard": 2, "dp_replicate": 2, "tp": 4, "cp": 2,
    }  # fmt: skip
    assert found.spare == ""


def test_old_fsdp_names_are_read() -> None:
    old = (
        "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_offload_params: true\n"
    )
    found = read(FULL + old)
    assert (found.settings["reshard_after_forward"], found.settings["offload"], found.spare) == (False, "all", "dp_shard")
    assert codes(found) == []


def test_shipped_deepspeed_files_are_known_by_name() -> None:
    found = read(f"{FULL}deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json\n")
    assert (found.settings["offload"], found.workload["precision"], found.spare) == ("all", "bf16", "dp_shard")
    assert codes(found) == ["FMT-003"]


@pytest.mark.parametrize(
    ("line", "recompute", "moved"),
    [
        ("gradient_checkpointing: true", "full", False),
        ("gradient_checkpointing: offload", "full", True),
        ("gradient_checkpointing: true\nactivation_offloading: legacy", "full", True),
        ("gradient_checkpointing: false", "none", False),
    ],
)
def test_recomputation_and_activation_offload_are_read(line: str, recompute: str, moved: bool) -> None:
    settings = read(f"{FULL}{line}\n").settings
    assert (settings["recompute"], settings["activation_offload"]) == (recompute, moved)


def test_batch_size_is_the_global_batch() -> None:
    found = read(f"{FULL}batch_size: 64\n")
    assert (found.workload["global_batch"], found.accumulation) == (64, None)


def test_unsupported_entries_are_findings() -> None:
    for name in UNPRICED_ENTRIES:
        for value in ("2", "1", "true"):
            assert codes(read(f"{FULL}{name}: {value}\n")) == ["FMT-002"], name
        for value in ("0", "false", "null"):
            assert codes(read(f"{FULL}{name}: {value}\n")) == [], name
    assert codes(read(f"{FULL}expert_parallel_size: 2\n")) == ["FMT-002"]
    assert codes(read(f"{FULL}expert_parallel_size: 1\n")) == []
    assert codes(read(f"{FULL}plugins:\n  - axolotl.integrations.liger.LigerPlugin\n")) == ["FMT-002"]
    assert codes(read(f"{FULL}adapter: lora\nlora_target_modules: [q_proj, v_proj]\n")) == ["FMT-002"]
    assert codes(read(f"{FULL}optimizer: lion_8bit\n")) == ["FMT-002"]


def test_unpacked_samples_are_a_finding() -> None:
    assert codes(read(FULL.replace("sample_packing: true\n", ""))) == ["FMT-003"]


def test_a_misspelt_name_gets_a_suggestion() -> None:
    found = read(f"{FULL}gradient_acumulation_steps: 4\n")
    assert codes(found) == ["FMT-001"]
    assert "did you mean gradient_accumulation_steps" in str(found.findings[0])


@pytest.mark.parametrize("line", ["micro_batch_size: many", "bf16: perhaps", "gradient_checkpointing: often", "dp_shard_size: x"])
def test_invalid_values_are_refused_with_their_position(line: str) -> None:
    name = line.partition(":")[0]
    text = "".join(f"{kept}\n" for kept in SHARDED.splitlines() if not kept.startswith(f"{name}:"))
    with pytest.raises(FileError, match=name) as caught:
        read(f"{text}{line}\n")
    assert caught.value.line == len(text.splitlines()) + 1


@pytest.mark.full
def test_listed_names_equal_those_of_the_package() -> None:
    assert set(listed("axolotl")) == set(accepted("axolotl"))
    assert {*SETTING_ENTRIES.values(), *UNPRICED_ENTRIES} <= {*listed("axolotl")}


@pytest.mark.full
def test_axolotl_reads_exported_plans_correctly(tmp_path: Path) -> None:
    tried = plans("axolotl")
    without_ring = [plan for plan in tried if plan.candidate.layout.cp == 1]  # the ring's kernels need CUDA to be imported
    assert len(without_ring) > len(tried) / 2
    paths = []
    for index, plan in enumerate(without_ring):
        path = tmp_path / f"{index}.yaml"
        path.write_text(FORMAT.write(plan, {}).files[0].text, encoding="utf-8")
        paths.append(str(path))
    for plan, result in zip(without_ring, parsed("axolotl", ["check", *paths]), strict=True):
        layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
        assert (result["micro_batch_size"], result["gradient_accumulation_steps"]) == (knobs.micro_batch, plan.accumulation)
        assert (result["sequence_len"], result["tensor_parallel_size"]) == (workload.seq_len, layout.tp)
        assert (result["gradient_checkpointing"] is not False) == (knobs.recompute == "full")
        assert result["adapter"] == (None if workload.train == "full" else workload.train)
        if layout.fsdp_ranks > 1:
            assert (result["dp_shard_size"], result["dp_replicate_size"]) == (layout.dp_shard, layout.dp_replicate)
            assert result["fsdp_config"]["reshard_after_forward"] is knobs.reshard_after_forward
            assert result["fsdp_config"]["offload_params"] is (knobs.offload == "all")


def test_a_base_model_that_a_variable_hides_is_known_at_run_time_only() -> None:
    found = read(FULL.replace("Qwen/Qwen2.5-7B", "$MODELS/qwen"))
    assert (found.model, found.model_entries, found.unresolved) == (None, ("base_model",), ("base_model",))
