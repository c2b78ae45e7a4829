import torch
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B


# if: virtual
def make_stages(meshes, device):
    """The pipeline stages of this rank, and the schedule of a step on them (arXiv 2104.04473)."""
    def loss_of(logits, targets):  # mean over tokens; a schedule adds up those of the micro-batches
        # if: fp16
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION * LossScale.value()
        # end: fp16
        # if: not fp16
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION
        # end: not fp16
    rank, count, group = meshes["pp"].get_local_rank(), len(PP_LAYERS), meshes["pp"].get_group()
    parts = {stage: build(sum(PP_LAYERS[:stage]), sum(PP_LAYERS[: stage + 1]), meshes, device) for stage in range(rank, count, PP)}
    stages = [PipelineStage(part, stage, count, device, group=group) for stage, part in parts.items()]
    return list(parts.values()), ScheduleInterleaved1F1B(stages, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
# end: virtual
# if: not virtual
def make_stages(meshes, device):
    """The pipeline stage of this rank, and the schedule of a step on it (arXiv 1811.06965)."""
    def loss_of(logits, targets):  # mean over tokens; a schedule adds up those of the micro-batches
        # if: fp16
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION * LossScale.value()
        # end: fp16
        # if: not fp16
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION
        # end: not fp16
    rank, group = meshes["pp"].get_local_rank(), meshes["pp"].get_group()
    part = build(sum(PP_LAYERS[:rank]), sum(PP_LAYERS[: rank + 1]), meshes, device)
    stage = PipelineStage(part, rank, PP, device, group=group)
    # if: gpipe
    return [part], ScheduleGPipe(stage, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
    # end: gpipe
    # if: not gpipe
    return [part], Schedule1F1B(stage, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
    # end: not gpipe
# end: not virtual
