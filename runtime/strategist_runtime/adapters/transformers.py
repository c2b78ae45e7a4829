"""Causal language models of Hugging Face's transformers, trained like the native decoder.

The model's code is that of transformers. FSDP2, recomputation and compilation by layer, mixed precision and adapters are ours;
tensor parallelism follows the model's own plan. Dropout is off, as in the native decoder: it would draw different numbers in
each layout.
"""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist_runtime.adapters.external_model import ExternalModel, largest_list
from strategist_runtime.adapters.transformers_tensor_parallel import apply_tensor_parallel
from strategist_runtime.compat.dtensor import copy_rows, local_part
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import StageSpec, plain_name, plain_names
from strategist_runtime.model.lora import ReadRows
from strategist_runtime.model.router import AddAuxiliaryLoss
from strategist_runtime.weights.hugging_face import TensorLocation
from strategist_runtime.weights.seeded import deviation, random_rows
from strategist_runtime.weights.source import BLOCK_ROWS, Source

try:
    from transformers import AutoConfig, AutoModelForCausalLM
except ModuleNotFoundError:
    raise InputError("--hf", "needs transformers", "install it: pip install 'torch-strategist[hf]'") from None

STANDARD_DEVIATION = 0.02
"""Standard deviation of matrices if the configuration has no ``initializer_range``."""


class CausalLM(ExternalModel):
    """Tokens [B, T] to logits [B, T, V]. If the model returns an auxiliary loss of experts, its gradient is added, multiplied by
    ``auxiliary_share`` and the configuration's ``router_aux_loss_coef``.
    """

    def __init__(self, model: Any, auxiliary_share: float = 1.0) -> None:
        list_name = largest_list(model.base_model)
        if list_name is None:
            raise InputError(f"--hf: {type(model.base_model).__name__}", "has no list of layers", "choose another model")
        names = ("model", _module_name(model, model.base_model), list_name)
        super().__init__(model.eval(), ".".join(filter(None, names)))
        self.auxiliary_share = auxiliary_share * getattr(model.config.get_text_config(), "router_aux_loss_coef", 0.0)

    @property
    def embedding(self) -> nn.Module:  # type: ignore[override]
        return self.model.get_input_embeddings()

    def forward(self, tokens: Tensor) -> Tensor:
        with self.forward_context():
            output = self.model(input_ids=tokens, use_cache=False)
            auxiliary = getattr(output, "aux_loss", None)
            return output.logits if auxiliary is None else AddAuxiliaryLoss.apply(output.logits, auxiliary * self.auxiliary_share)


class TransformersModelBuilder:
    """Builds the architecture in a folder with a config.json."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @cached_property
    def config(self) -> Any:
        try:
            return AutoConfig.from_pretrained(self.folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"--hf {self.folder}", f"is not a configuration of transformers: {reason}", "give its folder"
            ) from None

    def build(self, plan: Plan, stage_spec: StageSpec) -> CausalLM:
        """The whole model, on the meta device; ``stage_spec`` is always the whole model."""
        return CausalLM(self._model(), auxiliary_share=1 / plan.accumulation)

    def split(self, model: CausalLM, meshes: Meshes, plan: Plan) -> None:
        """Applies the model's own tensor parallel plan."""
        if meshes.tensor is not None:
            apply_tensor_parallel(model, model.model, meshes.tensor, loss_parallel=plan.candidate.knobs.loss_parallel)
            model.tie()

    def fill(self, model: CausalLM, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        """Allocates the parameters and sets their initial values, equal in every layout: seeded matrices, and transformers' own
        initial values for everything else; or the weights in the folder ``weights``, of which each rank reads its shards.
        """
        model.to_empty(device=device)
        model.tie()
        small_values = self._small_values(settings.seed)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(small_values[plain_name(name)])
            source = Source(settings.weights) if settings.weights else None
            for name, parameter in plain_names([model]):
                adapter = name.endswith(("lora_a", "lora_b"))
                local, lengths, offsets = local_part(parameter)
                if source is not None and parameter.is_floating_point() and not adapter:
                    local.copy_(source.window(TensorLocation(name=_name_in_files(name)), tuple(parameter.shape), lengths, offsets))
                elif parameter.dim() < 2:
                    local.copy_(small_values[name][tuple(slice(at, at + size) for at, size in zip(offsets, lengths, strict=True))])
                elif parameter.is_floating_point():
                    standard_deviation = deviation(name, parameter.shape[-1], plan.model) if adapter else self._deviation
                    _draw(parameter, local, offsets, f"{settings.seed}/{name}", standard_deviation)

    def rows_of(self, plan: Plan, settings: TrialSettings) -> ReadRows:
        """A function that reads or draws whole rows of a matrix."""
        if not settings.weights:
            return lambda name, columns, rows: random_rows(f"{settings.seed}/{name}", columns, self._deviation, rows)
        return partial(_read_rows, Source(settings.weights))

    @property
    def _deviation(self) -> float:
        return getattr(self.config.get_text_config(), "initializer_range", None) or STANDARD_DEVIATION

    def _model(self) -> Any:
        try:
            with torch.device("meta"):
                return AutoModelForCausalLM.from_config(self.config, dtype=torch.float32)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"--hf {self.folder}", f"is not a causal language model: {reason}", "choose another") from None

    def _small_values(self, seed: int) -> dict[str, Tensor]:
        """transformers' own initial values of buffers and 1-D parameters: norms, biases, rotary frequencies.

        Its initialiser runs on a second model, whose matrices stay on the meta device.
        """
        model = self._model()
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                if parameter.dim() < 2:
                    setattr(module, name, nn.Parameter(torch.empty(parameter.shape)))
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, torch.zeros(buffer.shape, dtype=buffer.dtype))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model.initialize_weights()
        values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {f"model.{name}": value.detach() for name, value in values.items() if value.device.type != "meta"}


def _draw(parameter: Tensor, local: Tensor, offsets: tuple[int, ...], name: str, standard_deviation: float) -> None:
    """Fills this rank's shard of a seeded matrix, or of a stack of matrices that are drawn separately."""
    if parameter.dim() > 2:
        for number, matrix in enumerate(local, offsets[0]):
            _draw(parameter[0], matrix, offsets[1:], f"{name}/{number}", standard_deviation)
        return
    for start, values in random_rows(
        name, parameter.shape[1], standard_deviation, range(offsets[0], offsets[0] + local.shape[0]), local.device
    ):
        copy_rows(local, offsets, start, values)


def _read_rows(source: Source, name: str, columns: int, rows: range) -> Iterator[tuple[int, Tensor]]:
    for start in range(rows.start, rows.stop, BLOCK_ROWS):
        lengths = (min(BLOCK_ROWS, rows.stop - start), columns)
        yield start, source.window(TensorLocation(name=_name_in_files(name)), None, lengths, (start, 0)).float()


def _name_in_files(name: str) -> str:
    """The name of one of our parameters in the files."""
    return name.removeprefix("model.")


def _module_name(model: nn.Module, target: nn.Module) -> str:
    return next(name for name, module in model.named_modules() if module is target)
