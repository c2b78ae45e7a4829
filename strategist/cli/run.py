"""``strategist run``: runs a plan on this machine and shows the measurement beside the prediction."""

import argparse
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import engine_options, plan_file, render, sections, training_options
from strategist.cli.exit_codes import FAILED, INTERRUPTED
from strategist.cli.parser import Parser
from strategist.cli.training_progress import TrainingProgress, stop_with_checkpoint
from strategist.contract import checkpoint, codec
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import stage

if TYPE_CHECKING:
    from strategist.api import Shrink

SECTIONS = ("measured", "time", "memory", "collectives")
"""The parts of the report."""


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("--out", metavar="DIR", help="folder for measurement.json and logs (default: <plan>-run in its folder)")
    parser.add_argument(
        "--backend", metavar="NAME", default=api.BACKEND,
        help="back end that runs it: native, or a program's name or file, see strategist programs (default %(default)s)",
    )  # fmt: skip
    engine_options.add(parser)
    training_options.add(parser)
    sections.add(parser, SECTIONS)
    parser.add_argument("--json", action="store_true", help="print the measurement as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Runs the trial; returns 1 if it failed."""
    section_names = sections.requested_sections(options, SECTIONS)
    path = Path(options.plan)
    plan = plan_file.read(path)
    folder = Path(options.out) if options.out else plan_file.default_output(path, "-run")
    settings = training_options.settings(options)
    total_steps = settings.total_steps or settings.warmup_steps + settings.steps
    with stage("steps", total_steps) as steps, stop_with_checkpoint(folder) if settings.save else nullcontext():
        progress = TrainingProgress(plan, steps, options.progress_seconds, training=settings.total_steps is not None)
        measurement = api.run(
            plan,
            folder,
            settings,
            on_event=progress.take,
            on_shrink=_print_shrink,
            backend=options.backend,
            engine=engine_options.given(options),
        )
    if options.json:
        render.show_json(measurement)
    else:
        from strategist.report.trial import trial_report

        final_plan = codec.load(Plan, folder / "plan.json")  # the last plan of an elastic training
        render.show(trial_report(final_plan, measurement, section_names))
        render.line(f"\nwritten to {folder / 'measurement.json'}")
        for line in _output_lines(options.plan, settings, folder):
            render.line(line)
    if measurement.outcome is Outcome.CANCELLED:
        render.print_note(measurement.evidence.message)
        return INTERRUPTED
    return 0 if measurement.outcome is Outcome.OK else FAILED


def _output_lines(plan: str, settings: TrialSettings, folder: Path) -> Iterator[str]:
    """Files that a training writes beside its measurement, and the command that continues it."""
    if settings.total_steps is None:
        return
    curves = Path(settings.log or folder) / "curves.csv"
    if curves.exists():
        yield f"curves in {curves}"
    if settings.save and checkpoint.complete_checkpoints(settings.save):  # none if no step was saved, or on other hosts
        arguments = ("--resume", settings.save, "--save", settings.save, "--steps", str(2 * settings.total_steps))
        yield f"checkpoints in {settings.save}; to go on: {shlex.join(['strategist', 'run', plan, *arguments])}"


def _print_shrink(shrink: "Shrink") -> None:
    from strategist.report.setting_text import layout_words

    lost = f"lost rank {', '.join(map(str, shrink.lost))}" if shrink.lost else "a part of the training failed"
    plan = shrink.plan
    remaining = f"{plan.candidate.layout.world_size} of {shrink.ranks} ranks go on from step {shrink.step}"
    render.print_note(f"{lost}; {remaining} with plan {plan.id}: {layout_words(plan.candidate.layout)}")
