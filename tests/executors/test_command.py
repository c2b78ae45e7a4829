"""External programs in real processes: measured, or with the outcome of their failure; no process is left."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from executors.conftest import full_only

from strategist.contract import codec
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.errors import InputError
from strategist.executors import processes
from strategist.executors.command import CommandExecutor
from strategist.files import yaml_file
from strategist.programs.program_file import read_program

TRAINER = Path(__file__).parents[1] / "programs" / "trainer.py"
TITAN = "step: {step} loss: {loss} grad_norm: {grad_norm} memory: {peak_reserved_gib}GiB ... tps: {tokens_per_second_per_device}"
TEXT = f"""
program: mine
command:
  - "{{python}}"
  - {TRAINER}
  - --tp={{layout.tp}}
  - --micro-batch={{knobs.micro_batch}}
  - --seq-len={{workload.seq_len}}
  - --global-batch={{workload.global_batch}}
  - --world-size={{layout.world_size}}
  - --steps={{steps}}
  - MORE
layout: {{dp_shard: any}}
metrics: {{lines: "{TITAN}"}}
"""
SETTINGS = TrialSettings(steps=6, warmup_steps=2)


def executor(*more: str, text: str = TEXT, study: str = "command") -> CommandExecutor:
    arguments = "".join(f"\n  - {item}" for item in more)
    return CommandExecutor(program=read_program(yaml_file.parse(text.replace("\n  - MORE", arguments), "mine.yaml")), study=study)


def run(plan: Plan, folder: Path, *more: str, text: str = TEXT, settings: TrialSettings = SETTINGS) -> Measurement:
    measurement = executor(*more, text=text).execute(plan, folder, settings)
    assert processes.tagged("command.") == {}
    assert codec.load(Measurement, folder / "measurement.json") == measurement
    return measurement


def test_a_program_is_measured(plan: Plan, tmp_path: Path) -> None:
    told: list[Progress] = []
    measurement = executor("--start-seconds=0.5").execute(plan, tmp_path, SETTINGS, told.append)
    assert measurement.outcome is Outcome.OK, measurement.evidence
    assert 2 <= measurement.steps_measured <= 6
    assert measurement.step_seconds > 0.008
    assert measurement.tokens_per_second == pytest.approx(64 / measurement.step_seconds)
    assert measurement.peak_reserved_bytes == (2 * 2**30,)
    assert measurement.peak_memory_bytes == ()
    assert measurement.losses[:2] == (8.0, 4.0)
    assert measurement.versions["program"] == "mine"
    assert [event.step for event in told if event.step] == sorted(event.step for event in told if event.step)
    assert {"init", "measure"} <= {event.phase for event in told}
    assert "Starting --tp=1 --micro-batch=1" in (tmp_path / "rank-0.log").read_text(encoding="utf-8")


def test_metrics_are_read_from_the_programs_file(plan: Plan, tmp_path: Path) -> None:
    fields = "{step_seconds: time.steps, peak_memory_gib: memory.peak_gib}"
    text = TEXT[: TEXT.index("metrics:")] + f'metrics: {{json: "{{folder}}/m.json", fields: {fields}}}'
    measurement = run(plan, tmp_path, "--quiet", '"--json={folder}/m.json"', text=text)
    assert measurement.outcome is Outcome.OK, measurement.evidence
    assert measurement.peak_memory_bytes == (2 * 2**30,)
    assert measurement.step_seconds > 0.008
    assert measurement.notes == ()


def test_steps_without_a_time_are_timed_by_their_log_lines(plan: Plan, tmp_path: Path) -> None:
    text = TEXT[: TEXT.index("metrics:")] + 'metrics: {lines: "step: {step} loss: {loss}"}'
    measurement = run(plan, tmp_path, text=text)
    assert measurement.outcome is Outcome.OK, measurement.evidence
    assert "timed by the arrival of the program's log lines" in measurement.notes[0]


@pytest.mark.parametrize(
    ("more", "outcome", "words"),
    [
        (("--limit-gib=1",), Outcome.OOM, "CUDA out of memory. Tried to allocate 2.0 GiB"),
        full_only(("--fault=swallowed", "--quiet"), Outcome.OOM, "CUDA out of memory, says a rank"),
        (("--fault=crash",), Outcome.CRASH, "ended with exit code 1: RuntimeError: a layer cannot be split so"),
        full_only(("--fault=exit-77",), Outcome.CRASH, "exit code 77"),
        full_only(("--fault=exit-42",), Outcome.CRASH, "exit code 42"),
        full_only(("--fault=killed",), Outcome.CRASH, "signal 9"),
        (("--fault=nan",), Outcome.NAN, "the loss of step 5 is nan"),
        (("--fault=child",), Outcome.OK, ""),
        (("--quiet",), Outcome.BAD_MEASUREMENT, "nothing that it wrote gives the time of a step after warm-up"),
        full_only(("--no-such-flag",), Outcome.CRASH, "unrecognized arguments: --no-such-flag"),
    ],
)  # fmt: skip
def test_each_end_of_a_program_has_its_outcome(
    plan: Plan, tmp_path: Path, more: tuple[str, ...], outcome: Outcome, words: str
) -> None:
    measurement = run(plan, tmp_path, *more)
    assert measurement.outcome is outcome, measurement.evidence
    assert words in measurement.evidence.message
    assert measurement.evidence.rank is None
    assert measurement.lost_ranks == ()


def test_a_program_file_defines_out_of_memory(plan: Plan, tmp_path: Path) -> None:
    told = "out_of_memory: {exit_codes: [42], says: [cannot be split so]}\n"
    assert run(plan, tmp_path / "a", "--fault=exit-42", text=TEXT + told).outcome is Outcome.OOM
    assert run(plan, tmp_path / "b", "--fault=crash", text=TEXT + told).outcome is Outcome.OOM


def test_a_hung_program_is_terminated(plan: Plan, tmp_path: Path) -> None:
    measurement = run(plan, tmp_path, "--fault=hang", text=TEXT + "deadlines: {step_seconds: 2}\n")
    assert measurement.outcome is Outcome.TIMEOUT
    assert "no rank moved any more" in measurement.evidence.message
    assert "step:  2" in measurement.evidence.log_tail


def test_a_program_without_a_first_step_is_terminated(plan: Plan, tmp_path: Path) -> None:
    text = TEXT.replace(str(TRAINER), '-c\n  - "import time; time.sleep(600)"')
    measurement = run(plan, tmp_path, text=text + "deadlines: {start_seconds: 0.5}\n")
    assert measurement.outcome is Outcome.TIMEOUT
    assert "were not ready in time" in measurement.evidence.message


def test_an_exception_of_the_event_callback_terminates_the_program(plan: Plan, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor("--fault=hang").execute(plan, tmp_path, SETTINGS, interrupt)
    assert processes.tagged("command.") == {}


def test_the_environment_of_a_program_is_that_of_its_file(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "given")
    monkeypatch.setenv("A_PASSWORD", "hidden")
    script = "import os; print({n: os.environ.get(n) for n in ('A_TOKEN', 'A_PASSWORD', 'DEGREE', 'RANK')})"
    text = TEXT.replace(str(TRAINER), f'-c\n  - "{script.replace("{", "{{").replace("}", "}}")}"')
    run(plan, tmp_path, text=text + 'passes: [A_TOKEN]\nenvironment: {DEGREE: "{layout.dp_shard}"}\n')
    log = (tmp_path / "rank-0.log").read_text(encoding="utf-8")
    assert "{'A_TOKEN': 'given', 'A_PASSWORD': None, 'DEGREE': '2', 'RANK': None}" in log


def test_a_command_is_not_parsed_by_a_shell(plan: Plan, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    measurement = run(plan, tmp_path / "out", f'"; touch {marker}"', f'"$(touch {marker})"')
    assert measurement.outcome is Outcome.CRASH
    assert not marker.exists()


def test_preflight_refuses_faults_that_would_fail_every_trial(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_CONFIG", raising=False)
    with pytest.raises(InputError, match="no-such-program is not installed here"):
        executor(text=TEXT.replace('"{python}"', "no-such-program")).preflight(plan)
    with pytest.raises(InputError, match="environment variable MY_CONFIG: the program mine is made with it, and it is not set"):
        executor('"--config={environment.MY_CONFIG}"').preflight(plan)
    on_gpus = replace(plan, cluster=replace(plan.cluster, device=replace(plan.cluster.device, kind="cuda")))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InputError, match="this machine shows 0 devices"):
        executor().preflight(on_gpus)
    with pytest.raises(InputError, match="learning rate: is for strategist's own trainer, and mine is another"):
        executor().execute(plan, tmp_path / "out", replace(SETTINGS, learning_rate=1.0))
    assert not (tmp_path / "out").exists()


def test_settings_are_filled_into_the_command(plan: Plan, tmp_path: Path) -> None:
    chosen = Candidate(layout=Layout(tp=2), knobs=Knobs(micro_batch=4))
    words = executor('"--seed={seed}"', '"{plan}"').command(replace(plan, candidate=chosen), tmp_path, replace(SETTINGS, seed=7))
    assert words[:4] == (sys.executable, str(TRAINER), "--tp=2", "--micro-batch=4")
    assert words[-3:] == ("--steps=8", "--seed=7", f"{tmp_path}{os.sep}plan.json")
