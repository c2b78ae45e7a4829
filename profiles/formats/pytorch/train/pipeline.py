from itertools import accumulate

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class


# if: virtual
def make_stages(meshes, device):
    """The pipeline stages of this rank, and the function that runs a step on them (arXiv 2104.04473)."""
    count, group = PP * PP_VIRTUAL_STAGES, meshes["pp"].get_group()
    numbers, ends = range(meshes["pp"].get_local_rank(), count, PP), [0, *accumulate(PP_LAYERS)]
    parts = [build(ends[stage], ends[stage + 1], meshes, device) for stage in numbers]
    stages = [PipelineStage(part, stage, count, device, group=group) for part, stage in zip(parts, numbers, strict=True)]
    schedule = get_schedule_class(PP_SCHEDULE)(stages, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
    has_first, has_last = 0 in numbers, count - 1 in numbers
# end: virtual
# if: not virtual
def make_stages(meshes, device):
    """The pipeline stage of this rank, and the function that runs a step on it (arXiv 1811.06965)."""
    number, ends = meshes["pp"].get_local_rank(), [0, *accumulate(PP_LAYERS)]
    parts = [build(ends[number], ends[number + 1], meshes, device)]
    stage = PipelineStage(parts[0], number, PP, device, group=meshes["pp"].get_group())
    schedule = get_schedule_class(PP_SCHEDULE)(stage, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
    has_first, has_last = number == 0, number == PP - 1
# end: not virtual

    def run(tokens, targets):
        """Forward and backward passes of all micro-batches; their mean loss, 0 on ranks without the last stage."""
        losses = []
        inputs = (tokens,) if has_first else ()
        compared = {"target": targets, "losses": losses} if has_last else {}
        schedule.step(*inputs, **compared, return_outputs=False)
        # if: loss_parallel
        losses = [loss.to_local() for loss in losses]
        # end: loss_parallel
        return sum((loss.detach() for loss in losses), torch.zeros((), device=device))

    return parts, run
