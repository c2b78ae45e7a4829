"""The options of a run that trains: how long, from what data, and what is kept of it."""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.cli.parser import Parser, positive, whole
from strategist.contract import checkpoint, codec
from strategist.contract.measurement import LEARNING_RATE_SCHEDULES, SAMPLE_TYPES, TrialSettings
from strategist.errors import InputError

STEPS = (
    "steps to measure after 3 of warm-up (default 10); with --save or --resume a training, until so many steps are done over all"
    " its sessions, of which the first 3 of a session are not measured and its last one is profiled"
)
PLACES = ("data", "save", "resume", "log")
NUMBERS = ("seed", "learning_rate", "learning_rate_warmup_steps", "save_every", "keep", "max_restarts")
DOCUMENTS = {"document_tokens": "mean_document_tokens", "document_end": "document_end"}
WORDS = ("learning_rate_schedule", "data_type")


def add(parser: Parser) -> None:
    """All of them."""
    parser.add_argument("--steps", type=positive("--steps"), metavar="N", help=STEPS)
    parser.add_argument(
        "--settings", metavar="FILE", help="settings of the run as JSON, which stand where an option says nothing else"
    )
    training = parser.add_argument_group("training")
    training.add_argument("--save", metavar="DIR", help="write checkpoints there; any plan of the model can go on from them")
    training.add_argument(
        "--save-every",
        type=positive("--save-every"),
        metavar="K",
        help="steps from one to the next (default: the plan's)",
    )
    training.add_argument("--keep", type=positive("--keep"), metavar="K", help="how many of the newest to keep (default 2)")
    training.add_argument(
        "--resume", metavar="DIR", help="go on from a checkpoint, or the newest in a folder, with its settings where none are given"
    )
    training.add_argument(
        "--max-restarts", type=whole("--max-restarts"), metavar="N",
        help="start the ranks of a training again so often when one fails (default: the plan's)",
    )  # fmt: skip
    training.add_argument(
        "--elastic",
        action="store_true",
        help="when ranks are lost for good, plan for those left and go on from the last one",
    )
    training.add_argument(
        "--data", metavar="PATH",
        help="tokens to train on: a file of numbers (.bin, .npy) or a folder of datasets.save_to_disk with input_ids"
        " (default: synthetic)",
    )  # fmt: skip
    training.add_argument(
        "--data-type", metavar="TYPE",
        help=f"of the numbers in a .bin file: {', '.join(filter(None, SAMPLE_TYPES))}"
        " (default: what NAME.json beside it says as dtype, or what fits the vocabulary)",
    )  # fmt: skip
    training.add_argument(
        "--document-end", type=whole("--document-end"), metavar="TOKEN",
        help="the token that ends a document of --data: no token sees another document (default: a sequence is one)",
    )  # fmt: skip
    training.add_argument(
        "--document-tokens", type=positive("--document-tokens"), metavar="N",
        help="synthetic documents of so many tokens, mean, packed into sequences (default: the plan's)",
    )  # fmt: skip
    training.add_argument("--log", metavar="DIR", help="write curves.jsonl there, and curves for TensorBoard if it is installed")
    training.add_argument("--seed", type=whole("--seed"), metavar="N", help="of weights and the order of data (default 0)")
    training.add_argument("--learning-rate", type=_rate, metavar="X", help="default 0.001")
    training.add_argument(
        "--learning-rate-schedule", metavar="NAME", help=f"{' or '.join(LEARNING_RATE_SCHEDULES)} (default constant)"
    )
    training.add_argument(
        "--learning-rate-warmup-steps", type=whole("--learning-rate-warmup-steps"), metavar="N",
        help="steps in which it rises from 0 (default 0)",
    )  # fmt: skip


def settings(options: argparse.Namespace) -> TrialSettings:
    """How the plan is run: as was asked, else as the checkpoint says that is gone on from, else by default.

    Raises:
        InputError, FileError: an option cannot be, or there is no such checkpoint.
    """
    base = codec.load(TrialSettings, options.settings) if options.settings else TrialSettings()
    if options.resume:
        base = checkpoint.read(checkpoint.find(options.resume)).again()
    given: dict[str, Any] = {name: value for name in (*NUMBERS, *WORDS) if (value := getattr(options, name)) is not None}
    given |= {field: value for name, field in DOCUMENTS.items() if (value := getattr(options, name)) is not None}
    given |= {name: str(Path(value).resolve()) for name in PLACES if (value := getattr(options, name))}
    if options.save or options.resume:
        steps = options.steps or base.total_steps
        if steps is None:
            raise InputError(f"--save {options.save}", "is for a training", "say until which step: --steps N")
        return replace(base, **given, total_steps=steps, elastic=options.elastic, wall_timeout_seconds=None)
    for name in ("elastic", "save_every", "keep", "max_restarts"):
        if getattr(options, name):
            raise InputError(f"--{name.replace('_', '-')}", "is for a training, and this is a trial", "add --save DIR")
    return replace(base, **given, **({"steps": options.steps} if options.steps else {}))


def _rate(text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,12}([eE][-+]?[0-9]{1,2})?", text, re.ASCII) or not 0 < float(text) < 1e6:
        raise InputError(f"--learning-rate {text}", "a number above 0 is needed", "write e.g. --learning-rate 3e-4")
    return float(text)
