from itertools import accumulate

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class


def make_stages(meshes, device, weights):
    """The pipeline stages of this rank, and the function that runs a step on them (arXiv 2104.04473)."""
    count, rank = PP * PP_VIRTUAL_STAGES, meshes["pp"].get_local_rank()
    numbers, ends = range(rank, count, PP), [0, *accumulate(PP_LAYERS)]
    parts = [build(ends[stage], ends[stage + 1], meshes, device, weights) for stage in numbers]
    group = meshes["pp"].get_group()
    stages = [PipelineStage(part, stage, count, device, group=group) for part, stage in zip(parts, numbers, strict=True)]
    kind = get_schedule_class(PP_SCHEDULE)
    single = issubclass(kind, PipelineScheduleSingle)
    schedule = kind(stages[0] if single else stages, ACCUMULATION, loss_fn=loss_of, scale_grads=False)

    def run(tokens, targets):
        """Forward and backward passes of all micro-batches; their mean loss, 0 on ranks without the last stage."""
        losses = []
        inputs = (tokens,) if 0 in numbers else ()
        compared = {"target": targets, "losses": losses} if count - 1 in numbers else {}
        schedule.step(*inputs, **compared, return_outputs=False)
        return sum((local(loss.detach()) for loss in losses), torch.zeros((), device=device))

    return parts, run
