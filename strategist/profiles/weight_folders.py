"""Folders of weights: whether a training can start from one and export to one."""

import os
import shlex
from dataclasses import fields
from pathlib import Path

from strategist.contract.model import ModelShape
from strategist.errors import InputError
from strategist.profiles.huggingface import read_config


def check_weights(folder: str, model: ModelShape) -> None:
    """Refuses a Hugging Face folder of another model than the plan's.

    Raises:
        InputError: the first difference between the shapes.
        FileError: its configuration cannot be read.
    """
    found = read_config(Path(os.path.expanduser(folder)))
    for name in (field.name for field in fields(ModelShape) if field.name != "name"):
        theirs, ours = getattr(found, name), getattr(model, name)
        if theirs != ours:
            law = f"are of a model with {name} {theirs}, and the plan's model has {ours}"
            raise InputError(f"--weights {folder}", law, f"plan with --model {shlex.quote(folder)}")


def check_export(folder: str) -> None:
    """Refuses to write among the weights of another model.

    Raises:
        InputError: there are some.
    """
    if any(Path(os.path.expanduser(folder)).glob("*.safetensors*")):
        raise InputError(f"--export-weights {folder}", "holds weights already", "choose another folder")
