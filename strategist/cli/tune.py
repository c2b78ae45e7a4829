"""``strategist tune``: trials until the study holds enough of them, with progress, and what they taught."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import render
from strategist.cli import request as request_options
from strategist.cli.parser import Parser, above_zero, positive, share, whole
from strategist.contract.measurement import TrialSettings
from strategist.errors import InputError
from strategist.ledger.address import is_server, parse
from strategist.search.settings import SAMPLERS
from strategist.tuner.limits import Limits

if TYPE_CHECKING:
    from strategist.tuner.result import TuneEvent

NO_TRIAL_OK = 1


def add(parser: Parser) -> None:
    """The options of the command."""
    request_options.add(parser)
    parser.add_argument("--trials", type=whole("--trials"), default=10, metavar="N", help="finished trials to reach (default 10)")
    parser.add_argument("--minutes", type=above_zero("--minutes"), metavar="M", help="start no trial later")
    parser.add_argument(
        "--device-hours", type=above_zero("--device-hours"), metavar="H", help="start no trial when trials took so much"
    )
    parser.add_argument(
        "--least-gain", type=share("--least-gain"), default=0.0, metavar="G",
        help="end when no candidate is expected to be better than the best by this share, e.g. 1%%",
    )  # fmt: skip
    parser.add_argument(
        "--confirm", type=whole("--confirm"), default=2, metavar="N",
        help="longer runs of each of the best two, in turns, where they are near each other (default 2; 0 for none)",
    )  # fmt: skip
    parser.add_argument(
        "--sampler", default="belief", metavar="NAME", help=f"what proposes trials: {', '.join(SAMPLERS)} (default belief)"
    )
    parser.add_argument("--study", metavar="DIR", help="folder of the study; an existing one goes on")
    parser.add_argument(
        "--ledger", default="", metavar="ADDRESS",
        help="keep the study's trials on a server, for tuners of many machines: postgresql://USER@HOST/DATABASE[?study=NAME]",
    )  # fmt: skip
    parser.add_argument("--steps", type=positive("--steps"), metavar="N", help="steps to measure in a trial (default 10)")
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="run one rank of each plan on a device here, so that --gpus may be a cluster of any size",
    )
    parser.add_argument("--seed", type=whole("--seed"), default=0, metavar="N", help="seed of weights and data (default 0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Tunes and reports; 1 where no trial ended well."""
    request = request_options.request(options, backend="native")
    if not options.study:
        raise InputError("--study", "is missing", "name a folder, e.g. --study studies/first")
    if is_server(options.study):
        raise InputError("--study", "is the folder of a study, not a server", "name a folder, and the server with --ledger")
    if options.ledger:
        parse(options.ledger, "--ledger", Path(options.study).resolve().name)  # wrong ones are said before all work
    base = TrialSettings(seed=options.seed)
    settings = TrialSettings(seed=options.seed, steps=options.steps) if options.steps else base
    limits = Limits(
        trials=options.trials, minutes=options.minutes, device_hours=options.device_hours, least_gain=options.least_gain,
        confirm=options.confirm, sampler=options.sampler, seed=options.seed,
    )  # fmt: skip
    with _progress() as on_event:
        result = api.tune(
            request, study=Path(options.study), limits=limits, settings=settings, cards=options.cards, without=options.without,
            calibration=options.calibration, on_event=on_event, shadow=options.shadow, server=options.ledger,
        )  # fmt: skip
    if options.json:
        render.show_json(result)
    else:
        from strategist.cli.learned import learned_report

        render.show(learned_report(result))
        render.line(f"\nbest-plan.json, calibration.json and history.jsonl lie in {result.study}")
    return 0 if result.best else NO_TRIAL_OK


@contextmanager
def _progress() -> Iterator[Callable[["TuneEvent"], None]]:
    """A bar on standard error while the trials run: trial, best so far, time left; elsewhere a line for each finished trial."""
    from rich.progress import BarColumn, Progress, TextColumn

    console = render.console(errors=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}"),
        console=console, disable=not console.is_terminal, transient=True,
    )  # fmt: skip
    task = bar.add_task("tuning", total=None, state="")

    def on_event(event: "TuneEvent") -> None:
        bar.update(task, description=_description(event), total=event.trials, completed=event.finished, state=_state(event))
        ended = event.phase == "done" and event.step is None  # with a step it is the trial's own last phase
        if ended and not console.is_terminal:
            render.remark(f"trial {event.trial} of {event.trials} is done; {_state(event)}")

    with bar:
        yield on_event


def _description(event: "TuneEvent") -> str:
    step = f" step {event.step}" if event.step is not None else ""
    return f"trial {event.trial}/{event.trials} {event.phase}{step}"


def _state(event: "TuneEvent") -> str:
    """Best so far and time left."""
    best = f"best {event.best_tokens_per_second:,.0f} tokens/s" if event.best_tokens_per_second else "none ok yet"
    return best + (f", {event.seconds_left:.0f} s left" if event.seconds_left is not None else "")
