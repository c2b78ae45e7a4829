"""LLaMA-Factory's configurations: imports of users' files, and our exports as LLaMA-Factory reads them."""

import json
from pathlib import Path

import pytest
import yaml

from formats.frameworks import parsed
from formats.names import accepted, listed
from formats.plans import FEW, a_plan, plans
from strategist.cli.main import main
from strategist.errors import FileError
from strategist.formats.catalog import find_format, recognise
from strategist.formats.config_reader import parse_config
from strategist.formats.llama_factory import SETTING_ENTRIES, STAGES, UNPRICED_ENTRIES
from strategist.formats.memory_effects import LAUNCH_FILE
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import load, parse
from strategist.profiles.models import hub_name

FORMAT = find_format("llama-factory")
EXAMPLE = Path(__file__).parents[2] / "examples" / "formats" / "llama-factory.yaml"
FULL = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ntemplate: qwen\npacking: true\nbf16: true\n"
LORA = FULL.replace("full", "lora")


def read(text: str, name: str = "train.yaml") -> ParsedConfig:
    source = parse(text, name)
    assert recognise(source).name == "llama-factory"
    return parse_config(source, FORMAT)


def codes(found: ParsedConfig) -> list[str]:
    """Codes of findings about the file; findings about its launcher have their own test."""
    return [item.code for item in found.findings if item.entry != LAUNCH_FILE]


def test_defaults_are_those_of_llama_factory() -> None:
    found = read(FULL)
    assert found.settings == {
        "micro_batch": 8, "recompute": "full", "activation_offload": False, "compile": False, "no_sync": True,
        "reduce_dtype": "fp32",
    }  # fmt: skip
    assert found.workload == {"train": "full", "precision": "bf16", "seq_len": 2048, "optimizer": "adamw"}
    assert (found.model, found.spare, found.accumulation) == ("Qwen/Qwen2.5-7B", "dp_replicate", 1)
    assert codes(found) == []


def test_json_is_read_as_yaml_is() -> None:
    stated = {"model_name_or_path": "Qwen/Qwen3-8B", "stage": "sft", "finetuning_type": "lora", "per_device_train_batch_size": "2"}
    found = read(json.dumps(stated), "train.json")
    assert (found.workload["train"], found.settings["recompute"], found.settings["micro_batch"]) == ("lora", "full", 2)


@pytest.mark.parametrize(("sharding", "left"), [("", True), ("fsdp: full_shard\n", False), ("deepspeed: z3.json\n", False)])
def test_without_sharding_in_the_file_the_launcher_may_shard(sharding: str, left: bool) -> None:
    found = read(FULL + sharding)
    assert any(item.entry == LAUNCH_FILE for item in found.findings) == left
    assert (found.entry_names["dp_shard"] == LAUNCH_FILE) == left


def test_the_example_file_with_a_missing_deepspeed_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    found = parse_config(load(EXAMPLE), FORMAT)
    assert (found.settings["reshard_after_forward"], found.spare, found.workload["lora_rank"]) == (True, "dp_shard", 16)
    assert codes(found) == ["FMT-003"]
    assert main(["check", str(EXAMPLE), "--gpus", "8xH100"]) == 0
    assert "dp_shard 8" in capsys.readouterr().out


def test_a_referenced_deepspeed_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
    path = tmp_path / "runs" / "train.yaml"
    path.parent.mkdir()
    path.write_text(f"{FULL}deepspeed: z.json\n")
    settings = parse_config(load(path), FORMAT).settings
    assert (settings["reshard_after_forward"], settings["offload"]) == (False, "optimizer")


def test_an_inline_deepspeed_section_is_read_and_its_names_checked() -> None:
    found = read(f"{FULL}deepspeed:\n  zero_optimization:\n    stage: 1\n    stge: 1\n  bf16:\n    enabled: auto\n")
    assert (found.settings["no_sync"], found.settings["reshard_after_forward"]) == (True, False)
    assert codes(found) == ["FMT-001"]
    assert found.findings[0].line == 10


@pytest.mark.parametrize(
    ("name", "reshards", "offload"),
    [("ds_z0_config", None, "none"), ("ds_z2_offload_config", False, "optimizer"), ("ds_z3_offload_config", True, "all")],
)
def test_shipped_deepspeed_files_are_known_by_name(name: str, reshards: bool | None, offload: str) -> None:
    settings = read(f"{FULL}deepspeed: examples/deepspeed/{name}.json\n").settings
    assert (settings.get("reshard_after_forward"), settings["offload"]) == (reshards, offload)


def test_offloaded_parameters_and_states_are_pinned_alike() -> None:
    """DeepSpeed's default copies parameters from memory that is not page-locked."""
    offloading = [plan for plan in plans("llama-factory", FEW[0], FEW[1][:1]) if plan.candidate.knobs.offload == "all"]
    assert offloading
    for plan in offloading:
        zero = yaml.safe_load(FORMAT.write(plan, {}).files[0].text)["deepspeed"]["zero_optimization"]
        assert zero["offload_param"] == zero["offload_optimizer"]


def test_an_unknown_missing_deepspeed_file_is_assumed_to_be_zero2() -> None:
    found = read(f"{FULL}deepspeed: mine.json\n")
    assert (found.settings["reshard_after_forward"], codes(found)) == (False, ["FMT-011"])
    assert "mine.json is not found: ZeRO-2 is assumed" in found.findings[0].message


@pytest.mark.parametrize(
    ("fsdp", "reshards", "offload"),
    [("full_shard auto_wrap", True, "none"), ("[shard_grad_op, auto_wrap]", False, "none"), ("full_shard offload", True, "all")],
)
def test_fsdp_strategies_are_read(fsdp: str, reshards: bool, offload: str) -> None:
    found = read(f"{FULL}fsdp: {fsdp}\n")
    assert (found.settings["reshard_after_forward"], found.settings["offload"]) == (reshards, offload)
    assert found.spare == "dp_shard"


def test_flags_of_a_command_are_read_like_its_file() -> None:
    flags = "--stage sft --finetuning_type lora --lora_rank 32 --quantization_bit 4 --cutoff_len 512 --bf16 True --template x"
    found = read(f"llamafactory-cli train --model_name_or_path a/b --per_device_train_batch_size 4 {flags}\n", "train.sh")
    assert found.workload == {"train": "qlora", "precision": "bf16", "seq_len": 512, "optimizer": "adamw", "lora_rank": 32}


def test_lora_and_quantization_bits_are_read() -> None:
    assert read(f"{LORA}quantization_bit: 4\n").workload["train"] == "qlora"
    found = read(f"{LORA}quantization_bit: 8\n")
    assert (found.workload["train"], found.workload["lora_rank"], codes(found)) == ("lora", 8, ["FMT-002"])


def test_recomputation_and_activation_offload_are_read() -> None:
    assert read(f"{FULL}disable_gradient_checkpointing: true\n").settings["recompute"] == "none"
    assert read(f"{FULL}use_unsloth_gc: true\n").settings["activation_offload"] is True


def test_optimizers_are_read() -> None:
    for name, expected in (("adamw_bnb_8bit", "adamw8bit"), ("sgd", "sgd")):
        assert read(f"{FULL}optim: {name}\n").workload["optimizer"] == expected
    assert codes(read(f"{FULL}optim: lomo\n")) == ["FMT-002"]
    assert read(f"{FULL}use_muon: true\n").workload["optimizer"] == "muon"


def test_unsupported_entries_are_findings() -> None:
    for name, description in UNPRICED_ENTRIES.items():
        assert codes(read(f"{FULL}{name}: true\n")) == (["FMT-002"] if description else []), name
    for stage, description in STAGES.items():
        assert codes(read(FULL.replace("sft", stage))) == (["FMT-002"] if description else []), stage


def test_unpacked_samples_are_a_finding() -> None:
    assert codes(read(FULL.replace("packing: true\n", ""))) == ["FMT-003"]


def test_a_misspelt_name_gets_a_suggestion() -> None:
    found = read(f"{FULL}gradient_acumulation_steps: 4\n")
    assert codes(found) == ["FMT-001"]
    assert "did you mean gradient_accumulation_steps" in str(found.findings[-1])


@pytest.mark.parametrize("line", ["finetuning_type: some", "per_device_train_batch_size: many", "bf16: perhaps", "stage: sfft"])
def test_invalid_values_are_refused_with_their_position(line: str) -> None:
    name = line.partition(":")[0]
    text = "".join(f"{kept}\n" for kept in FULL.splitlines() if not kept.startswith(f"{name}:"))
    with pytest.raises(FileError, match=name) as caught:
        read(f"{text}{line}\n")
    assert caught.value.line == len(text.splitlines()) + 1


def test_presets_are_exported_with_their_hub_names() -> None:
    assert hub_name("llama3-8b") == "meta-llama/Meta-Llama-3-8B"
    assert hub_name("tiny") == "tiny"


@pytest.mark.full
def test_listed_names_equal_those_of_the_package() -> None:
    assert set(listed("llama_factory")) == set(accepted("llama_factory"))
    assert {*SETTING_ENTRIES.values(), *UNPRICED_ENTRIES} <= {*listed("llama_factory")}


def test_an_export_needs_no_list_of_datasets_beside_it() -> None:
    """With ONLINE a dataset is a name on the Hub or a folder; otherwise LLaMA-Factory opens dataset_dir/dataset_info.json."""
    plan = a_plan("llama-factory")
    text = FORMAT.write(plan, {}).with_inputs({"data": "mine/texts"}).files[0].text
    assert 'dataset: "mine/texts"\ndataset_dir: ONLINE\n' in text


@pytest.mark.full
def test_llama_factory_reads_exported_plans_correctly(tmp_path: Path) -> None:
    tried = [plan for plan in plans("llama-factory") if plan.candidate.layout.world_size == 8]
    paths = []
    for index, plan in enumerate(tried):
        path = tmp_path / f"{index}.yaml"
        path.write_text(FORMAT.write(plan, {}).files[0].text, encoding="utf-8")
        paths.append(str(path))
    for plan, settings in zip(tried, parsed("llama_factory", ["check", "8", *paths]), strict=True):
        knobs, workload = plan.candidate.knobs, plan.workload
        assert (settings["micro_batch"], settings["accumulation"]) == (knobs.micro_batch, plan.accumulation)
        assert (settings["bf16"], settings["fp16"]) == (workload.precision == "bf16", workload.precision == "fp16")
        assert (settings["finetuning_type"], settings["bits"]) == ("full" if workload.train == "full" else "lora", None)
        assert settings["recompute"] is (knobs.recompute == "full")
        assert settings["cutoff_len"] + settings["packing"] == workload.seq_len, "packing takes one off and adds it again"
        assert settings["datasets"] == [["hf_hub", "tatsu-lab/alpaca"]], "no dataset_info.json lies beside an export"
        both = ["offload_optimizer", "offload_param"]
        assert settings["offload"] == {"none": [], "optimizer": both[:1], "all": both}[knobs.offload]
        stage = 0 if plan.candidate.layout.dp_shard == 1 else 3 if knobs.reshard_after_forward else 2
        assert settings["stage"] in ((1, 2) if stage == 2 else (stage,))
