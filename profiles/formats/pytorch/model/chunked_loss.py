import torch
import torch.nn.functional as F


class ChunkedLoss(torch.autograd.Function):
    """Mean cross entropy of hidden states [N, HIDDEN_SIZE] times the head's weight, over chunks of CHUNK_TOKENS tokens. Logits of
    one chunk exist at a time, so gradients are computed in the forward pass (Liger, arXiv 2410.10989)."""

    @staticmethod
    # if: cuda and not fsdp and not lora and not fp32
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=getattr(torch, PRECISION))
    # end: cuda and not fsdp and not lora and not fp32
    # if: not cuda and not fsdp and not lora and not fp32
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=getattr(torch, PRECISION))
    # end: not cuda and not fsdp and not lora and not fp32
    def forward(context, hidden, weight, targets):
        loss, to_hidden = torch.zeros((), device=hidden.device), torch.empty_like(hidden)
        # if: not lora
        to_weight = torch.zeros_like(weight, dtype=torch.float32)
        # end: not lora
        # if: single
        share = 1 / len(hidden)  # of a token in the mean
        # end: single
        # if: not single
        share = 1 / len(hidden) / ACCUMULATION  # of a token in the mean
        # end: not single
        # if: fp16
        scaled = share * LossScale.value()  # its share of gradients
        # end: fp16
        parts = (tensor.split(CHUNK_TOKENS) for tensor in (hidden, targets.unsqueeze(1), to_hidden))
        for x, target, to_x in zip(*parts, strict=True):
            logits = F.linear(x, weight).float()
            logits -= logits.amax(1, keepdim=True)
            found = logits.gather(1, target)
            sums = logits.exp_().sum(1, keepdim=True)
            loss += share * (sums.log() - found).sum()
            # if: fp16
            logits *= scaled / sums
            logits.scatter_add_(1, target, torch.full_like(sums, -scaled))
            # end: fp16
            # if: not fp16
            logits *= share / sums
            logits.scatter_add_(1, target, torch.full_like(sums, -share))
            # end: not fp16
            logits = logits.to(x.dtype)  # which are their gradient now
            torch.mm(logits, weight, out=to_x)
            # if: not lora
            to_weight += logits.t() @ x
            # end: not lora
            del logits
        # if: lora
        context.save_for_backward(to_hidden)
        # end: lora
        # if: not lora
        context.save_for_backward(to_hidden, to_weight.to(weight.dtype))
        # end: not lora
        return loss

    @staticmethod
    def backward(context, gradient):
        # if: lora
        [to_hidden] = context.saved_tensors
        return to_hidden * gradient.to(to_hidden.dtype), None, None
        # end: lora
        # if: not lora
        to_hidden, to_weight = (tensor * gradient.to(tensor.dtype) for tensor in context.saved_tensors)
        return to_hidden, to_weight, None
        # end: not lora
