import torch.nn.functional as F


def loss_of(logits, targets):  # mean over tokens; a schedule adds up those of the micro-batches
    # if: fp16
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION * LossScale.value()
    # end: fp16
    # if: not fp16
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION
    # end: not fp16
