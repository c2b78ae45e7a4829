"""Scripts that start a trainer with ``accelerate launch``: the launcher's file and options are merged with the trainer's
settings.
"""

from pathlib import Path

import pytest

from formats.frameworks import parsed
from strategist import api
from strategist.contract.review import Review
from strategist.contract.settings import value_of
from strategist.errors import FileError
from strategist.formats.accelerate import FORMAT
from strategist.formats.completed_config import GivenValues
from strategist.formats.config_reader import parse_config
from strategist.formats.source import load
from strategist.formats.trl_accelerate_configs import SHIPPED, shipped

TRAINER = (
    "per_device_train_batch_size: 2\nbf16: true\ngradient_checkpointing: true\nmax_length: 4096\ngradient_accumulation_steps: 4\n"
)
ZERO3 = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n"
FSDP = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
FSDP += "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_reshard_after_forward: true\n"
FILES = {
    "recipes/acc/zero3.yaml": ZERO3,
    "recipes/acc/fsdp.yaml": FSDP,
    "recipes/acc/ddp.yaml": "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n",
    "recipes/x/config.yaml": TRAINER,
    "recipes/x/unstated.yaml": TRAINER.replace("bf16: true\n", ""),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def checked(folder: Path, text: str, *, name: str = "run.sh", gpus: str = "8xH100") -> Review:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return api.import_plan(
        folder / name, GivenValues(gpus=gpus, model="8b", workload={"train": "full", "seq_len": 4096}, settings={})
    )


def launch(options: str, program: str = "scripts/sft.py --config recipes/x/config.yaml") -> str:
    return f"accelerate launch {options} {program}\n"


def settings_of(review: Review, *names: str) -> tuple[object, ...]:
    assert review.plan is not None
    return tuple(value_of(review.plan.candidate, name) for name in names)


def findings_of(review: Review) -> list[tuple[str, str, int | None]]:
    return [(found.code, Path(found.path).name, found.line) for found in review.findings]


def same_plan(one: Review, other: Review) -> bool:
    assert one.plan is not None
    assert other.plan is not None
    return (one.plan.candidate, one.plan.workload, one.plan.estimate, one.uncertainties) == (
        other.plan.candidate, other.plan.workload, other.plan.estimate, other.uncertainties,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["--config_file recipes/acc/zero3.yaml", "--config-file=recipes/acc/zero3.yaml"])
def test_a_launcher_file_with_zero3_equals_deepspeed_in_the_trainers_file(folder: Path, form: str) -> None:
    by_trainer = checked(folder, TRAINER + "deepspeed: {zero_optimization: {stage: 3}}\n", name="recipes/x/own.yaml")
    by_launcher = checked(folder, launch(form))
    assert same_plan(by_launcher, by_trainer)
    assert findings_of(by_launcher) == []
    assert settings_of(by_launcher, "dp_shard", "reshard_after_forward", "micro_batch", "recompute") == (8, True, 2, "full")


def test_a_launcher_file_with_fsdp_equals_fsdp_in_the_trainers_file(folder: Path) -> None:
    by_trainer = checked(folder, TRAINER + "fsdp: true\nfsdp_config: {reshard_after_forward: true}\n", name="recipes/x/own.yaml")
    assert same_plan(checked(folder, launch("--config_file recipes/acc/fsdp.yaml")), by_trainer)


def test_a_launcher_file_with_multi_gpu_means_no_sharding(folder: Path) -> None:
    review = checked(folder, launch("--config_file recipes/acc/ddp.yaml"))
    assert settings_of(review, "dp_shard", "dp_replicate", "reduce_dtype") == (1, 8, "fp32")
    assert review.uncertainties == ()


@pytest.mark.parametrize("place", ["run.sh", "slurm/jobs/run.sh"])
def test_the_launcher_file_is_searched_in_parent_folders_of_the_script(folder: Path, place: str) -> None:
    assert settings_of(checked(folder, launch("--config_file recipes/acc/zero3.yaml"), name=place), "dp_shard") == (8,)


def test_files_above_the_repository_root_are_not_read(folder: Path) -> None:
    (folder / "inner" / ".git").mkdir(parents=True)
    flags = "train.py --per_device_train_batch_size 2 --bf16 --max_length 4096"
    review = checked(folder, launch("--config_file recipes/acc/zero3.yaml", flags), name="inner/run.sh")
    assert [found.entry for found in review.findings if found.code == "FMT-011"] == ["accelerate launch --config_file"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("recipes/acc/none.yaml", "--config_file recipes/acc/none.yaml is not found"),
        ("recipes/x/config.yaml", "--config_file recipes/x/config.yaml has no distributed_type"),
        ("broken.yaml", "--config_file broken.yaml cannot be read"),
        ("$ACCELERATE_FILE", "--config_file $ACCELERATE_FILE is known only where the script runs"),
    ],
)
def test_a_missing_launcher_file_leaves_the_verdict_open_with_a_next_step(folder: Path, name: str, words: str) -> None:
    (folder / "broken.yaml").write_text("a: [1\n", encoding="utf-8")
    review = checked(folder, f"# a comment\n{launch(f'--config_file {name}')}")
    (finding,) = (found for found in review.findings if found.code == "FMT-011")
    assert words in finding.message
    assert finding.do.startswith("name the file by a path that leads to it, or give --fix dp_shard=GPUS")
    assert (Path(finding.path).name, finding.line) == ("run.sh", 2)
    assert [doubt.partition(" could")[0] for doubt in review.uncertainties] == ["accelerate launch --config_file"]


def test_shell_variables_are_resolved(folder: Path) -> None:
    text = "KIND=zero3\nexport FILE=recipes/acc/${KIND}.yaml\nCONFIG=recipes/x/config.yaml\n"
    text += launch('--config_file "$FILE" --num_processes $((2*4))', "scripts/sft.py --config $CONFIG")
    review = checked(folder, text)
    assert settings_of(review, "dp_shard") == (8,)
    assert findings_of(review) == []


def test_a_launch_inside_a_quoted_command_is_read(folder: Path) -> None:
    text = 'LAUNCHER="accelerate launch --config_file recipes/acc/zero3.yaml --gradient_accumulation_steps 4"\n'
    text += 'CMD="scripts/sft.py --config recipes/x/config.yaml"\nsrun --nodes=1 bash -c "$LAUNCHER $CMD"\n'
    review = checked(folder, text)
    assert settings_of(review, "dp_shard") == (8,)
    assert findings_of(review) == []


OPTIONS: dict[str, dict[str, object]] = {
    "--config_file recipes/acc/zero3.yaml": {"dp_shard": 8, "reshard_after_forward": True, "offload": "none"},
    "--config_file recipes/acc/zero3.yaml --zero_stage 2": {"dp_shard": 8, "reshard_after_forward": False},
    "--config_file recipes/acc/zero3.yaml --offload_optimizer_device cpu": {"offload": "optimizer"},
    "--config_file recipes/acc/zero3.yaml --multi_gpu": {"dp_shard": 1},
    "--config_file recipes/acc/ddp.yaml --use_deepspeed --zero-stage=3": {"dp_shard": 8, "reshard_after_forward": True},
    "--config_file recipes/acc/fsdp.yaml --fsdp_offload_params true": {"dp_shard": 8, "offload": "all"},
    "--config_file recipes/acc/fsdp.yaml --fsdp_activation_checkpointing true": {"recompute": "full"},
    "--config_file recipes/acc/fsdp.yaml --fsdp-reshard-after-forward false": {"reshard_after_forward": False},
    "--config_file recipes/acc/fsdp.yaml --dynamo_backend inductor": {"compile": True},
    "--config_file recipes/acc/ddp.yaml --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy SIZE_BASED_WRAP": {"dp_shard": 8},
}


@pytest.mark.parametrize(("options", "expected"), OPTIONS.items())
def test_launcher_options_override_the_launcher_file(folder: Path, options: str, expected: dict[str, object]) -> None:
    assert settings_of(checked(folder, launch(options)), *expected) == tuple(expected.values())


def test_sections_of_another_distributed_type_are_ignored(folder: Path) -> None:
    for options in ("zero3.yaml --multi_gpu", "fsdp.yaml --multi_gpu", "ddp.yaml --gradient_accumulation_steps 8 --zero_stage 3"):
        review = checked(folder, launch(f"--config_file recipes/acc/{options}"))
        assert not {"FMT-002", "FMT-004", "FMT-009"} & {code for code, _, _ in findings_of(review)}, options


@pytest.mark.parametrize("value", ["null", "$KIND"])
def test_an_unset_distributed_type_leaves_the_verdict_open(folder: Path, value: str) -> None:
    (folder / "recipes/acc/zero3.yaml").write_text(ZERO3.replace("DEEPSPEED", value), encoding="utf-8")
    review = checked(folder, launch("--config_file recipes/acc/zero3.yaml"))
    assert "accelerate launch --config_file" in [found.entry for found in review.findings]


@pytest.mark.full
def test_accelerate_reads_the_same_settings_from_options_and_file(folder: Path) -> None:
    """The settings that accelerate's plugins read on the ranks equal the imported ones."""
    options_with_paths = [options.replace("recipes/", f"{folder}/recipes/") for options in OPTIONS]
    for options, found in zip(OPTIONS, parsed("accelerate", ["launch", *options_with_paths]), strict=True):
        assert "refused" not in found, (options, found)
        review = checked(folder, launch(options))
        whole, offload = settings_of(review, "reshard_after_forward", "offload")
        assert (settings_of(review, "dp_shard") == (8,)) == (found["kind"] in ("fsdp", "deepspeed")), options
        if found["kind"] == "deepspeed":
            assert (whole, offload == "optimizer") == (found["stage"] == 3, found["optimizer_device"] == "cpu"), options
        if found["kind"] == "fsdp":
            assert (whole, offload == "all") == (found["reshard"], found["offload"] == "CPUOffloadPolicy"), options


def test_an_earlier_launch_command_is_a_finding_with_the_differences(folder: Path) -> None:
    first = "ACCELERATE_LOG_LEVEL=info " + launch("--config_file recipes/acc/ddp.yaml --tee 3")
    review = checked(folder, first + launch("--config_file recipes/acc/zero3.yaml --tee 3"))
    assert settings_of(review, "reshard_after_forward") == (True,)
    (finding,) = (found for found in review.findings if found.code == "FMT-011")
    assert "the command at line 1 is not read: the last command counts, and they differ in config_file" in finding.message


@pytest.mark.parametrize(
    ("options", "precision"), [("", "bf16"), ("--mixed_precision fp16", "fp16"), ("--mixed_precision no", "fp32")]
)
def test_the_launchers_precision_applies_if_the_trainer_sets_none(folder: Path, options: str, precision: str) -> None:
    config = "scripts/sft.py --config recipes/x/unstated.yaml"
    review = checked(folder, launch(f"--config_file recipes/acc/zero3.yaml {options}", config))
    assert review.plan is not None
    assert review.plan.workload.precision == precision
    own = checked(folder, launch(f"--config_file recipes/acc/zero3.yaml {options}"))
    assert own.plan is not None
    assert own.plan.workload.precision == "bf16"


def test_the_launchers_number_of_processes_is_compared_with_the_given_devices(folder: Path) -> None:
    review = checked(folder, launch("--config_file recipes/acc/zero3.yaml"), gpus="4xH100")
    assert findings_of(review) == [("FMT-008", "zero3.yaml", 3)]
    review = checked(folder, launch("--config_file recipes/acc/zero3.yaml --num_processes 7"))
    assert findings_of(review) == [("FMT-008", "run.sh", 1)]


def test_the_trainers_deepspeed_config_overrides_the_launchers(folder: Path) -> None:
    trainer = TRAINER + "deepspeed: {zero_optimization: {stage: 2}}\n"
    (folder / "recipes/x/config.yaml").write_text(trainer, encoding="utf-8")
    for file in ("zero3", "fsdp", "ddp"):
        assert settings_of(checked(folder, launch(f"--config_file recipes/acc/{file}.yaml")), "reshard_after_forward") == (False,)


def test_the_trainers_fsdp_overrides_the_launchers_fsdp_but_not_deepspeed(folder: Path) -> None:
    (folder / "recipes/x/config.yaml").write_text(TRAINER + "fsdp: shard_grad_op\nfsdp_config: {version: 1}\n", encoding="utf-8")
    review = checked(folder, launch("--config_file recipes/acc/fsdp.yaml"))
    assert settings_of(review, "reshard_after_forward") == (False,)
    assert ("FMT-002", "fsdp.yaml", 1) in findings_of(review)
    assert settings_of(checked(folder, launch("--config_file recipes/acc/zero3.yaml")), "reshard_after_forward") == (True,)


def test_contradicting_accumulation_steps_are_an_error(folder: Path) -> None:
    (folder / "recipes/acc/zero3.yaml").write_text(ZERO3 + "  gradient_accumulation_steps: 1\n", encoding="utf-8")
    review = checked(folder, launch("--config_file recipes/acc/zero3.yaml"))
    assert findings_of(review) == [("FMT-004", "zero3.yaml", 6)]
    assert "gradient_accumulation_steps is 1 of the launcher's DeepSpeed and 4 of the trainer" in review.findings[0].message
    right = checked(folder, launch("--config_file recipes/acc/zero3.yaml --gradient_accumulation_steps 4"))
    assert findings_of(right) == []


def test_a_finding_names_the_file_of_its_entry(folder: Path) -> None:
    (folder / "recipes/acc/zero3.yaml").write_text(ZERO3 + "  zero_stge: 2\n", encoding="utf-8")
    (folder / "recipes/x/config.yaml").write_text(TRAINER + "neftune_noise_alpha: 5\n", encoding="utf-8")
    program = "scripts/sft.py --config recipes/x/config.yaml \\\n  --packing"
    review = checked(folder, launch("--config_file recipes/acc/zero3.yaml", program))
    assert set(findings_of(review)) == {("FMT-001", "zero3.yaml", 6), ("FMT-002", "config.yaml", 6), ("FMT-002", "run.sh", 2)}


def test_an_invalid_value_in_the_launcher_file_is_refused_with_its_position(folder: Path) -> None:
    (folder / "recipes/acc/zero3.yaml").write_text(ZERO3.replace("zero_stage: 3", "zero_stage: many"), encoding="utf-8")
    with pytest.raises(FileError, match=r"zero3\.yaml:5:3: deepspeed_config\.zero_stage is 'many': a whole number"):
        checked(folder, launch("--config_file recipes/acc/zero3.yaml"))


def test_the_launcher_file_shards_a_llama_factory_trainer(folder: Path) -> None:
    text = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\nbf16: true\npacking: true\nper_device_train_batch_size: 1\n"
    (folder / "train.yaml").write_text(text, encoding="utf-8")
    review = checked(folder, launch("--config_file recipes/acc/fsdp.yaml", "src/train.py train.yaml"))
    assert review.format == "llama-factory"
    assert settings_of(review, "dp_shard", "reshard_after_forward", "reduce_dtype") == (8, True, "bf16")
    assert "FMT-011" not in [found.code for found in review.findings]


@pytest.fixture
def default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of accelerate's default file of this machine, with FSDP."""
    monkeypatch.setenv("HF_HOME", str(folder / "home"))
    path = folder / "home/accelerate/default_config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(FSDP, encoding="utf-8")
    return path


def test_without_config_file_the_machines_default_file_is_used_and_reported(folder: Path, default: Path) -> None:
    review = checked(folder, launch(""))
    assert settings_of(review, "dp_shard", "reshard_after_forward") == (8, True)
    assert review.uncertainties == ()
    (finding,) = review.findings
    assert finding.code == "FMT-003"
    assert f"accelerate's default file of this machine is read, {default}" in finding.message
    assert settings_of(checked(folder, launch("--config_file recipes/acc/ddp.yaml")), "dp_shard") == (1,)
    assert settings_of(checked(folder, f"torchrun{launch('').removeprefix('accelerate launch')}"), "dp_shard") == (1,)


def test_an_unused_or_unreadable_default_file_leaves_the_verdict_open(folder: Path, default: Path) -> None:
    assert "the file has neither deepspeed nor fsdp" in checked(folder, launch("--cpu")).findings[0].message
    default.write_text("a: [1\n", encoding="utf-8")
    (finding,) = (found for found in checked(folder, launch("")).findings if found.code == "FMT-011")
    assert f"accelerate's default file {default} cannot be read" in finding.message


@pytest.mark.parametrize(("options", "file"), [("", "{default}"), ("--config_file my/acc.yaml", "my/acc.yaml")])
def test_an_unknown_trainer_script_suggests_checking_the_launcher_file(
    folder: Path, default: Path, options: str, file: str
) -> None:
    with pytest.raises(FileError, match="strategist check ") as error:
        checked(folder, launch(options, "train.py"))
    assert f"strategist check {file.format(default=default)} --model MODEL --gpus GPUS" in str(error.value)


TRL = "trl sft --per_device_train_batch_size 2 --gradient_checkpointing --bf16 --max_length 4096 --num_processes 8"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zero3", {"dp_shard": 8, "reshard_after_forward": True}),
        ("zero2", {"dp_shard": 8, "reshard_after_forward": False}),
        ("fsdp2", {"dp_shard": 8, "reshard_after_forward": True}),
        ("multi_gpu", {"dp_shard": 1, "dp_replicate": 8}),
        ("recipes/acc/zero3.yaml", {"dp_shard": 8, "reshard_after_forward": True}),
    ],
)
def test_trl_commands_accept_names_of_shipped_accelerate_configs(folder: Path, name: str, expected: dict[str, object]) -> None:
    """Regression: a 7B model with zero3 was reported as out of memory, and accelerate_config as a misspelling of
    accelerator_config.
    """
    for text in (f"{TRL} --accelerate_config {name}\n", f"{TRL} --accelerate_config={name}\n"):
        review = checked(folder, text)
        assert settings_of(review, *expected) == tuple(expected.values())
        assert "FMT-001" not in {code for code, _, _ in findings_of(review)}
        assert "accelerate launch --config_file" not in [found.entry for found in review.findings]
    config = folder / "recipes/x/config.yaml"
    config.write_text(f"{TRAINER}accelerate_config: {name}\n", encoding="utf-8")
    for review in (
        checked(folder, "trl sft --config recipes/x/config.yaml\n"),
        checked(folder, config.read_text(), name="own.yaml"),
    ):
        assert settings_of(review, *expected) == tuple(expected.values())
        assert "FMT-001" not in {code for code, _, _ in findings_of(review)}


def test_an_unknown_accelerate_config_leaves_the_verdict_open(folder: Path) -> None:
    review = checked(folder, f"{TRL} --accelerate_config zero4\n")
    (finding,) = (found for found in review.findings if found.code == "FMT-011")
    assert "--config_file zero4 is not found" in finding.message


@pytest.mark.full
def test_known_settings_of_trls_files_equal_the_files() -> None:
    """Their other entries do not change the plan."""
    paths = {Path(path).stem: path for path in parsed("accelerate", ["shipped"])}
    assert paths.keys() == SHIPPED.keys()
    for name, path in paths.items():
        assert SHIPPED[name].items() <= {entry.name: entry.value for entry in load(path).entries.values()}.items(), name
        whole, known = (parse_config(source, FORMAT) for source in (load(path), shipped(name)) if source)
        assert (whole.settings, whole.workload, whole.devices) == (known.settings, known.workload, known.devices), name
