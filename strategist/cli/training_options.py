"""Options of a training run: duration, optimizer, data, and checkpoints."""

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from strategist.cli.parser import Parser, above_zero, option_name, positive, whole
from strategist.contract import checkpoint, codec
from strategist.contract.data_source import DataSource
from strategist.contract.measurement import (
    LEARNING_RATE,
    LEARNING_RATE_SCHEDULES,
    NO_DECAY_GROUPS,
    NON_FINITE,
    SAMPLE_TYPES,
    TrialSettings,
)
from strategist.errors import InputError

T = TypeVar("T")
STEPS = (
    "steps to measure after 3 of warm-up (default 10); with --save, --resume, --export-weights, --eval-data or --wandb a training,"
    " until so many steps are done over all its sessions, of which the first 3 of a session are not measured and its last one is"
    " profiled"
)
PATH_OPTIONS = {
    "save": "save", "resume": "resume", "log": "log", "trace": "trace", "tokenizer": "tokenizer", "weights": "weights",
    "hf": "hugging_face", "export_weights": "export",
}  # fmt: skip
"""Options that take paths, and their settings."""

VALUE_OPTIONS = {
    "seed": "seed", "learning_rate": "learning_rate", "learning_rate_schedule": "learning_rate_schedule",
    "learning_rate_warmup_steps": "learning_rate_warmup_steps", "learning_rate_decay_steps": "learning_rate_decay_steps",
    "learning_rate_min_ratio": "learning_rate_min_ratio", "weight_decay": "weight_decay", "no_decay": "no_decay", "betas": "betas",
    "non_finite": "non_finite", "data_type": "data_type", "document_tokens": "mean_document_tokens",
    "document_end": "document_end", "eval_every": "evaluation_every", "eval_batches": "evaluation_batches",
    "save_every": "save_every", "keep": "keep", "keep_best": "keep_best", "wandb": "wandb", "max_restarts": "max_restarts",
}  # fmt: skip
"""Other options, and their settings."""

TRAINING_OPTIONS = ("save", "resume", "export_weights", "eval_data", "wandb")
"""Options that make a run a training."""

SAVING_OPTIONS = ("elastic", "save_every", "keep", "keep_best", "max_restarts")
"""Options of a training that saves."""


def add(parser: Parser) -> None:
    """Adds all options."""
    parser.add_argument("--steps", type=positive("--steps"), metavar="N", help=STEPS)
    parser.add_argument("--settings", metavar="FILE", help="settings of the run as JSON; options override them")
    _add_learning(parser.add_argument_group("learning"))
    _add_data(parser.add_argument_group("data"))
    _add_training(parser.add_argument_group("training"))


def _add_learning(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--learning-rate", type=_rate, metavar="X", help=f"default {LEARNING_RATE}")
    schedules = f"{', '.join(LEARNING_RATE_SCHEDULES[:-1])} or {LEARNING_RATE_SCHEDULES[-1]}"
    group.add_argument("--learning-rate-schedule", metavar="NAME", help=f"{schedules}, after the warm-up (default constant)")
    group.add_argument(
        "--learning-rate-warmup-steps", type=whole("--learning-rate-warmup-steps"), metavar="N",
        help="steps in which it rises from 0 (default 0)",
    )  # fmt: skip
    group.add_argument(
        "--learning-rate-decay-steps", type=positive("--learning-rate-decay-steps"), metavar="N",
        help="of wsd: the last steps, in which it falls (default a tenth of --steps)",
    )  # fmt: skip
    group.add_argument(
        "--learning-rate-min-ratio", type=_number("--learning-rate-min-ratio"), metavar="X",
        help="where the decay ends, as a share of the learning rate (default 0)",
    )  # fmt: skip
    group.add_argument(
        "--weight-decay", type=_number("--weight-decay"), metavar="X", help="default 0.01, with sgd 0; decoupled in AdamW and Muon"
    )
    group.add_argument(
        "--no-decay", type=_parameter_groups, metavar="GROUP,...",
        help=f"parameters without weight decay: {', '.join(NO_DECAY_GROUPS)}, the head among these (default: all decay)",
    )  # fmt: skip
    group.add_argument("--betas", type=_betas, metavar="B1,B2", help="of AdamW (default 0.9,0.999; with adamw_bf16 0.9,0.95)")
    group.add_argument("--clip-norm", type=_clip, metavar="X", help="largest gradient norm, or none (default 1)")
    group.add_argument(
        "--non-finite", metavar="WHAT",
        help=f"{' or '.join(NON_FINITE)}: effect of a loss or gradient that is not finite (default stop); 25 skipped steps"
        " in a row end the run",
    )  # fmt: skip
    group.add_argument("--seed", type=whole("--seed"), metavar="N", help="of weights and the order of data (default 0)")


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data", metavar="PATH[=WEIGHT]", action="append", type=_source,
        help="what to train on (default: synthetic): a file of token ids (.bin, .npy), a folder of datasets.save_to_disk with"
        " input_ids, or a file of examples (.jsonl), each line with text, prompt and response, or messages; given several times,"
        " samples are mixed by weight, or in proportion to the sizes",
    )  # fmt: skip
    group.add_argument(
        "--data-type", metavar="TYPE",
        help=f"of the numbers in a .bin file: {', '.join(filter(None, SAMPLE_TYPES))}"
        " (default: dtype in NAME.json in the same folder, or the smallest that fits the vocabulary)",
    )  # fmt: skip
    group.add_argument(
        "--tokenizer", metavar="DIR", help="folder of the tokenizer.json for examples (default: that of --weights or --hf)"
    )
    group.add_argument(
        "--no-packing",
        action="store_true",
        help="one example a sequence, padded (default: several; tokens attend to their own example only)",
    )
    group.add_argument(
        "--document-end", type=whole("--document-end"), metavar="TOKEN",
        help="the token that ends a document of token ids; tokens attend to their own document only (default: a sequence is one)",
    )  # fmt: skip
    group.add_argument(
        "--document-tokens", type=positive("--document-tokens"), metavar="N",
        help="mean length of synthetic documents that are packed into sequences (default: the plan's)",
    )  # fmt: skip
    group.add_argument(
        "--eval-data",
        metavar="PATH",
        action="append",
        type=lambda path: DataSource(path=path),
        help="held-out data, as --data; its loss is measured",
    )
    group.add_argument(
        "--eval-every",
        type=positive("--eval-every"),
        metavar="N",
        help="steps from one evaluation to the next (default: at the end)",
    )
    group.add_argument(
        "--eval-batches", type=positive("--eval-batches"), metavar="N", help="global batches of an evaluation (default: all data)"
    )


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save", metavar="DIR", help="folder for checkpoints; any plan of the model can resume from them")
    group.add_argument(
        "--save-every", type=positive("--save-every"), metavar="K", help="steps from one to the next (default: the plan's)"
    )
    group.add_argument("--keep", type=positive("--keep"), metavar="K", help="how many of the newest to keep (default 2)")
    group.add_argument(
        "--keep-best", type=positive("--keep-best"), metavar="K",
        help="number of checkpoints with the lowest evaluation loss to keep, too (default 0); each checkpoint is then evaluated",
    )  # fmt: skip
    group.add_argument(
        "--resume",
        metavar="DIR",
        help="resume from a checkpoint, or from the newest in a folder; settings that are not given are those of the checkpoint",
    )
    group.add_argument(
        "--max-restarts", type=whole("--max-restarts"), metavar="N",
        help="maximum number of restarts of a training's ranks after a failure (default: the plan's)",
    )  # fmt: skip
    group.add_argument(
        "--elastic",
        action="store_true",
        help="when ranks are lost permanently, plan for the remaining ones and resume from the last checkpoint",
    )
    group.add_argument(
        "--log", metavar="DIR",
        help="write curves.jsonl, curves.csv and, if it is installed, TensorBoard's there (default of a training: --out)",
    )  # fmt: skip
    group.add_argument("--wandb", metavar="PROJECT", help="send the curves to this project at Weights & Biases (extra wandb)")
    group.add_argument(
        "--progress-seconds", type=above_zero("--progress-seconds"), metavar="S", default=10.0,
        help="seconds between lines of progress without a terminal (default %(default)g)",
    )  # fmt: skip
    group.add_argument("--trace", metavar="DIR", help="keep each rank's profile and memory over time, for Perfetto and memory_viz")
    group.add_argument(
        "--weights", metavar="DIR", help="folder of a Hugging Face model with the initial weights; plan with --model DIR"
    )
    group.add_argument(
        "--hf", metavar="DIR", help="train the model of transformers with the config.json in this folder, by transformers' own code"
    )
    group.add_argument("--export-weights", metavar="DIR", help="write a Hugging Face folder at the end, in the plan's compute type")


def settings(options: argparse.Namespace) -> TrialSettings:
    """Settings of the run: given options, else those of the resumed checkpoint, else defaults.

    Raises:
        InputError, FileError: an option is invalid, or the checkpoint does not exist.
    """
    base = codec.load(TrialSettings, options.settings) if options.settings else TrialSettings()
    if options.resume:
        base = checkpoint.read(checkpoint.find(options.resume)).resume_settings()
    given_settings = _given(options)
    if not (options.save or options.resume):
        for name in (name for name in SAVING_OPTIONS if getattr(options, name)):
            raise InputError(option_name(name), "is for a training, and this is a trial", "add --save DIR")
    given_options = [f"{option_name(name)} {_value_text(value)}" for name in TRAINING_OPTIONS if (value := getattr(options, name))]
    if not given_options:
        return replace(base, **given_settings, **({"steps": options.steps} if options.steps else {}))
    steps = options.steps or base.total_steps
    if steps is None:
        raise InputError(given_options[0], "is for a training", "say until which step: --steps N")
    return replace(base, **given_settings, total_steps=steps, elastic=options.elastic, wall_timeout_seconds=None)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Settings that options give."""
    given_settings: dict[str, Any] = {
        field: value for name, field in VALUE_OPTIONS.items() if (value := getattr(options, name)) is not None
    }
    given_settings |= {
        field: str(Path(value).resolve()) for name, field in PATH_OPTIONS.items() if (value := getattr(options, name))
    }
    for name, field in {"data": "data", "eval_data": "evaluation_data"}.items():
        if value := getattr(options, name):
            given_settings[field] = tuple(replace(source, path=str(Path(source.path).resolve())) for source in value)
    if options.clip_norm is not None:
        given_settings["clip_norm"] = None if options.clip_norm == "none" else options.clip_norm
    if options.no_packing:
        given_settings["packing"] = False
    return given_settings


def _value_text(value: Any) -> str:
    return value[0].path if isinstance(value, list) else str(value)


def _source(text: str) -> DataSource:
    """``PATH`` or ``PATH=WEIGHT``."""
    path, sign, weight = text.rpartition("=")
    if sign and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", weight, re.ASCII) and not Path(text).exists():
        return DataSource(path=path, weight=float(weight))
    return DataSource(path=text)


def _rate(text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,12}([eE][-+]?[0-9]{1,2})?", text, re.ASCII) or not 0 < float(text) < 1e6:
        raise InputError(f"--learning-rate {text}", "a number above 0 and below 1e6 is needed", "write e.g. --learning-rate 3e-4")
    return float(text)


def _number(name: str) -> Callable[[str], float]:
    """Type of an option: 0 or a positive number."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,12}([eE][-+]?[0-9]{1,2})?", text, re.ASCII):
            raise InputError(f"{name} {text}", "a number from 0 is needed", f"write e.g. {name} 0.1")
        return float(text)

    return parse


def _clip(text: str) -> float | str:
    return text if text == "none" else above_zero("--clip-norm")(text)


def _betas(text: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2:
        raise InputError(f"--betas {text}", "are two numbers", "write e.g. --betas 0.9,0.95")
    first, second = (_number("--betas")(part) for part in parts)
    return first, second


def _parameter_groups(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(dict.fromkeys(part.strip() for part in text.split(",")))
