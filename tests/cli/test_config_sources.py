"""What stands where the command line says nothing."""

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
    """A folder to work in, and a person without a file, yet."""
    (tmp_path / "here").mkdir()
    (tmp_path / "person" / "strategist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "person"))
    monkeypatch.delenv("STRATEGIST_CONFIG")
    return tmp_path


def of_folder(text: str) -> None:
    Path("strategist.yaml").write_text(text, encoding="utf-8")


def of_person(text: str) -> None:
    config_sources.user_file().write_text(text, encoding="utf-8")


def asked(capsys: Captured, *more: str) -> Answer:
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


def test_the_nearest_is_heard(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    of_person("gpus: 8xcpu\n")
    assert asked(capsys).request.gpus == "8xcpu"
    of_folder("gpus: 4xcpu\n")
    assert asked(capsys).request.gpus == "4xcpu"
    monkeypatch.setenv("STRATEGIST_GPUS", "2xcpu")
    assert asked(capsys).request.gpus == "2xcpu"
    assert asked(capsys, "--gpus", "1xcpu").request.gpus == "1xcpu"


def test_a_command_s_own_goes_before_what_is_shared(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    of_folder("gpus: 4xcpu\nplan: {gpus: 8xcpu, top: 1}\n")
    answer = asked(capsys)
    assert (answer.request.gpus, len(answer.plans)) == ("8xcpu", 1)
    monkeypatch.setenv("STRATEGIST_GPUS", "1xcpu")
    monkeypatch.setenv("STRATEGIST_PLAN_GPUS", "2xcpu")
    assert asked(capsys).request.gpus == "2xcpu"


def test_settings_are_a_mapping_and_none_is_added_to_those_that_are_typed(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_folder("gpus: 4xcpu\nfix: {tp: 2, sequence_parallel: false}\n")
    assert asked(capsys).request.fix == {"tp": 2, "sequence_parallel": False}
    assert asked(capsys, "--fix", "pp=2").request.fix == {"pp": 2}
    monkeypatch.setenv("STRATEGIST_FIX", "tp=4 recompute=full")
    assert asked(capsys).request.fix == {"tp": 4, "recompute": "full"}


def test_a_request_file_says_all_that_it_wants_said(capsys: Captured) -> None:
    of_folder("gpus: 8xcpu\nobjective: memory\n")
    Path("request.yaml").write_text("model: tiny\ngpus: 4xcpu\nseq_len: 128\nglobal_batch: 16\n", encoding="utf-8")
    assert main(["plan", "--request", "request.yaml", "--json"]) == 0
    request = codec.loads(Answer, capsys.readouterr().out).request
    assert (request.gpus, request.objective) == ("4xcpu", "throughput")
    of_folder("gpus: 8xcpu\nplan: {request: request.yaml}\n")
    assert asked(capsys).request.gpus == "4xcpu"


def test_options_of_the_same_name_but_of_no_request_do_not_hear_it(capsys: Captured) -> None:
    """``scale --gpus`` counts devices, ``cards lint --fix`` corrects files, ``check --gpus`` goes before what a file says."""
    of_folder("gpus: 8x24GB\nfix: {tp: 2}\n")
    parser = whole_parser(COMMANDS)
    heard = config_sources.sources(COMMANDS)
    for words in (["scale", "plan.json"], ["cards", "lint"], ["check", "file.yaml"], ["study", "import", "s"]):
        assert config_sources.with_default_values(parser, words, heard)[1] == ()


def test_what_cannot_be_said_together_is_left_out(capsys: Captured) -> None:
    of_folder("simulate: {all_stages: true, rank: 1}\n")
    parser, heard = whole_parser(COMMANDS), config_sources.sources(COMMANDS)
    words, found = config_sources.with_default_values(parser, ["simulate", "plan.json", "--stage", "0"], heard)
    assert not found
    assert words == ["simulate", "plan.json", "--stage", "0"]


def test_options_stand_before_what_is_typed_and_flags_are_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    of_folder("cards: [mine, yours]\ntune: {quiet: off, trials: 4}\nstudy: {show: {json: true}}\n")
    parser, heard = whole_parser(COMMANDS), config_sources.sources(COMMANDS)
    tune, _ = config_sources.with_default_values(parser, ["tune", "--model", "8b"], heard)
    assert tune[:1] + sorted(tune[1:4]) + tune[4:] == ["tune", "--cards=mine", "--cards=yours", "--trials=4", "--model", "8b"]
    assert config_sources.with_default_values(parser, ["study", "show", "s"], heard)[0] == ["study", "show", "--json", "s"]
    monkeypatch.setenv("STRATEGIST_STUDY_SHOW_JSON", "0")
    assert config_sources.with_default_values(parser, ["study", "show", "s"], heard)[0] == ["study", "show", "s"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpuz: 8x24GB\n", "strategist.yaml:1:1: unknown key 'gpuz'; did you mean gpus?"),
        ("plan: {topp: 1}\n", "strategist.yaml:1:8: unknown key 'topp'; did you mean top?"),
        ("trials: 4\n", "strategist.yaml:1:1: unknown key 'trials'"),
        ("plan: 4\n", "strategist.yaml:1:7: plan must be a mapping"),
        ("gpus: [4xcpu, 8xcpu]\n", "strategist.yaml:1: ['4xcpu', '8xcpu']: --gpus takes one value; leave one"),
        ("plan: {json: maybe}\n", "strategist.yaml:1: maybe: --json is on or off; write true or false"),
        ("gpus: true\n", "strategist.yaml:1: True: --gpus takes a text or a number"),
        ("gpus: &a 8\n", "strategist.yaml:1:7: "),
        ("gpus: 8x24GX\n", "(--gpus stands in strategist.yaml:1)"),
        ("gpus: 4xcpu\nplan: {top: none}\n", "(--top stands in strategist.yaml:2)"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(text: str, said: str, capsys: Captured) -> None:
    of_folder(text)
    assert said in refused(capsys)


def test_the_place_is_not_said_of_what_was_typed(capsys: Captured) -> None:
    of_folder("gpus: 4xcpu\n")
    assert "stands in" not in refused(capsys, *PLAN, "--gpus", "8x24GX")


@pytest.mark.parametrize("name", sorted(config_sources.TRUSTED_OPTIONS))
def test_a_folder_cannot_say_what_runs_programs_or_sends_data_away(name: str, capsys: Captured) -> None:
    parser = whole_parser(COMMANDS)
    option = f"--{name.replace('_', '-')}"
    paths = (path for path, command in parser.subcommands() if path and option in command.own_options())
    heard = [("tune",)] if name in config_sources.REQUEST else list(paths)
    path = heard[0]
    text = (
        f"{name}: x\n"
        if name in config_sources.SHARED_OPTIONS
        else json.dumps({path[0]: {path[1]: {name: 1}} if path[1:] else {name: 1}})
    )
    of_folder(text)
    assert f"{name} may run programs, write files or send data away" in refused(capsys, *path)
    Path("strategist.yaml").unlink()
    of_person(text)
    assert config_sources.default_values(dict(parser.subcommands())[path], path, config_sources.sources(COMMANDS))[0].name == name


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("plan",), "plan: {output: x}"), (("report",), "report: {out: x}"), (("export",), "export: {output: x}"),
        (("run",), "run: {save: x}"), (("run",), "run: {hf: x}"), (("run",), "run: {resume: x}"), (("tune",), "tune: {study: x}"),
        (("cards", "test"), "cards: [x]"), (("cards", "lint"), "cards: {lint: {fix: true}}"),
    ],
)  # fmt: skip
def test_nor_where_something_is_written_or_loaded_nor_what_is_run_or_changed(
    path: tuple[str, ...], text: str, capsys: Captured
) -> None:
    of_folder(text)
    assert "so a folder cannot say it" in refused(capsys, *path)


def test_a_folder_says_which_cards_and_factors_decide() -> None:
    of_folder("cards: [mine]\ncalibration: here.json\nplan: {request: request.yaml}\n")
    commands = dict(whole_parser(COMMANDS).subcommands())
    found = config_sources.default_values(commands[("plan",)], ("plan",), config_sources.sources(COMMANDS))
    assert {one.name for one in found} == {"cards", "calibration", "request"}


def test_a_folder_grants_agents_nothing(capsys: Captured) -> None:
    of_folder("mcp: {grant: 'trials=3,minutes=30'}\n")
    assert "grant may run programs" in refused(capsys, "mcp")


def test_help_comes_whatever_is_wrong(capsys: Captured) -> None:
    of_folder("gpuz: 1\n")
    assert main(["plan", "--help"]) == 0
    assert "--gpus" in capsys.readouterr().out


def test_one_file_may_stand_for_both_or_none(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    of_folder("gpus: 4xcpu\n")
    of_person("objective: memory\n")
    Path("other.yaml").write_text("gpus: 2xcpu\n", encoding="utf-8")
    monkeypatch.setenv("STRATEGIST_CONFIG", "other.yaml")
    request = asked(capsys).request
    assert (request.gpus, request.objective) == ("2xcpu", "throughput")
    monkeypatch.setenv("STRATEGIST_CONFIG", "")
    assert "--gpus: is missing" in refused(capsys)
    monkeypatch.setenv("STRATEGIST_CONFIG", "none.yaml")
    assert "none.yaml: cannot be read" in refused(capsys)


def test_what_is_shared_and_what_is_trusted_are_options() -> None:
    counts = Counter(
        action.dest for path, command in whole_parser(COMMANDS).subcommands() if path for action in command._actions
        if isinstance(action, argparse.Action)
    )  # fmt: skip
    assert all(counts[name] > 1 for name in config_sources.SHARED_OPTIONS)
    assert all(counts[name] for name in config_sources.TRUSTED_OPTIONS)
    assert set(config_sources.REQUEST) < set(config_sources.SHARED_OPTIONS)


def test_all_that_stands_is_shown(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    of_person("gpus: 8x24GB\ntune: {trials: 40}\n")
    of_folder("gpus: 4xcpu\n")
    monkeypatch.setenv("STRATEGIST_GPUS", "2xcpu")
    monkeypatch.setenv("STRATEGIST_GPU", "2xcpu")
    assert main(["config", "--json"]) == 0
    found = codec.loads(Configuration, capsys.readouterr().out)
    person = str(config_sources.user_file())
    assert found.files == {"strategist.yaml": True, person: True}
    assert found.unknown_variables == ("STRATEGIST_GPU",)
    gpus, trials = found.options
    assert (gpus.words, gpus.source, gpus.before) == (("--gpus=2xcpu",), "STRATEGIST_GPUS", ("strategist.yaml:1", f"{person}:1"))
    assert gpus.commands == ("plan", "tune")
    assert (trials.words, trials.source, trials.commands) == (("--trials=40",), f"{person}:2", ("tune",))
    assert main(["config"]) == 0
    text = capsys.readouterr().out
    assert "STRATEGIST_GPUS, before strategist.yaml:1" in text
    assert "- STRATEGIST_GPU\n" in text


def test_what_is_wrong_in_any_command_s_part_is_said_by_config(capsys: Captured) -> None:
    of_folder("scale: {stepps: 4}\n")
    assert "did you mean steps?" in refused(capsys, "config")


def test_nothing_stands(capsys: Captured) -> None:
    assert main(["config"]) == 0
    assert capsys.readouterr().out.startswith("Nothing stands")


def test_an_export_takes_model_data_and_image_from_the_persons_file(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command from the answer to the job."""
    (tmp_path / "config.yaml").write_text("weights: /models/base\ndata: org/texts\ntokenizer: org/words\nimage: reg/train:1\n")
    monkeypatch.setenv("STRATEGIST_CONFIG", str(tmp_path / "config.yaml"))
    out = tmp_path / "job"
    asked = ["plan", "--model", "8b", "--gpus", "8xH100", "--to", "axolotl", "--job", "jobset", "--job-output", str(out)]
    assert main(asked) == 0
    config, job = (out / "train.yaml").read_text(), (out / "jobset.yaml").read_text()
    for line in ('base_model: "/models/base"', 'path: "org/texts"', 'tokenizer_config: "org/words"'):
        assert line in config
        assert line in job
    assert 'image: "reg/train:1"' in job
    assert "missing: data" not in config + capsys.readouterr().err


def test_a_folder_remembers_the_framework_for_plan(capsys: Captured) -> None:
    of_folder("backend: pytorch\n")
    assert asked(capsys, "--model", "tiny", "--gpus", "2xcpu").request.backend == "pytorch"
    assert "so a folder cannot say it" in refused(capsys, "tune")
