"""Megatron-LM's arguments: imports of users' scripts, and our exports as Megatron-Core reads them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from formats.frameworks import INSTALLED, parsed
from formats.plans import a_plan, plans
from strategist import api
from strategist.cli.main import main
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.estimate import Fit
from strategist.contract.model import ModelShape
from strategist.errors import FileError
from strategist.formats.catalog import find_format, recognise
from strategist.formats.completed_config import GivenValues
from strategist.formats.config_reader import names, parse_config
from strategist.formats.megatron_lm import DEGREES, FSDP, SETTING_ENTRIES, UNPRICED_ENTRIES
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import parse
from strategist.profiles.models import find_preset

FORMAT = find_format("megatron-lm")

EXAMPLE = Path(__file__).parents[2] / "examples" / "formats" / "megatron-lm.sh"
YAML = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --bf16: true
  --sequence-parallel: false
  --recompute-granularity: full
  --recompute-method: uniform
  --recompute-num-layers: 1
  --overlap-grad-reduce: true
TEST_TYPE: regular
"""
SMALL = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --overlap-grad-reduce --micro-batch-size 2 --bf16"


def read(text: str, path: str = "train.sh") -> ParsedConfig:
    source = parse(text, path)
    assert recognise(source).name == "megatron-lm"
    return parse_config(source, FORMAT)


def codes(found: ParsedConfig) -> list[str]:
    return [item.code for item in found.findings]


def about(found: ParsedConfig, word: str) -> Diagnostic:
    return next(item for item in found.findings if word in item.message)


def test_a_script_with_arrays_and_variables_is_read() -> None:
    found = read(EXAMPLE.read_text(encoding="utf-8"))
    assert found.settings == {
        "tp": 2, "pp": 4, "cp": 1, "ep": 4, "etp": 1, "micro_batch": 1,
        "reshard_after_forward": False, "no_sync": True, "reduce_dtype": "fp32", "grouped_gemm": True,
        "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, "sequence_parallel": True, "loss_parallel": True,
        "recompute": "none",
    }  # fmt: skip
    assert found.workload == {"train": "full", "precision": "bf16", "seq_len": 4096, "global_batch": 256, "optimizer": "adamw"}
    assert (found.spare, found.devices) == ("dp_shard", 32)
    assert isinstance(found.model, ModelShape)
    preset = find_preset("mixtral-8x7b")
    assert preset is not None
    assert (found.model.name, found.model.parameters) == (preset.name, preset.parameters), "its vocabulary is the preset's"
    assert codes(found) == []


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLE), "--gpus", "4x8xH100"]) == 0
    assert "pp 4, dp_shard 4, tp 2, ep 4" in capsys.readouterr().out


def test_flags_in_a_yaml_file_are_read() -> None:
    found = read(YAML, "model_config.yaml")
    assert (found.settings["tp"], found.settings["recompute"], found.settings["sequence_parallel"]) == (2, "full", False)
    assert codes(found) == []


def test_etp_defaults_to_tp() -> None:
    assert read(f"{SMALL} --num-experts 8").settings["etp"] == 2
    assert read(f"{SMALL} --num-experts 8 --expert-tensor-parallel-size 1").settings["etp"] == 1


@pytest.mark.parametrize(
    ("flags", "reshards", "postpones", "spare"),
    [
        ("", None, True, "dp_replicate"),
        ("--use-distributed-optimizer", False, True, "dp_shard"),
        ("--use-megatron-fsdp", True, False, "dp_shard"),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", False, False, "dp_shard"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", False, True, "dp_shard"),
        ("--use-torch-fsdp2", True, False, "dp_shard"),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", False, False, "dp_shard"),
    ],
)
def test_data_parallel_sharding_flags_are_read(flags: str, reshards: bool | None, postpones: bool, spare: str) -> None:
    found = read(f"{SMALL} {flags}")
    assert found.settings.get("reshard_after_forward") is reshards
    assert (found.settings["no_sync"], found.spare) == (postpones, spare)


@pytest.mark.parametrize(
    ("flags", "recompute", "has_finding"),
    [
        ("--recompute-activations", "none", False),
        ("--recompute-granularity selective --recompute-modules core_attn", "none", False),
        ("--recompute-granularity selective --recompute-modules layernorm moe_act", "selective", True),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full", False),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 4", "full", True),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 32", "full", False),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 16", "every_second_layer", True),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", "none", True),
        ("--recompute-granularity full --recompute-method block --pipeline-model-parallel-size 8", "none", True),
        ("--recompute-granularity full --recompute-num-layers 1", "full", True),
    ],
)
def test_recomputation_flags_are_read(flags: str, recompute: str, has_finding: bool) -> None:
    model = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000"
    found = read(f"{SMALL} {model} {flags}")
    assert found.settings["recompute"] == recompute
    assert ("FMT-002" in codes(found)) is has_finding


def test_selective_recomputation_repeats_attention_only() -> None:
    shape = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000"
    flags = ("", "--recompute-activations", "--recompute-granularity selective", "--recompute-granularity full")
    repeats = [read(f"{SMALL} {shape} {each}").stack.get("recomputes_attention", False) for each in flags]
    assert repeats == [False, True, True, False]
    others = "--recompute-granularity selective --recompute-modules layernorm moe_act"
    assert not read(f"{SMALL} {shape} {others}").stack


def test_precision_and_optimizer_flags_are_read() -> None:
    found = read(f"{SMALL} --fp8-format hybrid --fp8-param-gather --grad-reduce-in-bf16 --optimizer-cpu-offload")
    expected = {"float8": "tensorwise", "float8_all_gather": True, "reduce_dtype": "bf16", "offload": "optimizer"}
    assert found.settings.items() >= expected.items()
    found = read(f"{SMALL} --fp8-format e4m3 --fp8-recipe mxfp8 --optimizer dist_muon")
    assert (found.settings["float8"], found.workload["optimizer"]) == ("rowwise", "muon")
    assert "blocks" in about(found, "fp8-recipe").message


def test_deepseek_v3_is_recognised_from_its_flags() -> None:
    found = read(
        f"{SMALL} --multi-latent-attention --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128"
        " --q-lora-rank 1536 --kv-lora-rank 512 --qk-layernorm --swiglu --normalization RMSNorm --disable-bias-linear"
        " --position-embedding-type rope --untie-embeddings-and-output-weights --num-experts 256 --moe-ffn-hidden-size 2048"
        " --moe-router-topk 8 --moe-shared-expert-intermediate-size 2048 --moe-layer-freq ([0]*3+[1]*58)"
        " --moe-router-score-function sigmoid --moe-router-num-groups 8 --moe-router-group-topk 4"
        " --moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias --moe-grouped-gemm"
    )
    assert isinstance(found.model, ModelShape)
    assert found.model.name == "deepseek-v3"
    assert found.settings["expert_balance"] == "bias"


def test_overlap_of_expert_exchanges_is_read_and_needs_interleaved_stages(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("pretrain_gpt.py", "pretrain_gpt.py --overlap-moe-expert-parallel-comm")
    path, priced = tmp_path / "train.sh", []
    for flags in (text, text.replace("--num-layers-per-virtual-pipeline-stage 4", "")):
        assert read(flags).settings["ep_overlap"] is True
        path.write_text(flags, encoding="utf-8")
        review = api.import_plan(path, GivenValues(gpus="4x8xH100"))
        priced.append(not any("ep_overlap needs a schedule that pairs passes" in item.message for item in review.findings))
    assert priced == [True, False]


def test_an_export_with_overlap_of_expert_exchanges_sets_its_flags_and_connections() -> None:
    plan = a_plan("megatron-lm", lambda plan: plan.candidate.layout.ep > 1)
    candidate = replace(plan.candidate, knobs=replace(plan.candidate.knobs, ep_overlap=True))
    text = FORMAT.write(replace(plan, candidate=candidate), {}).files[0].text
    assert "--overlap-moe-expert-parallel-comm" in text
    assert "--delay-wgrad-compute" in text
    assert "CUDA_DEVICE_MAX_CONNECTIONS=32" in text


def test_without_batch_flags_there_is_one_micro_batch() -> None:
    assert read(SMALL).accumulation == 1


def test_a_value_from_outside_the_script_is_assumed_with_a_finding() -> None:
    found = read(f"{SMALL} --pipeline-model-parallel-size $2")
    assert found.settings["pp"] == 1
    assert codes(found) == ["FMT-011"]


def test_a_value_known_only_at_run_time_leaves_the_verdict_open(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    for line, fix, expected in (
        ("TP=8; PP=1", {}, Fit.FITS),
        ("TP=8; PP=$2", {}, Fit.UNKNOWN),
        ("TP=8; PP=$2", {"pp": 1}, Fit.FITS),
        ("TP=8; PP=1; RECOMPUTE=$(cat kind)", {}, Fit.FITS),  # it could only need less
    ):
        flags = "--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} --recompute-granularity ${RECOMPUTE:-full}"
        file.write_text(f"{line}\n{SMALL} {flags} --overlap-grad-reduce --bf16 --use-distributed-optimizer\n")
        review = api.import_plan(file, GivenValues(gpus="8xH100", model="1b", settings=fix))
        assert (review.fit, "FMT-008" in [item.code for item in review.findings]) == (expected, False), line


@pytest.mark.parametrize(
    "script",
    [
        "{small} --tensor-model-parallel-size 4 --sequence-parallel\n{small}",
        "if [ $X ]; then {small} --tensor-model-parallel-size 4 --sequence-parallel\nelse\n{small}\nfi",
    ],
)
def test_earlier_commands_with_other_settings_leave_the_verdict_open(script: str, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    for text, expected in ((script, Fit.UNKNOWN), ("{small} --node-rank 1\n{small}", Fit.FITS)):
        file.write_text(text.format(small=SMALL))
        review = api.import_plan(file, GivenValues(gpus="8xH100", model="1b"))
        findings = [(item.line, item.message) for item in review.findings if item.code == "FMT-011"]
        assert review.fit is expected
        assert [line for line, _ in findings] == ([1] if expected is Fit.UNKNOWN else [])
        assert all("differ in sequence-parallel, tensor-model-parallel-size" in message for _, message in findings)
        assert review.plan is not None
        assert (review.plan.candidate.layout.tp, review.plan.candidate.knobs.sequence_parallel) == (2, False)


def test_unsupported_flags_are_findings() -> None:
    for flag in UNPRICED_ENTRIES:
        found = read(f"{SMALL} --{flag} 2")
        assert ("FMT-002", flag) in [(item.code, item.message.partition(":")[0]) for item in found.findings], flag


def test_missing_overlap_and_gathered_expert_tokens_are_findings() -> None:
    found = read("pretrain_gpt.py --tensor-model-parallel-size 2 --num-experts 8 --expert-model-parallel-size 4")
    assert [code for code in codes(found) if code == "FMT-002"] == ["FMT-002"] * 3


def test_a_misspelt_flag_gets_a_suggestion() -> None:
    found = read(f"{SMALL} --use-distributed-optimiser")
    assert codes(found) == ["FMT-001"]
    assert "did you mean use-distributed-optimizer" in str(found.findings[0])


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--micro-batch-size none-at-all", "a whole number from 1 on is needed"),
        ("--recompute-granularity some", "one of full, selective is needed"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy zero3", "one of no_shard, optim"),
        ("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-experts 4 --moe-layer-freq ([1]*3)", "for the 4 layers"),
        ("--num-layers 4 --hidden-size 64 --num-attention-heads 6 --group-query-attention --num-query-groups 4", "must divide"),
    ],
)
def test_invalid_values_are_refused_with_their_position(flags: str, text: str) -> None:
    with pytest.raises(FileError, match=re.escape(text)) as caught:
        read(f"#!/bin/bash\n{SMALL} \\\n{flags}\n")
    assert caught.value.line == 3


def test_all_flags_in_code_and_exports_are_known_flags() -> None:
    known = names(FORMAT.listed)
    assert {*SETTING_ENTRIES.values(), *DEGREES.values(), *FSDP, *UNPRICED_ENTRIES} <= {*known}
    written = FORMAT.write(a_plan("megatron-lm"), {}).files[0].text
    assert {word.partition("=")[0] for word in re.findall(r"^  --(\S+)", written, re.MULTILINE)} <= {*known}


def test_an_export_sets_cuda_connections_to_one_without_a_comment() -> None:
    text = FORMAT.write(a_plan("megatron-lm"), {"cuda_connections": "NCCL-004"}).files[0].text
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in text
    assert "cuda_connections" not in text


@pytest.mark.full
def test_megatron_core_reads_exported_plans_correctly(tmp_path: Path) -> None:
    tried = plans("megatron-lm", 6)
    paths = []
    for index, plan in enumerate(tried):
        path = tmp_path / f"{index}.sh"
        path.write_text(FORMAT.write(plan, {}).files[0].text, encoding="utf-8")
        paths.append(str(path))
    for plan, config in zip(tried, parsed("megatron_lm", paths), strict=True):
        layout, knobs, model = plan.candidate.layout, plan.candidate.knobs, plan.model
        degrees = {"tensor_model": layout.tp, "pipeline_model": layout.pp, "context": layout.cp, "expert_model": layout.ep}
        assert {name: config[f"{name}_parallel_size"] for name in degrees} == degrees
        assert config["sequence_parallel"] is knobs.sequence_parallel
        assert config["recompute_granularity"] == ("full" if knobs.recompute == "full" else None)
        assert config["fp8"] == ("hybrid" if knobs.float8 == "tensorwise" else None)
        sizes = (config["num_layers"], config["hidden_size"], config["num_query_groups"], config["ffn_hidden_size"])
        assert sizes == (model.layers, model.hidden_size, model.kv_heads, model.ffn_size)
        assert config["num_moe_experts"] == (model.moe.experts if model.moe else None)
        assert tuple(config["stage_layers"]) == plan.stage_layers
        assert (config["virtual_pipeline_model_parallel_size"] or 1) == (knobs.pp_virtual_stages if layout.pp > 1 else 1)
    assert any(len({*plan.stage_layers}) > 1 for plan in tried)


@pytest.mark.full
def test_flags_are_fields_of_megatron_cores_configuration() -> None:
    """Fields that are set by arguments have kept their names."""
    path = INSTALLED / "megatron_lm" / "megatron" / "core" / "transformer" / "transformer_config.py"
    if not path.exists():
        pytest.skip("megatron-lm is not installed: make frameworks")
    text = path.read_text(encoding="utf-8") + (path.parents[1] / "model_parallel_config.py").read_text(encoding="utf-8")
    fields = set(re.findall(r"^    (\w+): ", text, re.MULTILINE))
    for flag in (
        *DEGREES.values(),
        "sequence-parallel",
        "recompute-granularity",
        "recompute-method",
        "recompute-modules",
        "num-layers",
    ):
        assert flag.replace("-", "_") in fields


def test_the_old_recompute_flag_and_deepspeed_flags_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    flags = "--tensor-model-parallel-size 1 --micro-batch-size 1 --checkpoint-activations --deepspeed --zero-stage 1"
    path.write_text(f"srun --wait 60 torchrun pretrain_gpt.py {flags}\n", encoding="utf-8")
    found = api.import_plan(path, GivenValues(gpus="8xH100", model="8b", workload={}, settings={}))
    assert found.plan is not None
    assert found.plan.candidate.knobs.recompute == "full"
    told = {item.entry: item.code for item in found.findings}
    assert (told["checkpoint-activations"], told["deepspeed_config.zero_stage"]) == ("FMT-001", "FMT-002")
    assert "wait" not in told


def test_a_command_of_pretrain_gpt_is_recognised_without_parallel_flags() -> None:
    found = read("torchrun pretrain_gpt.py --num-layers 6 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 64 --bf16")
    assert found.settings["micro_batch"] == 64


def test_a_word_that_begins_with_text_holds_no_further_arguments() -> None:
    words = "torchrun pretrain_gpt.py $(hosts) root@$(host) --tensor-model-parallel-size 2 --micro-batch-size 1"
    entries = [item.entry for item in read(words).findings if item.code == "FMT-011"]
    assert entries == ["$(hosts)"]
