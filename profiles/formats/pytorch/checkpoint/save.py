import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def state_of(parameters, optimizer, counts):
    """Everything that a checkpoint holds, by names that no layout changes: any plan of this model can resume from it."""
    state = {f"model.{name}": parameter.detach() for name, parameter in parameters.items()}
    # if: not sgd
    for name, parameter in parameters.items():
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    # end: not sgd
    # if: fp16
    state["training.loss_scale"] = LossScale.state
    # end: fp16
    return {"training.counts": counts, **state}


def save(folder, keep, parameters, optimizer, counts):
    """Writes a checkpoint into a folder of its own, which gets its name when it is whole; the newest ``keep`` stay."""
    final = folder / f"step-{int(counts[0]):08}"
    dcp.save(state_of(parameters, optimizer, counts), checkpoint_id=f"{final}.partial")
    if dist.get_rank() == 0:
        Path(f"{final}.partial").rename(final)
        for old in sorted(folder.glob("step-????????"))[:-keep]:
            shutil.rmtree(old)


def newest(folder):
    """The newest checkpoint in a folder; None without any."""
    return max(folder.glob("step-????????"), default=None) if folder else None
