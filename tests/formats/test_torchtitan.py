"""TorchTitan: exported plans as TorchTitan reads them, and imports of shipped and users' configurations."""

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.described import codes, described, setting
from formats.frameworks import INSTALLED, parsed
from formats.plans import a_plan, plans
from formats.torchtitan_data import TABLE, accepted, relevant, shipped, table
from strategist import api
from strategist.cli.main import main
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError
from strategist.executors.command import CommandExecutor
from strategist.formats.catalog import find_format, recognise
from strategist.formats.completed_config import GivenValues, Setup, setup
from strategist.formats.config_reader import names, read
from strategist.formats.source import load, parse
from strategist.formats.torchtitan import STEP_TOKENS, TOKENS
from strategist.formats.torchtitan_entries import NOTE, normalized
from strategist.formats.torchtitan_models import PRESETS, base_of
from strategist.profiles.models import find_preset
from strategist.programs.backends import find_program

TRAIN = "torchtitan.train"
RESHARDS = {True: ("default", "always"), False: ("never",)}
POLICIES = {"none": "none", "selective": "selective", "full": "full", "budget": "memory-budget"}
TYPES = {"bf16": ("float32", "bfloat16"), "fp32": ("float32", "float32"), "bf16-true": ("bfloat16", "bfloat16")}


def found_in(path: Path | str, gpus: str = "16x8xH100", model: str | None = None, **given: Any) -> Setup:
    return described(path, GivenValues(gpus=gpus, model=model, workload=given, settings={}))


def priced(path: Path | str, gpus: str) -> Plan:
    """The plan of a file."""
    plan = api.import_plan(path, GivenValues(gpus=gpus)).plan
    assert plan is not None
    return plan


def written(folder: Path, text: str, name: str = "config.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def expected_settings(plan: Plan) -> dict[str, Any]:
    """The settings that TorchTitan must read from a plan."""
    layout, knobs, options, workload = plan.candidate.layout, plan.candidate.knobs, plan.candidate.options, plan.workload
    pipeline = layout.pp > 1
    found: dict[str, Any] = {name: getattr(layout, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")}
    found |= {
        "training.local_batch_size": knobs.micro_batch * (plan.accumulation if pipeline else 1),
        "training.global_batch_size": workload.global_batch,
        "training.seq_len": workload.seq_len,
        "training.enable_cpu_offload": knobs.offload == "all",
        "training.disable_cuda_graphs": True,
        "training.dtype": TYPES[workload.precision][0],
        "training.mixed_precision_param": TYPES[workload.precision][1],
        "activation_checkpoint": POLICIES[knobs.recompute],
        "compile.enable": knobs.compile,
        "compile.components": ["model", "loss"],
        "compile.enable_async_tensor_parallel": options.async_tp,
        "optimizer.implementation": "for-loop" if options.optimizer_kernel == "for_loop" else options.optimizer_kernel,
    }
    if knobs.recompute == "budget":
        found["activation_checkpoint.memory_budget"] = knobs.recompute_budget_percent / 100
    if layout.tp > 1:
        found["parallelism.enable_sequence_parallel"] = knobs.sequence_parallel
    if layout.cp > 1:
        found["parallelism.context_parallel_load_balancer"] = {"head_tail": "headtail", "none": None}[options.cp_load_balance]
    if pipeline:
        found |= {"parallelism.pipeline_parallel_microbatch_size": knobs.micro_batch}
        found |= {f"parallelism.pipeline_parallel_{end}_stage_less_layers": 0 for end in ("first", "last")}
    if layout.fsdp_ranks > 1:
        found["parallelism.fsdp_reshard_after_forward"] = RESHARDS[knobs.reshard_after_forward is True][options.reshard_root]
    return found


@pytest.mark.full
def test_torchtitan_reads_exported_modules_and_program_commands_correctly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODULE", "torchtitan.models.llama3")
    monkeypatch.setenv("CONFIG", "llama3_8b")
    program = find_program("torchtitan")
    assert program is not None
    commands: list[tuple[list[str], int, str]] = []
    tried = plans("torchtitan")
    for index, plan in enumerate(tried):
        folder = tmp_path / str(index)
        api.write_files(find_format("torchtitan").write(plan, {}), folder)
        commands.append((["--module", "titan_plan", "--config", "plan"], plan.cluster.devices, str(folder)))
    for plan in tried[::3]:
        words = CommandExecutor(program=program).command(plan, tmp_path, TrialSettings())
        commands.append((list(words[words.index(TRAIN) + 1 :]), plan.cluster.devices, str(tmp_path)))
    listed = written(tmp_path, json.dumps(commands), "commands.json")
    found = parsed("torchtitan", ["commands", str(listed)])
    assert len(found) == len(commands) > 60
    assert any(plan.candidate.layout.pp > 1 for plan in tried)
    for plan, understood in zip([*tried, *tried[::3]], found, strict=True):
        wanted = expected_settings(plan)
        assert {name: understood.get(name) for name in wanted} == wanted, plan.candidate
    for plan, understood in zip(tried, found, strict=False):
        assert understood["shape"] == [plan.model.layers, plan.model.hidden_size, plan.model.vocab_size]


@pytest.mark.full
def test_torchtitan_data_equal_the_installed_package() -> None:
    """Names, registered configurations, and the shapes of models with a preset."""
    assert names("torchtitan") == accepted()
    assert json.loads(TABLE.read_text(encoding="utf-8")) == table()
    shapes = parsed("torchtitan", ["shapes"])
    shapes["kimi_k2_5"] = shapes.pop("kimi_k2_7")
    compared = 0
    for family in set(PRESETS) & set(shapes):
        for flavour, name in PRESETS[family].items():
            preset = find_preset(name)
            assert preset is not None
            assert shapes[family][flavour] == [preset.layers, preset.hidden_size, preset.vocab_size], name
            compared += 1
    assert compared > 15


def registered() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Module, file, function and settings of each shipped configuration."""
    root = INSTALLED / "torchtitan"
    for module, functions in shipped()["configurations"].items():
        place = module.replace(".", "/")
        files = [root / "torchtitan" / kind / place / "config_registry.py" for kind in ("models", "experiments")]
        path = next(file for file in (*files, root / f"{place}.py") if file.is_file())
        for function, entries in functions.items():
            yield module, str(path), function, entries


@pytest.mark.full
def test_shipped_configurations_are_read_like_torchtitan_does() -> None:
    usual = {name: "none" if value is None else value for name, value in shipped()["usual"].items()}
    compared = 0
    for module, path, function, entries in registered():
        source = normalized(load(f"{path}:{function}"))
        assert not [name for name in source.entries if name.startswith(NOTE)], function
        ours = {name: entry.value for name, entry in source.entries.items()}
        theirs = {name: "none" if value is None else value for name, value in entries.items()}
        if not ours["optimizer.name"]:  # taken from another configuration's groups
            ours["optimizer.name"] = theirs["optimizer.name"]
        assert relevant(ours, usual) == relevant(theirs, usual), (module, function)
        compared += 1
    assert compared > 150


@pytest.mark.full
def test_shipped_configurations_give_a_plan_or_findings() -> None:
    """No configuration has an unknown name. A MoE model replaces models without a preset, since all layouts support it."""
    legal = 0
    for index, (_, path, function, entries) in enumerate(registered()):
        model = None if find_preset_of(entries) else "qwen3-30b-a3b"
        source, _, found = read(f"{path}:{function}")
        made = setup(source, found, GivenValues(gpus="8xH100", model=model, workload={}, settings={}))
        candidate, workload = made.candidate, made.situation.request.workload
        assert "FMT-001" not in {item.code for item in made.findings}, made.findings
        assert workload.seq_len == entries["training.seq_len"]
        assert candidate.layout.tp == entries["parallelism.tensor_parallel_degree"]
        assert POLICIES[candidate.knobs.recompute] == entries["activation_checkpoint"]
        broken = candidate.violations(made.situation.model, workload, 8)
        legal += not broken
        if index % 8 == 0:
            given = GivenValues(gpus="8xH100", model=model)
            assert (api.import_plan(f"{path}:{function}", given).plan is None) is bool(broken)
    assert legal > 100


def find_preset_of(entries: dict[str, Any]) -> str | None:
    return PRESETS.get(entries.get("model.name", ""), {}).get(entries.get("model.flavor", ""))


@pytest.mark.parametrize(("module", "function"), [("llama3", "llama3_8b"), ("llama3", "llama3_405b"), ("gpt_oss", "gpt_oss_20b")])
@pytest.mark.full
def test_shipped_configurations_can_be_checked(module: str, function: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = INSTALLED / "torchtitan" / "torchtitan" / "models" / module / "config_registry.py"
    if not path.exists():
        pytest.skip("torchtitan is not installed: make frameworks")
    assert main(["check", f"{path}:{function}", "--gpus", "64x8xH100"]) in (0, 1)
    assert "tokens/s" in capsys.readouterr().out


def test_a_toml_job_of_version_0_0_2_is_read(tmp_path: Path) -> None:
    """Its names: degrees under training and experimental, compile and float8 as flags."""
    path = written(tmp_path, (
        "[job]\ndump_folder = './outputs'\n[model]\nname = 'llama3'\nflavor = '405B'\nnorm_type = 'rmsnorm'\n"
        "[training]\nbatch_size = 2\nseq_len = 8192\nwarmup_steps = 600\ndata_parallel_replicate_degree = 1\n"
        "data_parallel_shard_degree = -1\n"
        "tensor_parallel_degree = 8\ncompile = true\ndataset = 'c4'\n[experimental]\ncontext_parallel_degree = 1\n"
        "pipeline_parallel_degree = 1\nenable_async_tensor_parallel = true\n[activation_checkpoint]\nmode = 'full'\n"
        "[float8]\nenable_float8_linear = true\nenable_fsdp_float8_all_gather = true\n"
    ))  # fmt: skip
    job = found_in(path)
    assert codes(job) == {}
    wanted = {
        "tp": 8, "dp_shard": 16, "micro_batch": 2, "compile": True, "async_tp": True, "recompute": "full", "float8": "tensorwise",
        "float8_all_gather": True, "sequence_parallel": True, "loss_parallel": True,
    }  # fmt: skip
    assert {name: setting(job, name) for name in wanted} == wanted
    workload = job.situation.request.workload
    assert (job.situation.model.name, workload.seq_len, workload.global_batch) == ("llama3-405b", 8192, 32)


def test_a_toml_job_of_version_0_2_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, (
        "[model]\nname = 'llama3'\nflavor = '70B'\n[training]\nlocal_batch_size = 8\nseq_len = 8192\n[parallelism]\n"
        "pipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'\npipeline_parallel_layers_per_stage = 11\n"
        "context_parallel_degree = 2\ncontext_parallel_rotate_method = 'alltoall'\ntensor_parallel_degree = 8\n"
        "disable_loss_parallel = true\nfsdp_reshard_after_forward = 'always'\n[activation_checkpoint]\nmode = 'selective'\n"
        "[optimizer]\nname = 'AdamW'\nimplementation = 'foreach'\n"
    ))  # fmt: skip
    job = found_in(path)
    assert codes(job) == {}
    wanted = {
        "pp": 4, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, "pp_split": "weighted", "cp": 2, "cp_attention": "sdpa",
        "cp_rotate": "alltoall", "tp": 8, "dp_shard": 2, "loss_parallel": False, "reshard_after_forward": True,
        "reshard_root": True, "recompute": "every_second_layer", "optimizer_kernel": "foreach", "micro_batch": 1,
        "no_sync": True,
    }  # fmt: skip
    assert {name: setting(job, name) for name in wanted} == wanted


def test_flags_of_a_start_script_override_the_named_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, (
        "NGPU=8\nCONFIG=${CONFIG:-llama3_70b}\ntorchrun --nproc_per_node=$NGPU --nnodes=2 --rdzv_backend c10d \\\n"
        "  --local-ranks-filter 0 -m torchtitan.train --module llama3 --config $CONFIG \\\n"
        "  --parallelism.tensor-parallel-degree=4 --parallelism.no-enable-sequence-parallel --compile.enable \\\n"
        "  --training.local_batch_size 2 activation-checkpoint:memory-budget --activation-checkpoint.memory-budget 0.25\n"
    ), "train.sh")  # fmt: skip
    job = found_in(path, gpus="2x8xH100")
    assert codes(job) == {}
    wanted = {
        "tp": 4, "dp_shard": 4, "micro_batch": 2, "sequence_parallel": False, "compile": True, "recompute": "budget",
        "recompute_budget_percent": 25, "loss_parallel": True, "fullgraph": True,
    }  # fmt: skip
    assert {name: setting(job, name) for name in wanted} == wanted
    assert (job.situation.model.name, job.situation.request.workload.seq_len) == ("llama3-70b", 8192)


def test_an_exported_folder_is_imported_from_its_start_script(tmp_path: Path) -> None:
    plan = a_plan("torchtitan", lambda plan: plan.model.name == "llama3-70b")
    api.write_files(find_format("torchtitan").write(plan, {}), tmp_path)
    job = found_in(tmp_path / "train.sh", gpus=plan.cluster.name)
    assert (job.candidate.layout, job.situation.request.workload, job.situation.model) == (
        plan.candidate.layout,
        plan.workload,
        plan.model,
    )


MINE = """
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer

LONG = 4 * 8192

def base() -> Trainer.Config:
    config = llama3_8b()
    config.training.seq_len = LONG
    return config

def wide(degree: int = 2) -> Trainer.Config:
    config = base()
    config.parallelism.context_parallel_degree = degree
    if config.training.seq_len > 8192:
        config.training.local_batch_size = 2
    return config
"""


def test_a_function_is_selected_after_a_colon(tmp_path: Path) -> None:
    path = written(tmp_path, MINE, "mine.py")
    job = found_in(f"{path}:wide", gpus="8xH100")
    assert {name: setting(job, name) for name in ("cp", "cp_attention", "micro_batch", "dp_shard")} == {
        "cp": 2, "cp_attention": "flex", "micro_batch": 2, "dp_shard": 4,
    }  # fmt: skip
    assert (job.situation.model.name, job.situation.request.workload.seq_len) == ("llama3-8b", 32768)
    with pytest.raises(FileError, match=r"mine\.py: holds 2 configurations.*base, wide"):
        found_in(path)
    with pytest.raises(FileError, match=r"no function wid; there are: base, wide"):
        found_in(f"{path}:wid")


def test_the_pipeline_micro_batch_applies_to_pipelines_only(tmp_path: Path) -> None:
    lines = ("training.local_batch_size = 3", "parallelism.pipeline_parallel_microbatch_size = 2")
    text = MINE.split("def wide")[0].replace("    return", "".join(f"    config.{line}\n" for line in lines) + "    return")
    assert setting(found_in(written(tmp_path, text, "mine.py"), gpus="8xH100"), "micro_batch") == 3


def test_deeply_nested_code_is_refused_in_one_line(tmp_path: Path) -> None:
    line = f"    config.training.seq_len = {' + '.join(['1'] * 400)}\n    return"
    with pytest.raises(FileError, match="nested too deeply; write the values out"):
        found_in(written(tmp_path, MINE.split("def wide")[0].replace("    return", line), "mine.py"))


def test_an_undecidable_condition_is_a_finding(tmp_path: Path) -> None:
    text = MINE.replace(
        "    return config\n\ndef wide",
        "    if os.environ['X']:\n        config.training.seq_len = 1\n    return config\n\ndef wide",
    )
    job = found_in(f"{written(tmp_path, text, 'mine.py')}:base", gpus="8xH100")
    assert "under this condition is not read" in codes(job)["FMT-011"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("config.parallelism.tensor_parallel_degree = 'two'", "tensor_parallel_degree is 'two': a whole number"),
        ("config.parallelism.data_parallel_shard_degree = 0", "1 or more is needed, or -1"),
        ("config.parallelism.fsdp_reshard_after_forward = 'sometimes'", "one of default, always, never"),
        ("config.parallelism = ParallelismConfig(pipeline_parallel_degree=2, pipeline_parallel_schedule='2F2B')", "one of GPipe"),
        ("config.activation_checkpoint = MyAC.Config()", "activation_checkpoint is MyAC: one of none, selective"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_with_their_line(line: str, words: str, tmp_path: Path) -> None:
    text = MINE.split("def wide")[0].replace("    return", f"    {line}\n    return")
    with pytest.raises(FileError, match=words) as caught:
        found_in(written(tmp_path, text, "mine.py"))
    assert caught.value.line == 10


def test_a_misspelt_name_gets_a_suggestion(tmp_path: Path) -> None:
    text = MINE.split("def wide")[0].replace("    return", "    config.parallelism.tensor_parallel_degre = 2\n    return")
    (found,) = [item for item in found_in(written(tmp_path, text, "mine.py")).findings if item.code == "FMT-001"]
    assert (found.do, found.line) == ("did you mean parallelism.tensor_parallel_degree?", 10)


def test_an_unknown_model_must_be_given(tmp_path: Path) -> None:
    path = written(tmp_path, "[model]\nname = 'llama3'\nflavor = 'debugmodel'\n[training]\nseq_len = 2048\n")
    with pytest.raises(InputError, match="--model"):
        found_in(path)


def test_an_unknown_flavor_is_not_the_model_of_its_tokenizer(tmp_path: Path) -> None:
    text = "[model]\nname = 'llama3'\nflavor = 'wide'\nhf_assets_path = 'assets/Llama-3.1-8B'\n[training]\nseq_len = 2048\n"
    with pytest.raises(InputError, match=r"no preset is known for model\.flavor wide"):
        found_in(written(tmp_path, text))


def test_unsupported_entries_are_findings(tmp_path: Path) -> None:
    path = written(tmp_path, (
        "[model]\nname = 'llama3'\nflavor = '8B'\nconverters = ['quantize.linear.mx']\n[training]\nseq_len = 2048\n[parallelism]\n"
        "expert_parallel_comm_backend = 'deepep'\n"
    ))  # fmt: skip
    messages = [item.message for item in found_in(path).findings if item.code == "FMT-002"]
    assert any("quantize.linear.mx" in text for text in messages)
    assert any("DeepEP" in text for text in messages)


def test_chunked_logits_and_cuda_graphs_are_priced(tmp_path: Path) -> None:
    """A registered configuration has chunked logits and CUDA graphs; a TOML job of an earlier version has neither."""
    script = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b activation-checkpoint:full"
    new = priced(written(tmp_path, script, "train.sh"), "8xH100")
    old = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 8192\nlocal_batch_size = 1\n"
    old += "[activation_checkpoint]\nmode = 'full'\n"
    before = priced(written(tmp_path, old), "8xH100")
    assert new.candidate.knobs == before.candidate.knobs
    assert new.estimate.peak_memory_bytes < 0.8 * before.estimate.peak_memory_bytes
    assert new.estimate.step_seconds <= before.estimate.step_seconds


def test_a_model_that_torchtitan_lacks_is_listed_as_missing() -> None:
    plan = a_plan("torchtitan")
    needs = find_format("torchtitan").write(replace(plan, model=replace(plan.model, name="mine", layers=5)), {}).needs
    assert [need for need in needs if "no flavour of mine" in need]
    assert not [need for need in find_format("torchtitan").write(plan, {}).needs if "no flavour of" in need]


@pytest.mark.parametrize(
    ("model", "function"),
    [("llama3.2-1b", "llama3_8b"), ("llama3-70b", "llama3_70b"), ("qwen3-8b", "qwen3_14b"), ("qwen3-235b-a22b", "qwen3_30b_a3b")],
)
def test_a_model_begins_from_the_registered_configuration_that_is_most_like_it(model: str, function: str) -> None:
    shape = find_preset(model)
    assert shape is not None
    base = base_of(shape)
    assert base is not None
    assert base.function == function


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "formats" / "torchtitan_train.sh"
    assert main(["check", str(path), "--gpus", "8xH100"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "dp_shard 4, tp 2, micro-batch 2x1" in text
    assert "FMT-" not in text


def after_0_3(text: str) -> str:
    """An exported module as TorchTitan after 0.3.0 runs it: with the branch that counts batches in tokens."""

    class Later(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> list[ast.stmt]:
            return node.orelse

    return ast.unparse(Later().visit(ast.parse(text)))


@pytest.mark.parametrize("pipeline", [False, True])
def test_both_branches_of_an_export_give_the_same_plan(pipeline: bool, tmp_path: Path) -> None:
    """Batches in sequences (0.3.0) and in tokens (later: commit 73aed7f)."""
    plan = a_plan("torchtitan", lambda plan: (plan.candidate.layout.pp > 1) is pipeline)
    module = find_format("torchtitan").write(plan, {}).files[0].text
    gpus = plan.cluster.name
    first = found_in(written(tmp_path, module, "first.py"), gpus)
    then = found_in(written(tmp_path, after_0_3(module), "then.py"), gpus)
    assert first.situation.request.workload == then.situation.request.workload == plan.workload
    assert first.candidate == then.candidate
    assert then.candidate.knobs.micro_batch == plan.candidate.knobs.micro_batch
    assert codes(then) == codes(first)


@pytest.mark.parametrize("words", [
    f"--training.max_context_length 4096 --{TOKENS} 8192 --{STEP_TOKENS} 1048576",
    f"--training.max_context_length 4096 --{STEP_TOKENS} 1048576",  # the micro-batch of llama3_8b is 8,192 tokens
    "--training.seq_len 4096 --training.local_batch_size 2 --training.global_batch_size 256",
])  # fmt: skip
def test_batch_flags_in_sequences_and_in_tokens_are_read(words: str, tmp_path: Path) -> None:
    command = f"torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b {words}\n"
    job = found_in(written(tmp_path, command, "train.sh"), "8xH100")
    workload = job.situation.request.workload
    assert (workload.seq_len, workload.global_batch) == (4096, 256)
    assert setting(job, "micro_batch") == 2


def test_a_token_count_that_is_not_a_multiple_of_the_sequence_is_refused_with_its_line(tmp_path: Path) -> None:
    text = MINE.split("def wide")[0].replace(
        "    return", "    config.training.max_context_length = 4096\n    config.training.num_tokens_per_train_step = 5000\n"
        "    config.training.num_tokens_per_microbatch_per_dp_rank = 4096\n    return"
    )  # fmt: skip
    with pytest.raises(FileError, match=r"my_config.py:\d+.*num_tokens_per_train_step 5000 is not a multiple of the 4096"):
        found_in(written(tmp_path, text, "my_config.py"), "8xH100")


def test_a_command_with_the_old_flag_of_a_configuration_is_recognised() -> None:
    source = parse("srun torchrun ./train.py --job.config_file train_configs/llama3_8b.toml --training.seed 1", "train.sh")
    assert recognise(source).name == "torchtitan"


def test_a_plan_and_the_export_of_it_have_one_price(tmp_path: Path) -> None:
    """0.3 makes logits in chunks, 0.2 at once."""
    plan = a_plan("torchtitan", lambda plan: plan.model.name == "llama3-8b" and not plan.candidate.layout.tp > 1)
    api.write_files(api.export_plan(plan, "torchtitan"), tmp_path)
    new, old = (priced(tmp_path / name, plan.cluster.name) for name in ("titan_plan.py", "titan_plan.toml"))
    assert new.estimate == plan.estimate
    assert old.estimate.memory.logits > 2 * new.estimate.memory.logits


@pytest.mark.parametrize("named", ["8b.toml", "$(pwd)/8b.toml", "$PWD/8b.toml"])
def test_the_configuration_that_a_command_names_is_read(tmp_path: Path, named: str) -> None:
    (tmp_path / "8b.toml").write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 1024\n')
    (tmp_path / "run.sh").write_text(f"torchrun -m torchtitan.train --job.config_file {named} --training.local_batch_size 2\n")
    _, _, found = read(tmp_path / "run.sh")
    assert (found.model, found.workload["seq_len"], found.settings["micro_batch"]) == ("llama3-8b", 1024, 2)
    assert not [item for item in found.findings if item.code == "FMT-011"]


def test_a_missing_configuration_of_a_command_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun -m torchtitan.train --job.config_file gone.toml --training.local_batch_size 2\n")
    _, _, found = read(tmp_path / "run.sh")
    assert [item.entry for item in found.findings if item.code == "FMT-011"] == ["job.config_file"]
