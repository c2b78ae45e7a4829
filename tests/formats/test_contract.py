"""What every format holds: what it says comes back as it was, what it cannot say is told, and no text gets out of its place."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from formats.plans import ALL, FEW, TRIED, a_plan, best_plans, deck, plans
from strategist.api import export_plan
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.knobs import show_value
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, full_name, value_of
from strategist.errors import InputError
from strategist.formats.catalog import find_format, formats, recognise
from strategist.formats.config_reader import parse_config
from strategist.formats.format import ExportedFiles, Format
from strategist.formats.setup import GivenValues, Setup, setup
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


def described(plan: Plan, name: str) -> tuple[Source, Format, Setup]:
    """What the format's file of a plan describes; what a format does not say itself is given as the plan has it."""
    return understood_of(find_format(name).write(plan, {"tp": "because"}), plan, name)


def understood_of(written: ExportedFiles, plan: Plan, name: str) -> tuple[Source, Format, Setup]:
    """What the first of these files describes, in the same way."""
    chosen, first = find_format(name), written.files[0]
    source = parse(first.text, first.name)
    assert recognise(source).name == name
    found = parse_config(source, chosen)
    workload = {key: getattr(plan.workload, key) for key in WORKLOAD if key not in found.workload}
    if "global_batch" in workload and found.accumulation is not None:
        del workload["global_batch"]
    model = {"model": plan.model.name} if found.model is None else {}
    elsewhere = {key: value_of(plan.candidate, key) for key in found.unsaid if key in SETTING_NAMES and key not in found.settings}
    return source, chosen, setup(source, found, GivenValues(gpus=plan.cluster.name, workload=workload, settings=elsewhere, **model))


def again(plan: Plan, name: str) -> tuple[Plan, dict[str, object], dict[str, object]]:
    """What comes back of a plan: settings and workload."""
    _, _, made = described(plan, name)
    assert not [item for item in made.findings if item.code in ("FMT-001", "FMT-002", "FMT-004", "FMT-008")]
    settings = {key: value_of(made.candidate, key) for key in SETTING_NAMES}
    assert made.situation.model == plan.model
    return plan, settings, vars(made.situation.request.workload)


@MADE
def test_what_a_format_can_say_comes_back_as_it_was(name: str, made: tuple[int, tuple[int, ...]]) -> None:
    tried = plans(name, *made)
    assert tried
    for plan, settings, workload in (again(plan, name) for plan in tried):
        differing = {
            key: (show_value(value_of(plan.candidate, key)), show_value(settings[key]))
            for key in SETTING_NAMES
            if plan.matters(key) and full_name(key) not in IN_ENVIRONMENT and settings[key] != value_of(plan.candidate, key)
        }
        assert not differing, plan.candidate
        assert workload == vars(plan.workload)


def test_each_setting_that_a_format_takes_is_among_the_plans(name: str) -> None:
    """Else nothing above would show that it comes back."""
    seen = {(key, value_of(plan.candidate, key)) for plan in plans(name, *FEW) for key in SETTING_NAMES}
    limits = load_backend(name).limits
    for key in TRIED:
        for value in limits.get(f"knobs.{key}", ()):
            assert (key, value) in seen, (key, value)


HEAD = re.compile(r"# (\d+) sequences of (\d+) tokens a step, ([\w-]+), (\w+)$", re.MULTILINE)
REMARK = re.compile(rf"# ({'|'.join(SETTING_NAMES)}) ([^\s:]+)(?::|$)", re.MULTILINE)


def test_the_comments_of_a_file_say_what_the_file_says(name: str) -> None:
    """Of plans that the format can say, and of those of our own runtime, of which it can say less."""
    claims = 0
    for plan in (*plans(name, *FEW), *plans("native", *FEW)):
        try:
            written = export_plan(plan, name)
        except InputError:
            continue
        _, _, made = understood_of(written, plan, name)
        workload = made.situation.request.workload
        text = "\n".join(file.text for file in written.files)
        for said in HEAD.findall(text):
            assert said == (str(workload.global_batch), str(workload.seq_len), workload.precision, workload.optimizer)
            claims += 1
        for setting, value in REMARK.findall(text):
            if full_name(setting) in IN_ENVIRONMENT:
                assert environment(plan).items() <= dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE)).items()
            else:
                assert value == show_value(value_of(made.candidate, setting)), (setting, plan.candidate)
            claims += 1
    assert claims


def test_what_a_file_lacks_is_in_its_head_and_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_learning_rate_is_written_or_told(name: str) -> None:
    """A plan has none, and each system's own is another: the exported script of torch has that of ``strategist run``."""
    written = find_format(name).write(a_plan(name), {})
    if name == "pytorch":
        assert any(f"LEARNING_RATE = {TrialSettings.learning_rate}" in file.text for file in written.files)
    else:
        assert any("learning rate" in need for need in written.needs)


def test_weights_data_and_tokenizer_come_in_the_place_of_placeholders(name: str) -> None:
    written, given = find_format(name).write(a_plan(name), {}), {"weights": "/w/1", "data": "s3://d/t.bin", "tokenizer": "org/t"}
    filled = written.with_inputs(given)
    for item in written.placeholders:
        assert any(item.text in file.text for file in written.files), item
        assert any(given[item.input] in file.text for file in filled.files), item
        assert item.need not in filled.needs
    assert {item.need for item in written.placeholders} - {""} <= set(written.needs)
    plan, same = a_plan(name), written.with_inputs({"data": given["data"], "tokenizer": given["tokenizer"]})
    assert understood_of(same, plan, name)[2].candidate == understood_of(written, plan, name)[2].candidate
    for wrong in ("a b", "a;b", "$(a)", "a\nb", '"', "-a", "a:"):
        with pytest.raises(InputError, match="is written into scripts"):
            written.with_inputs({"data": wrong})


def test_a_comment_stays_one(name: str) -> None:
    """Reasons come from cards, which anybody may write."""
    plan = a_plan(name)
    chosen = find_format(name)
    evil = dict.fromkeys(SETTING_NAMES, "x\n\ry: 1\u2028\x00 */ \"\"\" ''' ]] $(touch /tmp/canary) `id` #")
    for file, plain in zip(chosen.write(plan, evil).files, chosen.write(plan, {}).files, strict=True):
        read, expected = (parse(text, file.name).entries for text in (file.text, plain.text))
        assert {key: entry.value for key, entry in read.items()} == {key: entry.value for key, entry in expected.items()}


def test_what_a_format_cannot_say_of_a_plan_is_refused_or_told(name: str) -> None:
    """Plans of our own runtime, which does more than any format says."""
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
def test_the_best_plan_for_a_format_and_a_check_of_its_export_say_the_same(name: str, made: tuple[int, tuple[int, ...]]) -> None:
    """Both are priced as the format's own system runs them; where the file tells facts that the system's profile has otherwise,
    such as logits in pieces, no more is needed than was said."""
    for plan in best_plans(name, *made):
        source, chosen, made = described(plan, name)
        checked = imported(source, chosen, made, deck=deck()).plan
        assert checked is not None
        assert checked.stack == plan.stack == load_backend(name).stack != ""
        for figure in ("step_seconds", "peak_memory_bytes"):
            ratio = getattr(checked.estimate, figure) / getattr(plan.estimate, figure)
            assert ratio <= 1.02, plan.candidate
            assert made.stack or ratio >= 0.98, plan.candidate
