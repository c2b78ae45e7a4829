"""Checks before a training starts: its checkpoints, its data and its output folders."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from strategist.contract import checkpoint
from strategist.contract.checkpoint import DEFAULTS
from strategist.contract.data_source import sources_of
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError


def check_training(plan: Plan, settings: TrialSettings) -> None:
    """Checks the files and folders that the settings name.

    Raises:
        InputError, FileError: a checkpoint or the data is missing, damaged or does not match the plan; or existing files would
            be overwritten.
    """
    _check_data(plan, settings)
    _check_update(plan, settings)
    if settings.wandb and find_spec("wandb") is None:
        raise InputError(
            f"--wandb {settings.wandb}", "needs wandb, which is not installed", "pip install 'torch-strategist[wandb]'"
        )
    if settings.elastic and not settings.save:
        raise InputError("--elastic", "continues from checkpoints, and none are saved", "add --save DIR")
    begun = _check_resumed(plan, settings) if settings.resume else None
    if settings.save:
        _check_saved(settings.save, begun)
    if settings.export and any(Path(settings.export).glob("*.safetensors")):
        raise InputError(f"--export-weights {settings.export}", "holds a model's weights already", "name another folder")
    _make_folders(settings)


def _check_data(plan: Plan, settings: TrialSettings) -> None:
    """Checks that the data exist and can be read as the plan requires."""
    sources = {"--data": sources_of(settings.data), "--eval-data": sources_of(settings.evaluation_data, "--eval-data")}
    for option, source in ((option, source) for option, found in sources.items() for source in found):
        if not Path(source.path).exists():
            raise FileError(source.path, "is not there; name a file of tokens or examples, or a data set's folder")
        tokenizer = settings.tokenizer or settings.weights or settings.hugging_face
        if source.holds_examples and not tokenizer:
            law = "holds examples, which are tokenised first"
            raise InputError(f"{option} {source.path}", law, "add --tokenizer DIR, the folder of a tokenizer.json")
    if settings.tokenizer and not Path(settings.tokenizer).exists():
        raise FileError(settings.tokenizer, "is not there; name a tokenizer.json, or its folder")
    if plan.workload.document_tokens and settings.data and not settings.document_tokens(plan.workload):
        law = f"the plan is for documents of {plan.workload.document_tokens} tokens, and no option gives the token that ends them"
        hint = "add --document-end TOKEN, or plan without --document-tokens"
        raise InputError(f"--data {sources['--data'][0].path}", law, hint)


def _check_update(plan: Plan, settings: TrialSettings) -> None:
    """Checks that the plan's optimizer supports the settings."""
    if plan.candidate.knobs.optimizer_in_backward:
        law = "the plan updates in the backward pass, before the gradient is known"
        if settings.non_finite == "skip":
            raise InputError("--non-finite skip", law, "leave it out, or plan with --fix optimizer_in_backward=false")
        if settings.clip_norm not in (None, DEFAULTS.clip_norm):
            hint = "write --clip-norm none, or plan with --fix optimizer_in_backward=false"
            raise InputError(f"--clip-norm {settings.clip_norm}", law, hint)
    if settings.betas is not None and plan.workload.optimizer == "sgd":
        raise InputError("--betas", "are for AdamW, and the plan's optimizer is sgd", "leave them out")


def _check_saved(save: str, begun: Path | None) -> None:
    """Checks that the folder holds no newer checkpoint than the one that the training resumes from."""
    newest = checkpoint.newest(save)
    if newest is not None and (begun is None or begun.resolve() != newest[0].resolve()):
        law = f"holds checkpoints up to step {newest[1].step}"
        raise InputError(f"--save {save}", law, f"go on with --resume {shlex.quote(save)}, or name another folder")


def _make_folders(settings: TrialSettings) -> None:
    """Creates the output folders and checks that they are writable: some are written only after the last step, which must not
    fail then.
    """
    folders = {"--save": settings.save, "--log": settings.log, "--trace": settings.trace, "--export-weights": settings.export}
    for option, folder in ((option, folder) for option, folder in folders.items() if folder):
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
    min_steps = training.step + (not settings.export)  # with --export-weights, no further step is needed
    if settings.total_steps is not None and settings.total_steps < min_steps:
        raise InputError(f"--steps {settings.total_steps}", f"{path} is at step {training.step} already", "ask for more")
    if training.settings.seed != settings.seed:
        law = f"{path} was trained with seed {training.settings.seed}, which gives the order of its data"
        raise InputError(f"--seed {settings.seed}", law, "leave it out")
    return path
