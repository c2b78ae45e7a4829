"""A user's model: ``MODULE:FUNCTION`` names a function without arguments that returns an ``nn.Module``, from token ids [B, T] to
logits [B, T, V]; or a tuple of the module, its loss and its tensor parallel plan, without the last one or two if not needed.

The loss takes the module's output and the targets [B, T], and returns the mean over the micro-batch; None is cross entropy. The
tensor parallel plan is an argument of ``torch.distributed.tensor.parallel.parallelize_module``: parallel styles by module name.
"""

import importlib
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist_runtime.adapters.external_model import ExternalModel, largest_list
from strategist_runtime.builder import NativeModelBuilder
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import StageSpec
from strategist_runtime.model.lora import ReadRows
from strategist_runtime.model.loss import Loss

OPTION = "--model-code"
LossFunction = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class UserModel:
    """The user's model function; each build calls it."""

    reference: str
    function: Callable[[], Any]

    def build(self) -> tuple[nn.Module, LossFunction | None, Mapping[str, ParallelStyle]]:
        """The module, its loss and its tensor parallel plan.

        Raises:
            InputError: the function raises or returns something else.
        """
        try:
            found = self.function()
        except Exception as error:  # any error of the user's code
            raise user_error(self.reference, error) from error
        items = found if isinstance(found, tuple) else (found,)
        module, loss, styles = (*items, None, None, None)[:3]
        known = (
            isinstance(module, nn.Module) and (loss is None or callable(loss)) and (styles is None or isinstance(styles, Mapping))
        )
        if not known or len(items) > 3:
            law = f"returned {_type_names(found)}, not an nn.Module, or a tuple of it, its loss and its plan of tensor parallelism"
            raise InputError(f"{OPTION} {self.reference}", law, "return one of these")
        return module, loss, styles or {}


def find_model_function(reference: str) -> UserModel:
    """The function that ``MODULE:FUNCTION`` names; the module must be importable from the current folder.

    Raises:
        InputError: there is no such module or function, or importing it fails.
    """
    name, _, function = reference.partition(":")
    if not name or not function.isidentifier():
        raise InputError(f"{OPTION} {reference}", "names no function", f"write MODULE:FUNCTION, e.g. {OPTION} my_module:build")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name + ".").startswith(error.name + "."):
            advice = "run it from the folder of the module, or install it"
            raise InputError(f"{OPTION} {reference}", f"there is no module {error.name}", advice) from None
        raise user_error(reference, error) from error
    except Exception as error:  # any error of the user's code
        raise user_error(reference, error) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise InputError(f"{OPTION} {reference}", f"{name} has no function {function}", "name one of it")
    return UserModel(reference=reference, function=found)


class UserLoss(Loss):
    """The loss of the user's module, with loss scaling in fp16."""

    def __init__(self, plan: Plan, function: LossFunction) -> None:
        super().__init__(plan)
        self.function = function

    def __call__(self, output: Any, targets: Tensor) -> Tensor:
        loss = self.function(output, targets) / self.micro_batches
        return loss if self.scale is None else self.scale.scale_gradients(loss)


class UserModelBuilder:
    """Builds the user's module on tensors without values."""

    def __init__(self, user_model: UserModel) -> None:
        self.user_model = user_model
        self.styles: Mapping[str, ParallelStyle] = {}
        self.function: LossFunction | None = None

    def build(self, plan: Plan, stage_spec: StageSpec) -> ExternalModel:
        """The whole module; ``stage_spec`` is always the whole model."""
        module, self.function, self.styles = self.user_model.build()
        stack = largest_list(module)
        if stack is None:
            law = (
                f"{type(module).__name__} has no nn.ModuleList or nn.Sequential; its members are sharded and recomputed one by one"
            )
            raise InputError(f"{OPTION} {self.user_model.reference}", law, "keep its layers in one")
        return ExternalModel(module, ".".join(filter(None, ("model", stack))))

    def split(self, model: ExternalModel, meshes: Meshes, plan: Plan) -> None:
        """Applies the module's own tensor parallel plan."""
        if meshes.tensor is not None:
            if not self.styles:
                law = f"{self.user_model.reference} returned no plan of tensor parallelism"
                raise InputError(f"tp {meshes.tensor.size()}", law, "return (module, loss, plan), or choose tp 1")
            parallelize_module(model.model, meshes.tensor, dict(self.styles))
            model.tie()

    def fill(self, model: ExternalModel, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        """Does nothing: the module is on its device already, and has no values."""

    def rows_of(self, plan: Plan, settings: TrialSettings) -> ReadRows:
        """The native decoder's; a user's model is never quantised."""
        return NativeModelBuilder().rows_of(plan, settings)

    def loss(self, plan: Plan) -> Loss:
        """The loss of the module that was built."""
        return Loss(plan) if self.function is None else UserLoss(plan, self.function)


def user_code_location(error: Exception) -> str:
    """File and line of the innermost frame in the user's code, that is outside of this package, torch and installed packages;
    empty if there is none.
    """
    runtime_folder, torch_folder = (
        Path(__file__).resolve().parent.parent,
        Path(torch.__file__).parent,
    )  # torch may lie in another environment
    excluded = (runtime_folder, torch_folder, *map(Path, set(sysconfig.get_paths().values())))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not any(path.is_relative_to(folder) for folder in excluded):
            return f"{path.name}:{frame.lineno}"
    return ""


def user_error(reference: str, error: Exception) -> InputError:
    """An error of the user's code, in one line."""
    message = (str(error).strip().splitlines() or [""])[0]
    location = user_code_location(error)
    law = f"raised {type(error).__name__}: {message}" + (f" ({location})" if location else "")
    return InputError(f"{OPTION} {reference}", law, "correct it")


def _type_names(found: Any) -> str:
    return f"({', '.join(type(item).__name__ for item in found)})" if isinstance(found, tuple) else type(found).__name__
