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
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    # if: balance_bias
    for part in parts:
        state |= {f"model.{name}": buffer for name, buffer in getattr(part, "module", part).named_buffers()}
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
    """The newest checkpoint in a folder, or the folder itself if it is one; None without any."""
    if folder and Path(folder, ".metadata").exists():
        return Path(folder)
    return max(Path(folder).glob("step-????????"), default=None) if folder else None


def resume(path, parts, optimizer, counts):
    """Brings back what was saved, under this plan or another one; ``counts`` then holds those of the checkpoint."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:  # an empty step makes the optimizer's states
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    state = state_of(parts, optimizer, counts)
    # if: fp16
    if "training.loss_scale" not in dcp.FileSystemReader(path).read_metadata().state_dict_metadata:
        del state["training.loss_scale"]  # of a training in another precision
    # end: fp16
    dcp.load(state, checkpoint_id=path)
