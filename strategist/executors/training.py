"""What a training asks of this machine, looked at before a process starts: its checkpoints, its data, where it writes."""

import shlex
from pathlib import Path
from tempfile import TemporaryFile

from strategist.contract import checkpoint
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError


def check_training(plan: Plan, settings: TrialSettings) -> None:
    """Whether there is what the settings name.

    Raises:
        InputError, FileError: a checkpoint or the data is missing, damaged or of something else, or what is there would be lost.
    """
    if settings.data and not Path(settings.data).exists():
        raise FileError(settings.data, "is not there; name a file of tokens, or a data set's folder")
    if plan.workload.document_tokens and settings.data and settings.document_end is None:
        law = f"the plan is for documents of {plan.workload.document_tokens} tokens, and nothing says where those end"
        raise InputError(f"--data {settings.data}", law, "add --document-end TOKEN, or plan without --document-tokens")
    if settings.elastic and not settings.save:
        raise InputError("--elastic", "goes on from checkpoints, and there are none", "add --save DIR")
    begun = _check_resumed(plan, settings) if settings.resume else None
    if settings.save:
        _check_saved(settings.save, begun)
    if settings.export and any(Path(settings.export).glob("*.safetensors")):
        raise InputError(f"--export-weights {settings.export}", "holds a model's weights already", "name another folder")
    _make_folders(settings)


def _check_saved(save: str, begun: Path | None) -> None:
    """Whether the folder holds nothing newer than what is gone on from."""
    own = checkpoint.whole(save)
    if own and (begun is None or begun.resolve() != own[-1].resolve()):
        law = f"holds checkpoints up to step {checkpoint.step_of(own[-1])}"
        raise InputError(f"--save {save}", law, f"go on with --resume {shlex.quote(save)}, or name another folder")


def _make_folders(settings: TrialSettings) -> None:
    """Some are written to when all steps are done only, and a training must not end there for want of a folder."""
    asked = {"--save": settings.save, "--log": settings.log, "--trace": settings.trace, "--export-weights": settings.export}
    for option, folder in ((option, folder) for option, folder in asked.items() if folder):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f"{option} {folder}", f"cannot be written: {error.strerror}", "choose another folder") from None


def _check_resumed(plan: Plan, settings: TrialSettings) -> Path:
    path = checkpoint.find(settings.resume)
    training = checkpoint.read(path)
    checkpoint.check(training, path, plan.model, plan.workload)
    if settings.total_steps is not None and training.step >= settings.total_steps:
        raise InputError(f"--steps {settings.total_steps}", f"{path} is at step {training.step} already", "ask for more")
    if training.settings.seed != settings.seed:
        law = f"{path} was trained with seed {training.settings.seed}, which gives the order of its data"
        raise InputError(f"--seed {settings.seed}", law, "leave it out")
    return path
