"""Contract of every format: supported settings survive a round trip, unsupported ones are findings, and texts are quoted."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from formats.plans import ALL, FEW, TRIED, a_plan, best_plans, deck, plans
from strategist.api import export_plan, write_files
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.knobs import show_value
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, full_name, value_of
from strategist.errors import InputError
from strategist.formats.catalog import find_format, formats, recognise
from strategist.formats.completed_config import GivenValues, Setup, setup
from strategist.formats.config_reader import parse_config, read
from strategist.formats.format import ExportedFiles, Format
from strategist.formats.source import Source, parse
from strategist.planning.review import imported
from strategist.programs.backends import load_backend
from strategist.programs.program_backend import IN_ENVIRONMENT
from strategist.search.facts import situation_facts

MADE = pytest.mark.parametrize("made", [pytest.param(FEW, id="few"), pytest.param((12, ALL), id="all", marks=pytest.mark.full)])
WORKLOAD = ("seq_len", "global_batch", "precision", "optimizer", "train", "lora_rank")


@pytest.fixture(params=formats())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def exported_setup(plan: Plan, name: str) -> tuple[Source, Format, Setup]:
    """The setup that the format's file of a plan describes; settings that the format cannot express are taken from the plan."""
    return setup_of_files(find_format(name).write(plan, {"tp": "because"}), plan, name)


def setup_of_files(written: ExportedFiles, plan: Plan, name: str) -> tuple[Source, Format, Setup]:
    """The setup that the first of these files describes, completed from the plan."""
    chosen, first = find_format(name), written.files[0]
    source = parse(first.text, first.name)
    assert recognise(source).name == name
    found = parse_config(source, chosen)
    workload = {key: getattr(plan.workload, key) for key in WORKLOAD if key not in found.workload}
    if "global_batch" in workload and found.accumulation is not None:
        del workload["global_batch"]
    model = {"model": plan.model.name} if found.model is None else {}
    from_plan = {key: value_of(plan.candidate, key) for key in found.unstated if key in SETTING_NAMES and key not in found.settings}
    return source, chosen, setup(source, found, GivenValues(gpus=plan.cluster.name, workload=workload, settings=from_plan, **model))


def round_trip(plan: Plan, name: str) -> tuple[Plan, dict[str, object], dict[str, object]]:
    """The plan, with settings and workload after export and import."""
    _, _, made = exported_setup(plan, name)
    assert not [item for item in made.findings if item.code in ("FMT-001", "FMT-002", "FMT-004", "FMT-008")]
    settings = {key: value_of(made.candidate, key) for key in SETTING_NAMES}
    assert made.situation.model == plan.model
    return plan, settings, vars(made.situation.request.workload)


@MADE
def test_supported_plans_survive_export_and_import(name: str, made: tuple[int, tuple[int, ...]]) -> None:
    tried = plans(name, *made)
    assert tried
    for plan, settings, workload in (round_trip(plan, name) for plan in tried):
        differing = {
            key: (show_value(value_of(plan.candidate, key)), show_value(settings[key]))
            for key in SETTING_NAMES
            if plan.matters(key) and full_name(key) not in IN_ENVIRONMENT and settings[key] != value_of(plan.candidate, key)
        }
        assert not differing, plan.candidate
        assert workload == vars(plan.workload)


def test_the_plans_cover_every_supported_value(name: str) -> None:
    """Otherwise the round trip would not cover it."""
    seen = {(key, value_of(plan.candidate, key)) for plan in plans(name, *FEW) for key in SETTING_NAMES}
    limits = load_backend(name).limits
    for key in TRIED:
        for value in limits.get(f"knobs.{key}", ()):
            assert (key, value) in seen, (key, value)


@pytest.mark.parametrize("index", [0, -1])
def test_the_start_script_of_an_export_is_read_as_the_file_with_its_settings(name: str, index: int, tmp_path: Path) -> None:
    plan = plans(name, *FEW)[index]
    written = export_plan(plan, name)
    write_files(written, tmp_path)
    start = next(file.name for file in written.files if file.runs)
    source, chosen, found = read(tmp_path / start)
    _, _, first = read(tmp_path / written.files[0].name)
    assert chosen.name == name
    assert found.settings.items() >= first.settings.items()
    assert Path(source.path).name in {file.name for file in written.files}


HEAD = re.compile(r"# (\d+) sequences of (\d+) tokens a step, ([\w-]+), (\w+)$", re.MULTILINE)
REMARK = re.compile(rf"# ({'|'.join(SETTING_NAMES)}) ([^\s:]+)(?::|$)", re.MULTILINE)


def test_comments_of_exported_files_match_their_values(name: str) -> None:
    """For plans that the format supports, and for native plans, which it supports in part."""
    claims = 0
    for plan in (*plans(name, *FEW), *plans("native", *FEW)):
        try:
            written = export_plan(plan, name)
        except InputError:
            continue
        _, _, made = setup_of_files(written, plan, name)
        workload = made.situation.request.workload
        text = "\n".join(file.text for file in written.files)
        for stated in HEAD.findall(text):
            assert stated == (str(workload.global_batch), str(workload.seq_len), workload.precision, workload.optimizer)
            claims += 1
        for setting, value in REMARK.findall(text):
            if full_name(setting) in IN_ENVIRONMENT:
                assert environment(plan).items() <= dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE)).items()
            else:
                assert value == show_value(value_of(made.candidate, setting)), (setting, plan.candidate)
            claims += 1
    assert claims


def test_missing_inputs_are_listed_in_the_file_and_printed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_plan(name)
    codec.save(plan, tmp_path / "plan.json")
    assert main(["export", str(tmp_path / "plan.json"), "--to", name, "-o", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().err
    written = export_plan(plan, name)
    assert written.needs
    text = "".join((tmp_path / "out" / file.name).read_text(encoding="utf-8") for file in written.files)
    for need in written.needs:
        assert text.count(f"# missing: {need}\n") == 1
        assert f"missing: {need}\n" in printed


def test_a_learning_rate_is_written_or_listed_as_missing(name: str) -> None:
    """A plan has none: each file has the one placeholder, or leaves it to the user's program."""
    written = find_format(name).write(a_plan(name), {})
    [need] = [need for need in written.needs if "learning rate" in need]
    if "placeholder" in need:
        assert need.endswith(f"is the placeholder {LEARNING_RATE}")
    text = "".join(file.text for file in written.files)
    rates = re.findall(r"""\b(?:learning_rate|lr)["']?(?:[:= ]| = ) *([0-9][0-9.e-]*)""", text, re.IGNORECASE)
    assert {float(rate) for rate in rates} == ({LEARNING_RATE} if f" {LEARNING_RATE}" in need else set())


def test_a_length_of_the_training_is_listed_as_missing_or_left_to_the_program(name: str) -> None:
    """A plan has no number of steps: a file that states one, or a trainer that assumes one, lists it."""
    written = find_format(name).write(a_plan(name), {})
    text = "".join(file.text for file in written.files if not file.name.endswith(".py"))
    stated = re.findall(r"(?:num_train_epochs|num_epochs|train_steps|--train-iters)[:=] ?([0-9.]+)", text)
    listed = [need for need in written.needs if re.match(r"[a-z, ]*\bsteps\b", need)]
    assert len(listed) == (name not in ("deepspeed", "accelerate", "lightning"))  # there the user's program decides it
    assert all(f"is the placeholder {steps}" in listed[0] for steps in stated)


def test_no_reason_is_stated_twice(name: str) -> None:
    """A reason is written beside the entry of its setting, or in the head of the file where no entry states the setting."""
    reasons = {setting: f"because of {setting}" for setting in SETTING_NAMES}
    for plan in plans(name, *FEW):
        for file in find_format(name).write(plan, reasons).files:
            head = {line.removeprefix("# ") for line in file.text.splitlines() if line.startswith("# ")}
            assert not [line for line in head if "because of" in line and f"  # {line}" in file.text], plan.candidate


def test_values_that_a_format_does_not_choose_have_no_reason(name: str) -> None:
    """Such as a degree of pipelines where the framework has none: a card's reason for it decided nothing."""
    backend = load_backend(name)
    for plan in plans(name, FEW[0], FEW[1][:1]):
        text = "\n".join(file.text for file in export_plan(plan, name).files)
        fixed = [setting for setting in SETTING_NAMES if not backend.varies(full_name(setting))]
        assert fixed
        assert not [setting for setting in fixed if f"# {setting} {show_value(value_of(plan.candidate, setting))}: " in text]


def test_weights_data_and_tokenizer_replace_their_placeholders(name: str) -> None:
    written, given = find_format(name).write(a_plan(name), {}), {"weights": "/w/1", "data": "s3://d/t.bin", "tokenizer": "org/t"}
    filled = written.with_inputs(given)
    for item in written.placeholders:
        assert any(item.text in file.text for file in written.files), item
        assert any(given[item.input] in file.text for file in filled.files), item
        assert item.need not in filled.needs
    assert {item.need for item in written.placeholders} - {""} <= set(written.needs)
    plan, same = a_plan(name), written.with_inputs({"data": given["data"], "tokenizer": given["tokenizer"]})
    assert setup_of_files(same, plan, name)[2].candidate == setup_of_files(written, plan, name)[2].candidate
    for wrong in ("a b", "a;b", "$(a)", "a\nb", '"', "-a", "a:"):
        with pytest.raises(InputError, match="is written into scripts"):
            written.with_inputs({"data": wrong})


def test_hostile_reasons_stay_inside_comments(name: str) -> None:
    """Reasons come from cards, which may come from any source."""
    plan = a_plan(name)
    chosen = find_format(name)
    evil = dict.fromkeys(SETTING_NAMES, "x\n\ry: 1\u2028\x00 */ \"\"\" ''' ]] $(touch /tmp/canary) `id` #")
    for file, plain in zip(chosen.write(plan, evil).files, chosen.write(plan, {}).files, strict=True):
        read, expected = (parse(text, file.name).entries for text in (file.text, plain.text))
        assert {key: entry.value for key, entry in read.items()} == {key: entry.value for key, entry in expected.items()}


def test_unsupported_plans_are_refused_or_have_a_finding(name: str) -> None:
    """Plans of the native runtime, which supports more than any format."""
    limits, refused = load_backend(name), 0
    for plan in plans("native", *FEW):
        facts = situation_facts(plan.model, plan.cluster, plan.workload)
        expressible = limits.runs(plan.candidate, plan.model, plan.workload, facts)
        written: ExportedFiles | None = None
        with suppress(InputError):
            written = export_plan(plan, name)
        if expressible:
            assert written is not None, plan.candidate
        elif written is not None:
            assert any(found.code == "FMT-007" for found in written.findings), plan.candidate
        refused += not expressible
    assert refused


@MADE
def test_checking_an_export_gives_the_planned_step_and_memory(name: str, made: tuple[int, tuple[int, ...]]) -> None:
    """Both are priced with the stack of the framework that runs the file, which is DeepSpeed's where a trainer's file holds its
    configuration; if the file states facts that differ from the stack's profile, such as chunked logits, the check is at most as
    high.
    """
    stacks = set()
    for plan in (*best_plans(name, *made), *plans(name, *FEW), *plans(name, 3, (5,))):
        source, chosen, described = exported_setup(plan, name)
        checked = imported(source, chosen, described, deck=deck()).plan
        assert checked is not None
        assert checked.stack == plan.stack != "", plan.candidate
        stacks.add(plan.stack)
        for figure in ("step_seconds", "peak_memory_bytes"):
            ratio = getattr(checked.estimate, figure) / getattr(plan.estimate, figure)
            assert ratio <= 1.02, plan.candidate
            assert set(described.stack) - {"name"} or ratio >= 0.98, plan.candidate
    backend = load_backend(name)
    assert stacks == {backend.stack, *(item.stack for item in backend.stacks)}
