"""``strategist tune``: runs trials until the study has enough, shows progress, and reports the result."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import (
    deck_options,
    engine_options as engine_options,
    goal_options as goal_options,
    render,
    request_options as request_options,
    sections,
)
from strategist.cli.exit_codes import FAILED, USER_ERROR
from strategist.cli.parser import Parser, above_zero, positive, share, whole
from strategist.contract.measurement import TrialSettings
from strategist.errors import InputError

if TYPE_CHECKING:
    from strategist.cli.tuning_progress import ProgressView

PRINTING = ("--json", "--json-lines", "--quiet")
"""Options that choose the output of a tuner."""

SECTIONS = ("trials", "front", "plan", "measured", "warnings", "crashes", "calibration", "evidence")
"""The parts of the report."""


def add(parser: Parser) -> None:
    """The options of the command."""
    request_options.add(parser)
    goal_options.add(parser)
    _add_limits(parser)
    _add_study(parser)
    _add_trials(parser)
    deck_options.add_language(parser)
    sections.add(parser, SECTIONS)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--json-lines", action="store_true", help="print a line of JSON for each event as it comes, and no report")
    parser.add_argument("--quiet", action="store_true", help="print nothing before the end but errors")
    parser.set_defaults(command=run)


def _add_limits(parser: Parser) -> None:
    parser.add_argument("--trials", type=whole("--trials"), default=10, metavar="N", help="finished trials to reach (default 10)")
    parser.add_argument("--minutes", type=above_zero("--minutes"), metavar="M", help="start no trial later")
    parser.add_argument(
        "--device-hours", type=above_zero("--device-hours"), metavar="H", help="start no trial after this many device hours"
    )
    parser.add_argument(
        "--least-gain", type=share("--least-gain"), default=0.0, metavar="G",
        help="end when no candidate is expected to be better than the best (or to enlarge the front) by this share, e.g. 1%%",
    )  # fmt: skip
    parser.add_argument(
        "--confirm", type=whole("--confirm"), default=2, metavar="N",
        help="longer runs of each of the best two, in turns, if their times are close (default 2; 0 for none)",
    )  # fmt: skip
    parser.add_argument(
        "--sampler",
        default="surrogate",
        metavar="NAME",
        help=f"sampler that proposes trials: {', '.join(api.SAMPLERS)} (default surrogate)",
    )


def _add_study(parser: Parser) -> None:
    parser.add_argument("--study", metavar="DIR", help="folder of the study; an existing study is resumed")
    parser.add_argument(
        "--ledger", default="", metavar="ADDRESS",
        help="keep the study's trials on a server, for tuners of many machines: postgresql://USER@HOST/DATABASE[?study=NAME]",
    )  # fmt: skip
    parser.add_argument(
        "--warm", action="append", default=[], metavar="STUDY",
        help="another study, of any model and GPUs, to start from its trials; a folder or postgresql://...; repeatable",
    )  # fmt: skip


def _add_trials(parser: Parser) -> None:
    parser.add_argument("--steps", type=positive("--steps"), metavar="N", help="steps to measure in a trial (default 10)")
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="run one rank of each plan on a device here, so that --gpus may be a cluster of any size",
    )
    engine_options.add(parser)
    parser.add_argument(
        "--at-once", type=positive("--at-once"), default=1, metavar="N",
        help="number of trials that run at a time, if slurm or ray has nodes for them (default 1)",
    )  # fmt: skip
    parser.add_argument("--seed", type=whole("--seed"), default=0, metavar="N", help="seed of weights and data (default 0)")


def run(options: argparse.Namespace) -> int:
    """Tunes and reports; returns 1 if no trial ran successfully."""
    section_names = sections.requested_sections(options, SECTIONS)
    request = request_options.request(options, backend="native")
    if not options.study:
        raise InputError("--study", "is missing", "name a folder, e.g. --study studies/first")
    for output in ("json", "quiet"):
        if options.json_lines and getattr(options, output):
            raise InputError(f"--json-lines --{output}", "are two ways to print one tuning", "leave one of them out")
    base = TrialSettings(seed=options.seed)
    settings = TrialSettings(seed=options.seed, steps=options.steps) if options.steps else base
    limits = api.Limits(
        trials=options.trials, minutes=options.minutes, device_hours=options.device_hours, least_gain=options.least_gain,
        confirm=options.confirm, sampler=options.sampler, seed=options.seed,
    )  # fmt: skip
    engine = engine_options.given(options)
    if options.at_once > 1 and not (engine and engine.queues):
        law = "has trials side by side, which disturb each other on the same devices"
        raise InputError(f"--at-once {options.at_once}", law, "leave it out, or give each its own with --engine slurm or ray")
    with _parallel_tuners(options.at_once - 1, options.arguments), _event_listener(options) as follower:
        result = api.tune(
            request, study=options.study, limits=limits, settings=settings, on_event=follower.take, shadow=options.shadow,
            server=options.ledger, warm=options.warm, goals=goal_options.goals(options, request), engine=engine,
            **deck_options.arguments(options),
        )  # fmt: skip
        follower.end(result)
    if options.json:
        render.show_json(result)
    elif not options.json_lines:
        from strategist.report.tuning import tuning_report

        render.show(tuning_report(api.in_language(result, options.lang, cards=options.cards), section_names))
    return 0 if result.best else FAILED


def _parallel_tuners(count: int, arguments: Sequence[str]) -> AbstractContextManager[None]:
    """``count`` further tuners with this command line; they print nothing, but refusals are reported here."""

    def print_refusal(code: int, error_text: str) -> None:
        if code == USER_ERROR:
            render.print_note(f"another tuner of this command ended: {error_text.strip()}")

    tuner_arguments = [argument for argument in arguments if argument not in PRINTING]
    command = [sys.executable, "-m", "strategist.cli.main", *tuner_arguments, "--quiet", "--at-once", "1"]
    return api.parallel_tuners(command, count, print_refusal)


@contextmanager
def _event_listener(options: argparse.Namespace) -> Iterator["ProgressView"]:
    """Listeners of the tuning's events."""
    from strategist.cli.tune_view import TuningView
    from strategist.cli.tuning_progress import ProgressView, TrialLines, json_lines

    if options.json_lines:
        with json_lines(options.study) as lines:
            yield lines
    elif options.quiet:
        yield ProgressView()
    elif render.has_screen():
        view = TuningView(options.study)
        with render.live(view):
            yield view
    else:
        yield TrialLines()
