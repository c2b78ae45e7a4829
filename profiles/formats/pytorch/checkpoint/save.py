import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def state_of(parameters, optimizer, counts):
    """The contents of a checkpoint, by names that do not depend on the layout: any plan of this model can resume from it."""
    state = {f"model.{name}": parameter.detach() for name, parameter in parameters.items()}
    # if: qlora
    state |= {name: packed.view(torch.uint8) for name, packed in state.items() if name.endswith("nf4")}  # for any precision
    # end: qlora
    # if: not sgd
    for name, parameter in parameters.items():
        state |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    # end: not sgd
    # if: fp16
    state["training.loss_scale"] = LossScale.state
    # end: fp16
    return {"training.counts": counts, **state}


# if: async
def save(folder, keep, state, group):
# end: async
# if: not async
def save(folder, keep, state):
# end: not async
    """Writes a checkpoint, which is whole once torch has written its .metadata; the newest ``keep`` stay."""
    # if: async
    dcp.save(state, checkpoint_id=folder / f"step-{int(state['training.counts'][0]):08}", process_group=group)
    # end: async
    # if: not async
    dcp.save(state, checkpoint_id=folder / f"step-{int(state['training.counts'][0]):08}")
    # end: not async
    if dist.get_rank() == 0:
        for old in sorted(folder.glob("step-*/.metadata"))[:-keep]:
            shutil.rmtree(old.parent)
