"""Default option values: environment, project file, user file."""

import argparse
import json
from collections import Counter
from pathlib import Path

import pytest

from strategist.cli import config_sources
from strategist.cli.main import COMMANDS, main, whole_parser
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.configuration import Configuration

PLAN = ["plan", "--model", "tiny", "--seq-len", "128", "--global-batch", "16", "--json"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a user configuration folder, both without a file."""
    (tmp_path / "here").mkdir()
    (tmp_path / "person" / "strategist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "person"))
    monkeypatch.delenv("STRATEGIST_CONFIG")
    return tmp_path


def write_project_file(text: str) -> None:
    Path("strategist.yaml").write_text(text, encoding="utf-8")


def write_user_file(text: str) -> None:
    config_sources.user_file().write_text(text, encoding="utf-8")


def plan(capsys: Captured, *more: str) -> Answer:
    capsys.readouterr()
    code = main([*PLAN, *more])
    found = capsys.readouterr()
    assert code == 0, found.err
    return codec.loads(Answer, found.out)


def refused(capsys: Captured, *words: str) -> str:
    capsys.readouterr()
    assert main(list(words or PLAN)) == 2
    found = capsys.readouterr()
    assert not found.out
    assert found.err.count("\n") == 1
    return found.err


def test_the_command_line_precedes_environment_project_and_user_file(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("gpus: 8xcpu\n")
    assert plan(capsys).request.gpus == "8xcpu"
    write_project_file("gpus: 4xcpu\n")
    assert plan(capsys).request.gpus == "4xcpu"
    monkeypatch.setenv("STRATEGIST_GPUS", "2xcpu")
    assert plan(capsys).request.gpus == "2xcpu"
    assert plan(capsys, "--gpus", "1xcpu").request.gpus == "1xcpu"


def test_values_of_a_command_precede_shared_values(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file("gpus: 4xcpu\nplan: {gpus: 8xcpu, top: 1}\n")
    answer = plan(capsys)
    assert (answer.request.gpus, len(answer.plans)) == ("8xcpu", 1)
    monkeypatch.setenv("STRATEGIST_GPUS", "1xcpu")
    monkeypatch.setenv("STRATEGIST_PLAN_GPUS", "2xcpu")
    assert plan(capsys).request.gpus == "2xcpu"


def test_typed_settings_replace_default_settings(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file("gpus: 4xcpu\nfix: {tp: 2, sequence_parallel: false}\n")
    assert plan(capsys).request.fix == {"tp": 2, "sequence_parallel": False}
    assert plan(capsys, "--fix", "pp=2").request.fix == {"pp": 2}
    monkeypatch.setenv("STRATEGIST_FIX", "tp=4 recompute=full")
    assert plan(capsys).request.fix == {"tp": 4, "recompute": "full"}


def test_a_request_file_replaces_default_request_options(capsys: Captured) -> None:
    write_project_file("gpus: 8xcpu\nobjective: memory\n")
    Path("request.yaml").write_text("model: tiny\ngpus: 4xcpu\nseq_len: 128\nglobal_batch: 16\n", encoding="utf-8")
    assert main(["plan", "--request", "request.yaml", "--json"]) == 0
    request = codec.loads(Answer, capsys.readouterr().out).request
    assert (request.gpus, request.objective) == ("4xcpu", "throughput")
    write_project_file("gpus: 8xcpu\nplan: {request: request.yaml}\n")
    assert plan(capsys).request.gpus == "4xcpu"


def test_shared_values_skip_options_with_another_meaning(capsys: Captured) -> None:
    """``scale --gpus`` counts devices, ``cards lint --fix`` corrects files, ``check --gpus`` overrides the file."""
    write_project_file("gpus: 8x24GB\nfix: {tp: 2}\n")
    parser = whole_parser(COMMANDS)
    defaults = config_sources.sources(COMMANDS)
    for words in (["scale", "plan.json"], ["cards", "lint"], ["check", "file.yaml"], ["study", "import", "s"]):
        assert config_sources.with_default_values(parser, words, defaults)[1] == ()


def test_defaults_that_conflict_with_typed_options_are_dropped(capsys: Captured) -> None:
    write_project_file("simulate: {all_stages: true, rank: 1}\n")
    parser, defaults = whole_parser(COMMANDS), config_sources.sources(COMMANDS)
    words, found = config_sources.with_default_values(parser, ["simulate", "plan.json", "--stage", "0"], defaults)
    assert not found
    assert words == ["simulate", "plan.json", "--stage", "0"]


def test_defaults_precede_typed_words_and_flags_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file("cards: [mine, yours]\ntune: {quiet: off, trials: 4}\nstudy: {show: {json: true}}\n")
    parser, defaults = whole_parser(COMMANDS), config_sources.sources(COMMANDS)
    tune, _ = config_sources.with_default_values(parser, ["tune", "--model", "8b"], defaults)
    assert tune[:1] + sorted(tune[1:4]) + tune[4:] == ["tune", "--cards=mine", "--cards=yours", "--trials=4", "--model", "8b"]
    assert config_sources.with_default_values(parser, ["study", "show", "s"], defaults)[0] == ["study", "show", "--json", "s"]
    monkeypatch.setenv("STRATEGIST_STUDY_SHOW_JSON", "0")
    assert config_sources.with_default_values(parser, ["study", "show", "s"], defaults)[0] == ["study", "show", "s"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpuz: 8x24GB\n", "strategist.yaml:1:1: unknown key 'gpuz'; did you mean gpus?"),
        ("plan: {topp: 1}\n", "strategist.yaml:1:8: unknown key 'topp'; did you mean top?"),
        ("trials: 4\n", "strategist.yaml:1:1: unknown key 'trials'"),
        ("plan: 4\n", "strategist.yaml:1:7: plan must be a mapping"),
        ("gpus: [4xcpu, 8xcpu]\n", "strategist.yaml:1: ['4xcpu', '8xcpu']: --gpus takes one value; leave one"),
        ("plan: {json: maybe}\n", "strategist.yaml:1: maybe: --json is on or off; write true or false"),
        ("gpus: true\n", "strategist.yaml:1: True: --gpus takes a text or a number"),
        ("gpus: &a 8\n", "strategist.yaml:1:7: "),
        ("gpus: 8x24GX\n", "(--gpus comes from strategist.yaml:1)"),
        ("gpus: 4xcpu\nplan: {top: none}\n", "(--top comes from strategist.yaml:2)"),
    ],
)
def test_a_wrong_value_prints_one_line_with_its_place(text: str, message: str, capsys: Captured) -> None:
    write_project_file(text)
    assert message in refused(capsys)


def test_a_typed_value_is_reported_without_a_file_name(capsys: Captured) -> None:
    write_project_file("gpus: 4xcpu\n")
    assert "comes from" not in refused(capsys, *PLAN, "--gpus", "8x24GX")


@pytest.mark.parametrize("name", sorted(config_sources.TRUSTED_OPTIONS))
def test_a_project_file_cannot_set_options_that_run_programs_or_send_data(name: str, capsys: Captured) -> None:
    parser = whole_parser(COMMANDS)
    option = f"--{name.replace('_', '-')}"
    paths = (path for path, command in parser.subcommands() if path and option in command.own_options())
    defaults = [("tune",)] if name in config_sources.REQUEST else list(paths)
    path = defaults[0]
    text = (
        f"{name}: x\n"
        if name in config_sources.SHARED_OPTIONS
        else json.dumps({path[0]: {path[1]: {name: 1}} if path[1:] else {name: 1}})
    )
    write_project_file(text)
    assert f"{name} may run programs, write files or send data away" in refused(capsys, *path)
    Path("strategist.yaml").unlink()
    write_user_file(text)
    assert config_sources.default_values(dict(parser.subcommands())[path], path, config_sources.sources(COMMANDS))[0].name == name


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("plan",), "plan: {output: x}"), (("report",), "report: {out: x}"), (("export",), "export: {output: x}"),
        (("run",), "run: {save: x}"), (("run",), "run: {hf: x}"), (("run",), "run: {resume: x}"), (("tune",), "tune: {study: x}"),
        (("cards", "test"), "cards: [x]"), (("cards", "lint"), "cards: {lint: {fix: true}}"),
    ],
)  # fmt: skip
def test_a_project_file_cannot_set_options_that_write_load_or_change_files(
    path: tuple[str, ...], text: str, capsys: Captured
) -> None:
    write_project_file(text)
    assert "so a project's file must not set it" in refused(capsys, *path)


def test_a_project_file_can_set_cards_calibration_and_request() -> None:
    write_project_file("cards: [mine]\ncalibration: here.json\nplan: {request: request.yaml}\n")
    commands = dict(whole_parser(COMMANDS).subcommands())
    found = config_sources.default_values(commands[("plan",)], ("plan",), config_sources.sources(COMMANDS))
    assert {one.name for one in found} == {"cards", "calibration", "request"}


def test_a_project_file_cannot_grant_trials_to_agents(capsys: Captured) -> None:
    write_project_file("mcp: {grant: 'trials=3,minutes=30'}\n")
    assert "grant may run programs" in refused(capsys, "mcp")


def test_help_is_printed_despite_a_wrong_configuration(capsys: Captured) -> None:
    write_project_file("gpuz: 1\n")
    assert main(["plan", "--help"]) == 0
    assert "--gpus" in capsys.readouterr().out


def test_strategist_config_replaces_both_files(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file("gpus: 4xcpu\n")
    write_user_file("objective: memory\n")
    Path("other.yaml").write_text("gpus: 2xcpu\n", encoding="utf-8")
    monkeypatch.setenv("STRATEGIST_CONFIG", "other.yaml")
    request = plan(capsys).request
    assert (request.gpus, request.objective) == ("2xcpu", "throughput")
    monkeypatch.setenv("STRATEGIST_CONFIG", "")
    assert "--gpus: is missing" in refused(capsys)
    monkeypatch.setenv("STRATEGIST_CONFIG", "none.yaml")
    assert "none.yaml: cannot be read" in refused(capsys)


def test_shared_and_trusted_names_are_existing_options() -> None:
    counts = Counter(
        action.dest for path, command in whole_parser(COMMANDS).subcommands() if path for action in command._actions
        if isinstance(action, argparse.Action)
    )  # fmt: skip
    assert all(counts[name] > 1 for name in config_sources.SHARED_OPTIONS)
    assert all(counts[name] for name in config_sources.TRUSTED_OPTIONS)
    assert set(config_sources.REQUEST) < set(config_sources.SHARED_OPTIONS)


def test_config_shows_all_default_values_and_their_sources(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("gpus: 8x24GB\ntune: {trials: 40}\n")
    write_project_file("gpus: 4xcpu\n")
    monkeypatch.setenv("STRATEGIST_GPUS", "2xcpu")
    monkeypatch.setenv("STRATEGIST_GPU", "2xcpu")
    assert main(["config", "--json"]) == 0
    found = codec.loads(Configuration, capsys.readouterr().out)
    user_path = str(config_sources.user_file())
    assert found.files == {"strategist.yaml": True, user_path: True}
    assert found.unknown_variables == ("STRATEGIST_GPU",)
    gpus, trials = found.options
    assert (gpus.words, gpus.source, gpus.before) == (("--gpus=2xcpu",), "STRATEGIST_GPUS", ("strategist.yaml:1", f"{user_path}:1"))
    assert gpus.commands == ("plan", "tune")
    assert (trials.words, trials.source, trials.commands) == (("--trials=40",), f"{user_path}:2", ("tune",))
    assert main(["config"]) == 0
    text = capsys.readouterr().out
    assert "STRATEGIST_GPUS, before strategist.yaml:1" in text
    assert "- STRATEGIST_GPU\n" in text


def test_config_reports_errors_in_any_commands_section(capsys: Captured) -> None:
    write_project_file("scale: {stepps: 4}\n")
    assert "did you mean steps?" in refused(capsys, "config")


def test_config_without_defaults_prints_a_message(capsys: Captured) -> None:
    assert main(["config"]) == 0
    assert capsys.readouterr().out.startswith("No file sets an option")


def test_an_export_reads_model_data_and_image_from_the_user_file(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command plans and writes the job."""
    (tmp_path / "config.yaml").write_text("weights: /models/base\ndata: org/texts\ntokenizer: org/words\nimage: reg/train:1\n")
    monkeypatch.setenv("STRATEGIST_CONFIG", str(tmp_path / "config.yaml"))
    out = tmp_path / "job"
    plan = ["plan", "--model", "8b", "--gpus", "8xH100", "--to", "axolotl", "--job", "jobset", "--job-output", str(out)]
    assert main(plan) == 0
    config, job = (out / "train.yaml").read_text(), (out / "jobset.yaml").read_text()
    for line in ('base_model: "/models/base"', 'path: "org/texts"', 'tokenizer_config: "org/words"'):
        assert line in config
        assert line in job
    assert 'image: "reg/train:1"' in job
    assert "missing: data" not in config + capsys.readouterr().err


def test_a_project_file_sets_the_backend_of_plan_only(capsys: Captured) -> None:
    write_project_file("backend: pytorch\n")
    assert plan(capsys, "--model", "tiny", "--gpus", "2xcpu").request.backend == "pytorch"
    assert "so a project's file must not set it" in refused(capsys, "tune")
