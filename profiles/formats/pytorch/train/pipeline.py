import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B


# if: virtual
def make_stages(meshes, device):
    """The pipeline stages of this rank, and the function that runs a step on them (arXiv 2104.04473)."""
    rank, count, group = meshes["pp"].get_local_rank(), len(PP_LAYERS), meshes["pp"].get_group()
    parts = {stage: build(sum(PP_LAYERS[:stage]), sum(PP_LAYERS[: stage + 1]), meshes, device) for stage in range(rank, count, PP)}
    stages = [PipelineStage(part, stage, count, device, group=group) for stage, part in parts.items()]
    schedule = ScheduleInterleaved1F1B(stages, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
# end: virtual
# if: not virtual
def make_stages(meshes, device):
    """The pipeline stage of this rank, and the function that runs a step on it (arXiv 1811.06965)."""
    rank, group = meshes["pp"].get_local_rank(), meshes["pp"].get_group()
    part = build(sum(PP_LAYERS[:rank]), sum(PP_LAYERS[: rank + 1]), meshes, device)
    stage = PipelineStage(part, rank, PP, device, group=group)
    # if: gpipe
    schedule = ScheduleGPipe(stage, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
    # end: gpipe
    # if: not gpipe
    schedule = Schedule1F1B(stage, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
    # end: not gpipe
# end: not virtual

    def run(tokens, targets):
        """Forward and backward passes of all micro-batches; their mean loss, 0 on ranks without the last stage."""
        losses, inputs = [], (tokens,) if rank == 0 else ()
        schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
        # if: loss_parallel
        losses = [loss.to_local() for loss in losses]
        # end: loss_parallel
        return sum((loss.detach() for loss in losses), torch.zeros((), device=device))

    # if: virtual
    return list(parts.values()), run
    # end: virtual
    # if: not virtual
    return [part], run
    # end: not virtual
