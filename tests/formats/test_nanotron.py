"""Nanotron's configurations: imports of users' files, and exports checked against its schema, since its parser cannot be
imported.
"""

from pathlib import Path

import pytest
import yaml

from formats.frameworks import parsed
from formats.names import accepted, listed
from formats.plans import plans
from strategist import api
from strategist.cli.main import main
from strategist.contract.model import ModelShape
from strategist.errors import FileError
from strategist.formats.catalog import find_format, recognise
from strategist.formats.completed_config import GivenValues
from strategist.formats.config_reader import parse_config
from strategist.formats.nanotron import SETTING_ENTRIES
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import parse
from strategist.profiles.models import find_preset

FORMAT = find_format("nanotron")
EXAMPLE = Path(__file__).parents[2] / "examples" / "formats" / "nanotron.yaml"
TEXT = EXAMPLE.read_text(encoding="utf-8")


def read(text: str) -> ParsedConfig:
    source = parse(text, "train.yaml")
    assert recognise(source).name == "nanotron"
    return parse_config(source, FORMAT)


def codes(found: ParsedConfig) -> list[str]:
    return [item.code for item in found.findings]


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    found = read(TEXT)
    assert found.settings == {
        "pp": 2, "tp": 2, "cp": 1, "ep": 1, "etp": 1, "dp_shard": 4, "dp_replicate": 1, "no_sync": True, "loss_parallel": True,
        "sequence_parallel": True, "pp_schedule": "1f1b", "recompute": "full", "micro_batch": 1, "reduce_dtype": "fp32",
        "reshard_after_forward": False,
    }  # fmt: skip
    assert found.workload == {"train": "full", "precision": "bf16", "optimizer": "adamw", "seq_len": 4096}
    assert (found.accumulation, found.devices, codes(found)) == (16, 16, [])
    preset = find_preset("llama3-8b")
    assert preset is not None
    assert isinstance(found.model, ModelShape)
    assert (found.model.name, found.model.parameters) == (preset.name, preset.parameters)
    assert main(["check", str(EXAMPLE), "--gpus", "2x8xH100"]) == 0
    assert "pp 2, dp_shard 4, tp 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "setting", "value"),
    [
        ("zero_stage: 1", "zero_stage: 0", "dp_replicate", 4),
        ("pp_engine: 1f1b", "pp_engine: afab", "pp_schedule", "gpipe"),
        ("tp_mode: REDUCE_SCATTER", "tp_mode: ALL_REDUCE", "sequence_parallel", False),
        ("recompute_layer: true", "recompute_layer: false", "recompute", "none"),
        ("accumulate_grad_in_fp32: true", "accumulate_grad_in_fp32: false", "reduce_dtype", "bf16"),
    ],
)
def test_config_entries_set_the_plans_settings(old: str, new: str, setting: str, value: object) -> None:
    assert read(TEXT.replace(old, new)).settings[setting] == value


def test_bf16_gradient_accumulation_means_pure_bf16() -> None:
    assert read(TEXT.replace("in_fp32: true", "in_fp32: false")).workload["precision"] == "bf16-true"


def test_experts_of_older_forks_are_read() -> None:
    found = read(
        TEXT.replace("    vocab_size: 128256\n", "    vocab_size: 128256\n    moe_num_experts: 4\n    num_experts_per_tok: 2\n")
    )
    assert isinstance(found.model, ModelShape)
    assert found.model.moe is not None
    assert (found.model.moe.experts, found.model.moe.experts_per_token) == (4, 2)


def test_experts_and_biases_are_read() -> None:
    text = TEXT.replace("    vocab_size: 128256\n", "    vocab_size: 128256\n    attention_bias: true\n    moe_config:\n"
                        "      num_experts: 8\n      top_k: 2\n      enable_shared_expert: true\n")  # fmt: skip
    found = read(text.replace("expert_parallel_size: 1", "expert_parallel_size: 2"))
    assert isinstance(found.model, ModelShape)
    assert found.model.moe is not None
    assert (found.model.moe.experts, found.model.moe.shared_experts, found.model.qkv_bias) == (8, 1, True)
    assert codes(found) == ["FMT-002"]


FOLDED = "expert_parallel_size: 2\n  expert_tensor_parallel_size: 1\n  expert_data_parallel_size: 4\n  enabled_moe: true"


@pytest.mark.parametrize(
    ("experts", "stage", "devices", "ranks"),
    [
        ("expert_parallel_size: 2", 1, 32, {"dp_shard": 8, "dp_replicate": 1}),
        ("expert_parallel_size: 2", 0, 32, {"dp_shard": 2, "dp_replicate": 4}),
        (FOLDED, 1, 16, {"dp_shard": 4, "dp_replicate": 1}),
        (FOLDED, 0, 16, {"dp_shard": 2, "dp_replicate": 2}),
    ],
)
def test_ranks_of_experts_break_no_law(experts: str, stage: int, devices: int, ranks: dict[str, int], tmp_path: Path) -> None:
    text = TEXT.replace("    vocab_size: 128256\n", "    vocab_size: 128256\n    moe_config: {num_experts: 8, top_k: 2}\n")
    text = text.replace("expert_parallel_size: 1", experts).replace("zero_stage: 1", f"zero_stage: {stage}")
    found = read(text)
    assert found.devices == devices
    assert ranks.items() <= found.settings.items()
    (tmp_path / "train.yaml").write_text(text)
    review = api.import_plan(tmp_path / "train.yaml", GivenValues(gpus=f"{devices // 8}x8xH200"))
    assert review.plan is not None
    assert "FMT-004" not in [finding.code for finding in review.findings]


def test_a_misspelt_name_gets_a_suggestion() -> None:
    found = read(TEXT.replace("batch_accumulation_per_replica", "batch_acumulation_per_replica"))
    assert codes(found) == ["FMT-001"]
    assert "did you mean tokens.batch_accumulation_per_replica" in str(found.findings[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [("zero_stage: 1", "zero_stage: 3"), ("tp: 2", "tp: two"), ("1f1b", "interleaved"), ("bfloat16", "int8"),
     ("num_key_value_heads: 8", "num_key_value_heads: 7")],
)  # fmt: skip
def test_invalid_values_are_refused_with_their_position(old: str, new: str) -> None:
    with pytest.raises(FileError) as caught:
        read(TEXT.replace(old, new))
    assert caught.value.line


@pytest.mark.full
def test_listed_names_include_those_of_the_package() -> None:
    assert set(accepted("nanotron")) <= {*listed("nanotron")}
    assert {*SETTING_ENTRIES.values()} <= {*listed("nanotron")}


@pytest.mark.full
def test_exports_follow_nanotrons_schema(tmp_path: Path) -> None:
    tried, paths = plans("nanotron"), []
    for index, plan in enumerate(tried):
        path = tmp_path / f"{index}.yaml"
        path.write_text(FORMAT.write(plan, {}).files[0].text, encoding="utf-8")
        paths.append(str(path))
        assert codes(read(path.read_text(encoding="utf-8"))) == []
        degrees, layout = yaml.safe_load(path.read_text(encoding="utf-8"))["parallelism"], plan.candidate.layout
        assert (degrees["dp"], degrees["pp"], degrees["tp"]) == (layout.data_ranks, layout.pp, layout.tp)
    needed = parsed("nanotron", ["check", *paths])
    older = {"data.seed", "data.dataset"} | {
        f"optimizer.{name}" for name in ("adam_eps", "adam_beta1", "adam_beta2", "torch_adam_is_fused")
    }
    assert all(set(names) <= older for names in needed), "required by the package of 0.4 only"
