"""``programs``, and ``plan``, ``run`` and ``tune`` with an external program."""

import json
import shutil
from pathlib import Path

import pytest
from programs.quick import quick_tuning

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.executors import processes
from strategist.search.tuning_result import TuningResult

TRAINER = Path(__file__).parents[1] / "programs" / "trainer.py"
TEXT = """
program: mine
title: a stand-in
command:
  - "{python}"
  - "{here}/trainer.py"
  - --tp={layout.tp}
  - --micro-batch={knobs.micro_batch}
  - --seq-len={workload.seq_len}
  - --global-batch={workload.global_batch}
  - --world-size={layout.world_size}
  - --steps={steps}
  - --limit-gib=3
  - knobs.recompute: {none: [], full: [--recompute]}
layout: {dp_shard: any}
metrics: {lines: "step: {step} loss: {loss} ... memory: {peak_memory_gib}GiB( ... tps: {tokens_per_second_per_device}"}
"""
TINY = ["--model", "tiny", "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "8"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    shutil.copy(TRAINER, tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_an_external_program_is_tuned(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study"
    arguments = [
        "tune",
        *TINY,
        "--backend",
        str(program),
        "--study",
        str(study),
        "--steps",
        "4",
        "--confirm",
        "0",
        "--confidence",
        "0.5",
    ]
    assert main([*arguments, "--trials", "4", "--json"]) == 0
    result = codec.loads(TuningResult, capsys.readouterr().out)
    assert len(result.trials) == 4
    for trial in result.trials:
        knobs, layout = trial.plan.candidate.knobs, trial.plan.candidate.layout
        needed = knobs.micro_batch * (1 if knobs.recompute == "full" else 2) / layout.tp
        assert trial.measurement.outcome is (Outcome.OOM if needed > 3 else Outcome.OK)
        assert (layout.pp, layout.cp, layout.dp_replicate, knobs.offload, knobs.compile) == (1, 1, 1, "none", False)
        assert "mine" in trial.plan.backends
    assert result.best is not None
    assert result.errors_before.trials == sum(trial.measurement.outcome is Outcome.OK for trial in result.trials)
    assert processes.tagged(f"{study.resolve()}.") == {}
    program.write_text(TEXT.replace("--limit-gib=3", "--limit-gib=4"), encoding="utf-8")
    assert main([*arguments, "--trials", "5"]) == 2
    assert "was started with another version of the program's file; use a new study folder" in capsys.readouterr().err


def test_a_plan_is_run_by_an_external_program(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "plan.json", tmp_path / "out"
    assert main(["plan", *TINY, "--backend", str(program), "--fix", "micro_batch=1", "-o", str(file), "--json"]) == 0
    assert main(["programs", str(program), "--plan", str(file)]) == 0
    assert "trainer.py --tp=" in capsys.readouterr().out  # on one line, to be copied
    assert main(["run", str(file), "--backend", str(program), "--out", str(out), "--steps", "3"]) == 0
    assert "ran to its end" in capsys.readouterr().out
    assert codec.load(Measurement, out / "measurement.json").versions["program"] == "mine"
    program.write_text(TEXT.replace("--limit-gib=3", "--limit-gib=0"), encoding="utf-8")
    assert main(["run", str(file), "--backend", str(program), "--out", str(tmp_path / "full"), "--steps", "3"]) == 1
    text = capsys.readouterr().out
    assert "ran out of memory" in text
    assert "Evidence" in text


def test_a_plan_that_a_program_cannot_run_is_refused(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert main(["plan", *TINY, "--fix", "dp_replicate=2", "-o", str(file), "--json"]) == 0
    assert codec.load(Plan, file).candidate.layout.dp_replicate == 2
    capsys.readouterr()
    assert main(["run", str(file), "--backend", str(program)]) == 2
    err = capsys.readouterr().err
    assert "mine cannot run layout.dp_replicate = 2; it takes 1" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "plan-run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", *TINY, "--backend", "PROGRAM", "--study", "STUDY", "--shadow"], "--shadow: is of strategist's own trainer"),
        (["tune", *TINY, "--backend", "missing.yaml", "--study", "STUDY"], "missing.yaml: cannot be read"),
        (["tune", *TINY, "--backend", "torchtitn", "--study", "STUDY"], "did you mean torchtitan"),
        (["tune", *TINY, "--backend", "torchtitan", "--study", "STUDY"], "torchtitan runs on cuda, not on cpu"),
        (["tune", *TINY, "--optimizer", "muon", "--backend", "PROGRAM", "--study", "STUDY"], "optimizer = muon; it takes adamw"),
        (["programs", "nemo"], "program nemo: is not known"),
        (["programs", "--plan", "plan.json"], "name it: strategist programs NAME --plan FILE"),
    ],
)  # fmt: skip
def test_a_wrong_program_option_prints_one_error_line(
    arguments: list[str], words: str, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"PROGRAM": str(program), "STUDY": str(tmp_path / "study")}
    assert main([places.get(item, item) for item in arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_memory_objective_needs_a_program_that_reports_memory(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(TEXT[: TEXT.index("metrics:")] + "metrics: {lines: 'step: {step}'}\n", encoding="utf-8")
    tune = ["tune", *TINY, "--backend", str(program), "--study", str(tmp_path / "study"), "--objective", "memory"]
    assert main(tune) == 2
    assert "--objective memory: mine does not report its memory" in capsys.readouterr().err


def test_shipped_programs_list_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["programs"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("torchtitan TorchTitan's trainer", "megatron-lm", "llama-factory", "needs CONFIG_FILE", "knobs.recompute (none,"):
        assert words in text
    assert main(["programs", "--json"]) == 0
    named = {item["program"]: item for item in json.loads(capsys.readouterr().out)}
    assert "layout.tp" in named["torchtitan"]["sets"]
    assert "layout.tp" not in named["llama-factory"]["sets"]
    assert main(["programs", "megatron-lm"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("Can set", "Refuses", "Command", "elapsed time per iteration (ms): {step_milliseconds}", "MEGATRON_LM"):
        assert words in text


def test_a_crashing_setting_is_identified_and_avoided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program crashes if it recomputes; the random sampler proposes recomputation until the cause is identified."""
    assert main([*quick_tuning(tmp_path, "crash"), "--steps", "4", "--sampler", "random", "--trials", "12", "--json"]) == 0
    result = codec.loads(TuningResult, capsys.readouterr().out)
    (cause,) = result.crash_causes
    assert cause.settings == {"knobs.recompute": "full"}
    recomputing = [trial.number for trial in result.trials if trial.plan.candidate.knobs.recompute == "full"]
    assert set(recomputing) == set(cause.crashed)
    assert len(recomputing) >= 2
    assert max(recomputing) < 12
    assert main([*quick_tuning(tmp_path, "crash"), "--steps", "4", "--trials", "12"]) == 0
    text_after = " ".join(capsys.readouterr().out.split())
    assert "recompute=full" in text_after
    assert "the same but for this, ran" in text_after
