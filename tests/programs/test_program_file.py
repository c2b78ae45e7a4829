"""Program files: commands from plans, and errors of invalid files."""

import os
from pathlib import Path

import pytest

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.workload import Workload
from strategist.errors import FileError
from strategist.expr.columns import row_of
from strategist.files import yaml_file
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.programs.backends import find_program
from strategist.programs.program import Program
from strategist.programs.program_file import read_program
from strategist.search.facts import situation_facts

TEXT = """
program: mine
title: a test
devices: [cpu, cuda]
command:
  - train
  - --tp={layout.tp}
  - --micro={knobs.micro_batch}
  - --len={workload.seq_len}
  - --batch={workload.global_batch}
  - {when: layout.dp_shard > 1, arguments: [--shard, "{layout.dp_shard}"]}
  - knobs.recompute: {none: [], full: [--recompute]}
  - knobs.compile: {"true": [--compile], "false": []}
layout: {dp_replicate: any}
knobs: {reduce_dtype: [fp32, bf16]}
metrics: {lines: "step {step} took {step_seconds} s"}
"""
MODEL, CLUSTER, WORKLOAD = resolve_model("tiny").shape, resolve_cluster("4xcpu"), Workload(seq_len=64, global_batch=8)
FACTS = situation_facts(MODEL, CLUSTER, WORKLOAD)


def program(text: str = TEXT) -> Program:
    return read_program(yaml_file.parse(text, "mine.yaml"))


def candidate(layout: Layout, **knobs: object) -> Candidate:
    return Candidate(layout=layout, knobs=Knobs(**knobs))


def test_a_plan_fills_the_command() -> None:
    chosen = candidate(Layout(tp=2, dp_shard=2), micro_batch=2, recompute="full")
    facts = {**FACTS, **row_of(chosen, chosen.accumulation(WORKLOAD))}
    assert program().arguments(facts, {}) == (
        "train", "--tp=2", "--micro=2", "--len=64", "--batch=8", "--shard", "2", "--recompute",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (candidate(Layout(tp=2, dp_replicate=2), micro_batch=4, compile=True, reduce_dtype="bf16"), ""),
        (candidate(Layout(dp_shard=4)), ""),
        (candidate(Layout(cp=4)), "mine cannot run layout.cp = 4; it takes 1"),
        (candidate(Layout(dp_shard=4), recompute="selective"), "knobs.recompute = selective; it takes none, full"),
        (candidate(Layout(dp_shard=4), offload="all"), "knobs.offload = all; it takes none"),
    ],
)
def test_settings_without_an_argument_keep_their_default(chosen: Candidate, words: str) -> None:
    assert "; ".join(program().backend.refusals(chosen, MODEL, WORKLOAD, FACTS)).endswith(words)
    assert bool(program().backend.refusals(chosen, MODEL, WORKLOAD, FACTS)) == bool(words)


def test_no_sync_is_implied_by_a_pipeline_only() -> None:
    backend = program(TEXT.replace("layout: {", "layout: {pp: any, ")).backend
    assert not backend.refusals(candidate(Layout(pp=2, dp_shard=2), no_sync=True), MODEL, WORKLOAD, FACTS)
    (refusal,) = backend.refusals(candidate(Layout(dp_shard=4), no_sync=True), MODEL, WORKLOAD, FACTS)
    assert "only pipelines reduce once a step" in refusal


def test_a_program_lists_the_settings_it_supports() -> None:
    assert program().sets == (
        "layout.dp_replicate", "layout.dp_shard", "layout.tp", "knobs.micro_batch", "knobs.recompute (none, full)",
        "knobs.reduce_dtype (fp32, bf16)", "knobs.compile (true, false)",
    )  # fmt: skip


def test_an_unsupported_workload_is_refused() -> None:
    muon = Workload(seq_len=64, global_batch=8, optimizer="muon")
    assert program().backend.refusals(candidate(Layout(dp_shard=4)), MODEL, muon, FACTS) == (
        "mine cannot run workload.optimizer = muon; it takes adamw",
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("--tp={layout.tp}", "--tp={layout.tpp}", r"mine.yaml:7:5: unknown name layout\.tpp; did you mean layout\.tp\?"),
        ("program: mine", "programm: mine", r"unknown key 'programm'; did you mean program\?"),
        ("program: mine", "title2: mine", "unknown key 'title2'"),
        ("  - --len={workload.seq_len}\n", "", "does not pass workload.seq_len to the program; write {workload.seq_len} into"),
        ("  - --batch={workload.global_batch}\n", "", r"does not pass workload.global_batch.*global_batch: \[VALUE\]"),
        ("none: [], full:", "none: [], fully:", r"fully is not a value of knobs.recompute; its values are none, selective"),
        ("knobs.recompute:", "knobs.recomputes:", "knobs.recomputes is not a setting; did you mean knobs.recompute"),
        ("full: [--recompute]", "full: --recompute", "must be a list"),
        ("when: layout.dp_shard > 1", "when: layout.dp_shard", "true or false is needed"),
        ("arguments: [--shard", "argument: [--shard", "unknown key 'argument'; did you mean arguments"),
        ("  - train\n", "  - [train]\n", "command is a list of arguments, of which the first is what is run"),
        ("took {step_seconds} s", "took {step_secs} s", "unknown figure step_secs; did you mean step_seconds"),
        ("metrics: {lines:", "metrics: {line:", "unknown key 'line'; did you mean lines"),
        ('metrics: {lines: "step {step} took {step_seconds} s"}', "", "key 'metrics' is missing"),
        ('metrics: {lines: "step {step} took {step_seconds} s"}', "metrics: {warmup_steps: 3}", "metrics need lines"),
        ('lines: "step {step} took {step_seconds} s"', "json: a.json, fields: {tokens: b}", "unknown figure tokens"),
        ('lines: "step {step} took {step_seconds} s"', "fields: {loss: b}", "json does not name the file"),
        ("metrics: {", "metrics: {warmup_steps: -1, ", "warmup_steps is a whole number, 0 or more"),
        ("layout: {dp_replicate: any}", "layout: {dp: any}", "unknown key 'dp'"),
        ("reduce_dtype: [fp32, bf16]", "reduce_dtype: [fp8]", "reduce_dtype fp8 is not one of"),
        ("title: a test", "deadlines: {start: 3}", "unknown key 'start'"),
        ("title: a test", "passes: {a: b}", "passes must be a list"),
        ("title: a test", "out_of_memory: {exit_codes: [no]}", "int is needed"),
        ("title: a test", "environment: {MODE: {knobs.compil: {}}}", "knobs.compil is not a setting; did you mean knobs.compile"),
        ("title: a test", "environment: {MODE: {}}", "a variable depends on one setting"),
    ],
)  # fmt: skip
def test_an_invalid_program_file_raises_one_line_with_its_position(old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(FileError, match=words) as error:
        program(TEXT.replace(old, new))
    assert str(error.value).startswith("mine.yaml")
    assert "\n" not in str(error.value)


def test_an_environment_variable_may_depend_on_a_setting() -> None:
    text = TEXT.replace(
        "layout: {", 'environment: {FAST: "{layout.tp}", MODE: {knobs.compile: {"true": "a", "false": "b"}}}\nlayout: {'
    )
    chosen = candidate(Layout(tp=2, dp_shard=2), compile=True)
    facts = {**FACTS, **row_of(chosen, chosen.accumulation(WORKLOAD))}
    assert {name: value.filled(facts, {}) for name, value in program(text).environment.items()} == {"FAST": "2", "MODE": "a"}


def test_an_accumulation_argument_implies_the_global_batch() -> None:
    assert program(TEXT.replace("--batch={workload.global_batch}", "--accumulate={knobs.accumulation}")).name == "mine"


def test_a_constant_workload_value_can_be_declared() -> None:
    text = TEXT.replace("  - --len={workload.seq_len}\n", "") + "workload: {seq_len: [64]}\n"
    long = Workload(seq_len=128, global_batch=8)
    assert not program(text).backend.refusals(candidate(Layout(dp_shard=4)), MODEL, WORKLOAD, FACTS)
    assert "seq_len = 128; it takes 64" in program(text).backend.refusals(candidate(Layout(dp_shard=4)), MODEL, long, FACTS)[0]


def test_a_file_is_read_again_when_its_text_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TEXT)
    first, times = find_program(str(file)), file.stat()
    file.write_text(TEXT.replace("a test", "b test"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = find_program(str(file))
    assert first is not None
    assert second is not None
    assert (first.backend.title, second.backend.title) == ("a test", "b test")
