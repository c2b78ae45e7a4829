"""Command executor: runs trials of an external program by its own command, and reads figures from its output."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.measurement import Measurement, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.executors.engine import TORCHRUN, Engine
from strategist.executors.executor import OnEvent
from strategist.executors.local import (
    devices_here,
    launcher_environment,
    prepared,
    run_trial,
    trial_environment,
)
from strategist.executors.preflight import require_ready
from strategist.executors.processes import new_tag
from strategist.executors.requirements import require_supervision
from strategist.executors.trial_metrics import Impossible, step_time_fields
from strategist.executors.trial_outcome import OUT_OF_MEMORY
from strategist.executors.trial_process import TrialCommand
from strategist.expr.evaluate import Facts
from strategist.frozen import frozen
from strategist.programs.megatron_stages import STAGES, stage_list
from strategist.programs.program import PER_NODE, Program
from strategist.programs.program_output import Reading
from strategist.programs.template import ENVIRONMENT
from strategist.search.facts import plan_facts

START_SECONDS = 600.0
"""Time limit for a program's first step if its file states none: frameworks read data and compile before it."""

MIN_STEP_SECONDS = 1e-4
"""Shorter steps mean that the program wrote all lines at once."""

DEADLINES = ("init_timeout_seconds", "step_timeout_seconds", "save_timeout_seconds", "wall_timeout_seconds")
PROGRAM_SETTINGS = ("steps", "warmup_steps", "seed", *DEADLINES)
"""Fields of a trial's settings that apply to a program; the others apply to the built-in trainer only."""


@frozen
class CommandExecutor:
    """Runs ``program`` on this machine, or on each node of an ``engine``, as one process that starts the ranks.

    ``study`` marks the processes of one study.
    """

    program: Program
    study: str = "study"
    engine: Engine = TORCHRUN

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs the program for ``plan`` in ``folder``; see :class:`strategist.executors.executor.Executor`."""
        self.preflight(plan)
        self.check_settings(settings)
        settings = self._with_program_deadlines(settings)
        folder = prepared(folder, plan, settings)
        codec.save(self.reading(plan, folder, settings), folder / "reading.json")
        passed_variables = {name: os.environ[name] for name in self.program.passes if name in os.environ}
        follower = (sys.executable, "-m", "strategist.executors.program_monitor", str(folder))
        command = TrialCommand(
            words=(*follower, *self.engine.launcher(plan, folder, each=True), *self.command(plan, folder, settings)),
            environment={**launcher_environment(self.engine), **trial_environment(os.environ), **passed_variables,
                         **environment(plan)},
            tag=new_tag(self.study), ranks=1, engine=self.engine,
        )  # fmt: skip
        ranks = plan.candidate.layout.world_size
        measured = run_trial(plan, folder, settings, on_event, command, starts=ranks, measure=figures)
        measurement = replace(
            measured,
            evidence=replace(measured.evidence, rank=None),
            lost_ranks=(),
            versions={"program": self.program.name, "program file": self.program.digest},
        )
        codec.save(measurement, folder / "measurement.json")
        return measurement

    def command(self, plan: Plan, folder: Path, settings: TrialSettings) -> tuple[str, ...]:
        """The program's command for the plan."""
        return self.program.arguments(plan_facts(plan), self._words(plan, folder, settings))

    def reading(self, plan: Plan, folder: Path, settings: TrialSettings) -> Reading:
        """Rules by which the monitor reads the output of this run."""
        facts, words, metrics = plan_facts(plan), self._words(plan, folder, settings), self.program.metrics
        return Reading(
            lines=metrics.lines,
            json="" if metrics.json is None else metrics.json.filled(facts, words),
            fields=dict(metrics.fields),
            warmup_steps=self._warmup(settings),
            out_of_memory=(*OUT_OF_MEMORY, *self.program.out_of_memory.says),
            out_of_memory_exit_codes=self.program.out_of_memory.exit_codes,
            environment=self._environment(facts, words),
            tokens_per_step=plan.workload.tokens_per_step,
            sequences_per_step=plan.workload.global_batch,
            devices=plan.candidate.layout.world_size,
        )

    def _environment(self, facts: Facts, words: Mapping[str, str]) -> dict[str, str]:
        """Variables of the program's file; a further variable tells torchrun that there is no other machine, for programs that
        could use several.
        """
        standalone = self.program.runs_on_each_node and not self.engine.elsewhere
        program_variables = {name: template.filled(facts, words) for name, template in self.program.environment.items()}
        return {**({"PET_STANDALONE": "1"} if standalone else {}), **program_variables}

    def preflight(self, plan: Plan) -> None:
        """Raises an error for anything that would fail every trial.

        Raises:
            InputError: no Linux, fewer devices than ranks, a variable that is not set, or a program that is not installed.
        """
        require_supervision()
        for name in self.program.variables:
            if not os.environ.get(name):
                law = f"the program {self.program.name} is made with it, and it is not set"
                raise InputError(f"environment variable {name}", law, f"set it: {name}=... strategist ...")
        if self.engine.elsewhere:
            self._preflight_remote(plan)
        else:
            self._preflight_local(plan)

    def _preflight_local(self, plan: Plan) -> None:
        ranks, kind = plan.candidate.layout.world_size, plan.cluster.device.kind
        if kind != "cpu" and (local_devices := devices_here()) < plan.cluster.gpus_for(ranks):
            do = "simulate it (strategist simulate), or plan for what is here: --gpus local"
            raise InputError(f"{ranks} ranks on {kind}", f"this machine shows {local_devices} devices", do)
        require_ready(kind, own_runtime=False)
        first, *rest = self.command(plan, Path(), TrialSettings())
        if shutil.which(first) is None:
            raise InputError(f"program {self.program.name}", f"{first} is not installed here", "install it, or correct its command")
        script = next((word for word in rest if word.endswith(".py") and not word.startswith("-")), None)
        if script is not None and not os.access(script, os.R_OK):
            law = f"{script} is not there, or cannot be read"
            raise InputError(f"program {self.program.name}", law, "correct its command, or start in the folder of the script")

    def _preflight_remote(self, plan: Plan) -> None:
        """Raises InputError if the command would start a separate training on each machine."""
        self.engine.launcher(plan, Path(), each=True)
        words = self.command(plan, Path(), TrialSettings())
        if not self.program.runs_on_each_node or "--standalone" in words:
            law = "starts all ranks on one machine, and is to be run on several"
            do = f"write --nproc-per-node={{{PER_NODE}}} into its command, and leave --standalone out"
            raise InputError(f"program {self.program.name}", law, do)

    def check_settings(self, settings: TrialSettings) -> None:
        """Raises InputError if a setting is given that only the built-in trainer supports."""
        defaults = TrialSettings()
        for name in TrialSettings.__dataclass_fields__:
            if name not in PROGRAM_SETTINGS and getattr(settings, name) != getattr(defaults, name):
                law = f"is for strategist's own trainer, and {self.program.name} is another"
                raise InputError(name.replace("_", " "), law, "leave it out, or write it into the program's command")

    def _words(self, plan: Plan, folder: Path, settings: TrialSettings) -> dict[str, str]:
        warmup_steps = self._warmup(settings)
        return {
            "plan": str(folder / "plan.json"),
            "folder": str(folder),
            "here": self.program.folder,
            "python": sys.executable,
            "model": plan.model.name,
            "steps": str(warmup_steps + settings.steps),
            "warmup_steps": str(warmup_steps),
            "seed": str(settings.seed),
            STAGES: stage_list(plan.stage_layers),
            PER_NODE: str(plan.candidate.layout.world_size // self.engine.nodes(plan)),
            **{ENVIRONMENT + name: os.environ.get(name, f"${name}") for name in self.program.variables},
        }

    def _warmup(self, settings: TrialSettings) -> int:
        """Number of warm-up steps, which are not measured."""
        stated = self.program.metrics.warmup_steps
        return settings.warmup_steps if stated is None else stated

    def _with_program_deadlines(self, settings: TrialSettings) -> TrialSettings:
        """Settings with the deadlines of the program's file, or with ``START_SECONDS`` to start. A program without log patterns
        shows no steps, so its whole run counts as its start.
        """
        stated = self.program.deadlines
        start = max(settings.init_timeout_seconds, START_SECONDS) if stated.start_seconds is None else stated.start_seconds
        total = settings.wall_timeout_seconds
        total = stated.total_seconds if stated.total_seconds is not None else None if total is None else total + start
        return replace(
            settings,
            init_timeout_seconds=start if self.program.metrics.lines else float("1e9") if total is None else total,
            step_timeout_seconds=settings.step_timeout_seconds if stated.step_seconds is None else stated.step_seconds,
            wall_timeout_seconds=total,
        )


def figures(plan: Plan, settings: TrialSettings, records: Sequence[RankRecord], wall_seconds: float) -> dict[str, Any]:
    """Fields of a Measurement from the record of a program.

    Raises:
        Impossible: the record has no step time, or an impossible one.
    """
    (record,) = records
    if not record.step_seconds:
        raise Impossible(0, "nothing that it wrote gives the time of a step after warm-up")
    shortest = min(record.step_seconds)
    if shortest < MIN_STEP_SECONDS:
        raise Impossible(0, f"a step of {shortest:.2g} s is impossible; were its lines written all at once?")
    if sum(record.step_seconds) > wall_seconds:
        raise Impossible(0, f"its steps add up to {sum(record.step_seconds):.3g} s, the whole trial took {wall_seconds:.3g} s")
    return {
        **step_time_fields(plan, settings, record.step_seconds),
        "peak_memory_bytes": () if record.peak_memory_bytes is None else (record.peak_memory_bytes,),
        "peak_reserved_bytes": () if record.peak_reserved_bytes is None else (record.peak_reserved_bytes,),
        "losses": record.losses,
        "grad_norms": record.grad_norms,
        "notes": (record.message,) if record.message else (),
    }
