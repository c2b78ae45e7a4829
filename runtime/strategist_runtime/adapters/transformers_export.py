"""Export of a transformers model as a folder, written by transformers' own code."""

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist_runtime.adapters.transformers import CausalLM
from strategist_runtime.precision import compute_dtype
from strategist_runtime.weights.export import gathered


def export_external_model(model: CausalLM, plan: Plan, folder: str, device: torch.device) -> None:
    """Writes the whole model in the compute type of the plan; every rank calls it. Rank 0 holds the whole model in host memory.

    Raises:
        FileError: the folder cannot be written.
    """
    tensors = {name.removeprefix("model."): values for name, values in gathered([model], plan, device)[1]}
    if dist.get_rank() == 0:
        with torch.device("meta"):
            empty_model = AutoModelForCausalLM.from_config(model.model.config, dtype=compute_dtype(plan))
        try:
            empty_model.save_pretrained(folder, state_dict=tensors)
        except OSError as error:
            raise FileError(folder, f"cannot be written: {error}") from None
    dist.barrier()
