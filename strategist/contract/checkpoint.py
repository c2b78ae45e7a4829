"""Checkpoint: the folder of a training's state, its metadata, and the search for the newest complete one.

``step-00000100`` appears whole or not at all: ranks write into ``step-00000100.<token>.partial``, which is renamed when all files
are on disk. How ranks go about it is the protocol of ``strategist_runtime.training.checkpoint_protocol``.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload
from strategist.errors import FileError, InputError

DEFAULTS = TrialSettings()
OF_A_SESSION = (
    "steps", "warmup_steps", "weights", "export", "save", "save_every", "keep", "keep_best", "resume", "log", "wandb", "trace",
    "max_restarts", "elastic",
)  # fmt: skip
"""Settings that are no part of what is trained."""

DESCRIPTION = "training.json"
PARTIAL = ".partial"
STOP_FILE = "stop"
"""In the folder of a run: its training is to end after the step that it is at, with a checkpoint."""

_NAME = re.compile(r"step-([0-9]{8,})")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Progress of a training: ``step`` steps are done and ``samples`` sequences read, under these settings.

    ``plan_id`` and ``ranks`` say what wrote it, ``files`` the bytes of each file beside this description; ``loss_scale`` is that of
    fp16, None without, and ``loss_scale_steps`` how many steps it has held. ``evaluation_loss`` is that of the held-out data, None
    where this step was not evaluated.
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
        """The settings for going on: what is trained and how, and none of what was asked of that session only."""
        return replace(self.settings, **{name: getattr(DEFAULTS, name) for name in OF_A_SESSION})


def name_of(step: int) -> str:
    """The folder of a step's checkpoint."""
    return f"step-{step:08}"


def step_of(path: Path) -> int | None:
    """The step of a checkpoint by its name; None for what is none, or not whole."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def complete_checkpoints(folder: str | Path) -> tuple[Path, ...]:
    """The whole checkpoints in a folder, by their names, oldest first; none where there is no such folder."""
    path = Path(folder)
    if not path.is_dir():
        return ()
    found = [(step, item) for item in path.iterdir() if (step := step_of(item)) is not None]
    return tuple(item for _, item in sorted(found))


def newest(folder: str | Path) -> tuple[Path, Training] | None:
    """The newest checkpoint in a folder that is whole, and what it says of itself; None where there is no checkpoint.

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


def find(place: str | Path, name: str = "--resume") -> Path:
    """The checkpoint that ``place`` is, or the newest whole one in it.

    Raises:
        InputError: there is none.
        FileError: all that are there are damaged.
    """
    path = Path(place)
    if (path / DESCRIPTION).is_file():
        return path
    if not path.is_dir():
        raise InputError(f"{name} {place}", "is no folder", "name a checkpoint, or the folder that --save was given")
    if found := newest(path):
        return found[0]
    raise InputError(f"{name} {place}", "holds no whole checkpoint", "name the folder that --save was given")


def read(path: Path) -> Training:
    """What a checkpoint says of itself.

    Raises:
        FileError: it is none of strategist's, or a file is missing or cut short.
    """
    if not (path / DESCRIPTION).is_file():
        raise FileError(path, f"holds no {DESCRIPTION}: this is no checkpoint of strategist's; name another")
    training = codec.load(Training, path / DESCRIPTION, any_size=True)
    for name, size in training.files.items():
        here = (path / name).stat().st_size if (path / name).is_file() else None
        if here != size:
            found = "is missing" if here is None else f"has {here} bytes"
            raise FileError(path / name, f"{found} of the {size} that were saved: the checkpoint is damaged; remove it")
    return training


def check(training: Training, path: Path, model: ModelShape, workload: Workload) -> None:
    """Whether a plan of this model and workload can go on from the checkpoint; layouts, knobs and batches may differ.

    Raises:
        InputError: what it holds is the state of something else.
    """
    if training.model != model:
        law = f"it holds {training.model.name}, the plan trains {model.name}"
        if training.model.name == model.name:
            law = f"its {model.name} has another shape than the plan's"
        raise InputError(f"checkpoint {path}", law, "resume with a plan of its model")
    for name in ("optimizer", "train", "precision", "lora_rank"):
        was, wanted = getattr(training.workload, name), getattr(workload, name)
        if was != wanted and not (name == "lora_rank" and workload.train == "full"):
            law = f"it was trained with {name} {was}, the plan has {wanted}"
            raise InputError(f"checkpoint {path}", law, f"plan with {name} {was}")
