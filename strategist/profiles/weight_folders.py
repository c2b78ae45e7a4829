"""Folders of weights: checks that a training can start from one, or export to one."""

import os
import shlex
from dataclasses import fields
from pathlib import Path

from strategist.contract.model import ModelShape
from strategist.errors import InputError
from strategist.profiles.huggingface import read_config


def check_weights(folder: str, model: ModelShape) -> None:
    """Checks that a Hugging Face folder holds the plan's model.

    Raises:
        InputError: the shapes differ; names the first difference.
        FileError: its configuration cannot be read.
    """
    folder_model = read_config(Path(os.path.expanduser(folder)))
    for name in (field.name for field in fields(ModelShape) if field.name != "name"):
        folder_value, preset_value = getattr(folder_model, name), getattr(model, name)
        if folder_value != preset_value:
            law = f"are of a model with {name} {folder_value}, and the plan's model has {preset_value}"
            raise InputError(f"--weights {folder}", law, f"plan with --model {shlex.quote(folder)}")


def check_export(folder: str) -> None:
    """Checks that a folder for exported weights holds none yet.

    Raises:
        InputError: it holds some.
    """
    if any(Path(os.path.expanduser(folder)).glob("*.safetensors*")):
        raise InputError(f"--export-weights {folder}", "holds weights already", "choose another folder")
