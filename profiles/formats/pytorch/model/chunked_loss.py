import torch
import torch.nn.functional as F


class ChunkedLoss(torch.autograd.Function):
    """Mean cross entropy of the head's logits, a chunk at a time: the forward pass makes their gradients too (arXiv 2410.10989)."""

    @staticmethod
    # if: cuda and not fsdp and not lora and not fp32
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=getattr(torch, PRECISION))
    # end: cuda and not fsdp and not lora and not fp32
    # if: not cuda and not fsdp and not lora and not fp32
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=getattr(torch, PRECISION))
    # end: not cuda and not fsdp and not lora and not fp32
    def forward(context, hidden, weight, targets):
        loss, hidden_gradient = torch.zeros((), device=hidden.device), torch.empty_like(hidden)
        # if: not lora
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        # end: not lora
        # if: one_micro_batch
        token_weight = 1 / len(hidden)  # of a token in the mean
        # end: one_micro_batch
        # if: not one_micro_batch
        token_weight = 1 / len(hidden) / ACCUMULATION  # of a token in the mean
        # end: not one_micro_batch
        # if: fp16
        scaled_weight = token_weight * LossScale.value()  # factor on gradients
        # end: fp16
        chunks = (tensor.split(CHUNK_TOKENS) for tensor in (hidden, targets.unsqueeze(1), hidden_gradient))
        for x, target, x_gradient in zip(*chunks, strict=True):
            logits = F.linear(x, weight).float()
            logits -= logits.amax(1, keepdim=True)
            target_logits = logits.gather(1, target)
            sums = logits.exp_().sum(1, keepdim=True)
            loss += token_weight * (sums.log() - target_logits).sum()
            # if: fp16
            logits *= scaled_weight / sums
            logits.scatter_add_(1, target, torch.full_like(sums, -scaled_weight))
            # end: fp16
            # if: not fp16
            logits *= token_weight / sums
            logits.scatter_add_(1, target, torch.full_like(sums, -token_weight))
            # end: not fp16
            logits = logits.to(x.dtype)  # their gradients now
            torch.mm(logits, weight, out=x_gradient)
            # if: not lora
            weight_gradient += logits.t() @ x
            # end: not lora
            del logits
        # if: lora
        context.save_for_backward(hidden_gradient)
        # end: lora
        # if: not lora
        context.save_for_backward(hidden_gradient, weight_gradient.to(weight.dtype))
        # end: not lora
        return loss

    @staticmethod
    def backward(context, gradient):
        # if: lora
        return context.saved_tensors[0] * gradient, None, None
        # end: lora
        # if: not lora
        return *(tensor * gradient for tensor in context.saved_tensors), None
        # end: not lora
