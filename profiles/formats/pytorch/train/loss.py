import torch.nn.functional as F


def loss_of(logits, targets):
    """Cross-entropy, its mean over the tokens of a micro-batch divided by the number of micro-batches of a step."""
    # if: fp16
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION * LossScale.value()
    # end: fp16
    # if: not fp16
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION
    # end: not fp16
