"""Checkpoint: the folder with the state of a training, its metadata, and the search for the newest complete one.

``step-00000100`` appears atomically: ranks write into ``step-00000100.<token>.partial``, which is renamed when all files are on
disk. The ranks' protocol is in ``strategist_runtime.training.checkpoint_protocol``.
"""

import re
from dataclasses import field, replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.data_source import sources_of
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload
from strategist.errors import FileError, InputError
from strategist.frozen import frozen

DEFAULTS = TrialSettings()
SESSION_SETTINGS = (
    "steps", "warmup_steps", "weights", "export", "save", "save_every", "keep", "keep_best", "resume", "log", "wandb", "trace",
    "max_restarts", "elastic",
)  # fmt: skip
"""Settings of one session, which are reset when the training resumes: they do not affect what is trained."""

DESCRIPTION = "training.json"
PARTIAL = ".partial"
STOP_FILE = "stop"
"""File in the folder of a run that requests its end: the training saves a checkpoint after the current step and stops."""

_NAME = re.compile(r"step-([0-9]{8,})")


@frozen
class Training:
    """Metadata of a checkpoint: after ``step`` steps and ``samples`` sequences, under these settings.

    plan_id, ranks: the plan that wrote it, and its number of ranks.
    files: size in bytes of every other file of the checkpoint.
    loss_scale: loss scale of fp16, None for other precisions; loss_scale_steps: steps since it last changed.
    evaluation_loss: loss on held-out data; None where this step was not evaluated.
    """

    step: int
    samples: int
    settings: TrialSettings
    model: ModelShape
    workload: Workload
    plan_id: str
    ranks: int
    files: dict[str, int]
    loss_scale: float | None = None
    loss_scale_steps: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    evaluation_loss: float | None = None

    def resume_settings(self) -> TrialSettings:
        """Settings for a resumed session: those that determine the training; settings of one session get their defaults.

        ``weights`` is one of these, but examples keep its tokenizer: another one, or none, would change the data.
        """
        kept, data = self.settings, sources_of(self.settings.data) + sources_of(self.settings.evaluation_data)
        tokenizer = kept.tokenizer or (kept.weights if any(source.holds_examples for source in data) else "")
        return replace(kept, **{name: getattr(DEFAULTS, name) for name in SESSION_SETTINGS}, tokenizer=tokenizer)


def name_of(step: int) -> str:
    """Folder name of a step's checkpoint."""
    return f"step-{step:08}"


def step_of(path: Path) -> int | None:
    """Step of a checkpoint by its folder name; None for other names and for partial checkpoints."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def complete_checkpoints(folder: str | Path) -> tuple[Path, ...]:
    """Complete checkpoints in a folder, by name, oldest first; empty where the folder does not exist."""
    path = Path(folder)
    if not path.is_dir():
        return ()
    found = [(step, item) for item in path.iterdir() if (step := step_of(item)) is not None]
    return tuple(item for _, item in sorted(found))


def newest(folder: str | Path) -> tuple[Path, Training] | None:
    """The newest undamaged checkpoint in a folder with its metadata; None where there is no checkpoint.

    Raises:
        FileError: all of them are damaged.
    """
    damaged: FileError | None = None
    for path in reversed(complete_checkpoints(folder)):
        try:
            return path, read(path)
        except FileError as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return None


def find(folder: str | Path, name: str = "--resume") -> Path:
    """Path of a checkpoint: ``folder`` itself, or the newest undamaged checkpoint in it. ``name`` is the option for errors.

    Raises:
        InputError: there is none.
        FileError: all of them are damaged.
    """
    path = Path(folder)
    if (path / DESCRIPTION).is_file():
        return path
    if not path.is_dir():
        raise InputError(f"{name} {folder}", "is not a folder", "name a checkpoint, or the folder that --save was given")
    if found := newest(path):
        return found[0]
    raise InputError(f"{name} {folder}", "holds no whole checkpoint", "name the folder that --save was given")


def read(path: Path) -> Training:
    """Metadata of a checkpoint, with the sizes of all files checked.

    Raises:
        FileError: it is not a checkpoint of strategist, or a file is missing or truncated.
    """
    if not (path / DESCRIPTION).is_file():
        raise FileError(path, f"holds no {DESCRIPTION}: this is not a checkpoint of strategist; name another")
    training = codec.load(Training, path / DESCRIPTION, any_size=True)
    for name, size in training.files.items():
        size_on_disk = (path / name).stat().st_size if (path / name).is_file() else None
        if size_on_disk != size:
            found = "is missing" if size_on_disk is None else f"has {size_on_disk} bytes"
            raise FileError(path / name, f"{found} of the {size} that were saved: the checkpoint is damaged; remove it")
    return training


def check(training: Training, path: Path, model: ModelShape, workload: Workload) -> None:
    """Checks that a plan of this model and workload can resume from the checkpoint; layout, knobs and batch may differ.

    Raises:
        InputError: the checkpoint has another model, optimizer, training mode, precision or LoRA rank.
    """
    if training.model != model:
        law = f"it holds {training.model.name}, the plan trains {model.name}"
        if training.model.name == model.name:
            law = f"its {model.name} has another shape than the plan's"
        raise InputError(f"checkpoint {path}", law, "resume with a plan of its model")
    for name in ("optimizer", "train", "precision", "lora_rank"):
        saved, planned = getattr(training.workload, name), getattr(workload, name)
        if saved != planned and not (name == "lora_rank" and workload.train == "full"):
            law = f"it was trained with {name} {saved}, the plan has {planned}"
            raise InputError(f"checkpoint {path}", law, f"plan with {name} {saved}")
