import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def state_of(parts, optimizer, counts):
    """Everything that a checkpoint holds, by names that no layout changes: any plan of this model can resume from it."""
    state = {"training.counts": counts}
    # if: fp16
    state["training.loss_scale"] = LossScale.state
    # end: fp16
    for name, parameter in named(parts):
        state[f"model.{name}"] = parameter.detach()
        # if: not sgd
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
        # end: not sgd
    # if: balance_bias
    for part in parts:
        state |= {f"model.{name}": buffer for name, buffer in part.named_buffers()}
    # end: balance_bias
    return state


def save(folder, keep, parts, optimizer, counts):
    """Writes a checkpoint into a folder of its own, which gets its name when it is whole; the newest ``keep`` stay."""
    final = Path(folder, f"step-{int(counts[0]):08}")
    partial = final.with_suffix(".partial")
    dcp.save(state_of(parts, optimizer, counts), checkpoint_id=partial)
    if dist.get_rank() == 0:
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        for old in sorted(Path(folder).glob("step-????????"))[:-keep]:
            shutil.rmtree(old)
    dist.barrier()


def newest(folder):
    """The newest checkpoint in a folder; None without any."""
    return max(Path(folder).glob("step-????????"), default=None) if folder else None
