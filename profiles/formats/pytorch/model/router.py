import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd

# if: balance


class AddToLoss(torch.autograd.Function):
    """``x`` unchanged; in the backward pass ``loss`` gets a gradient as if it were added to the loss of the step."""

    @staticmethod
    def forward(context, x, loss):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        # if: fp16
        return gradient, gradient.new_full((), LossScale.value())
        # end: fp16
        # if: not fp16
        return gradient, gradient.new_ones(())
        # end: not fp16


# end: balance
# if: groups


def mask_groups(scores):
    """Scores with those outside of the best groups at -inf; a group counts its two best experts (arXiv 2412.19437)."""
    grouped = scores.detach().unflatten(-1, (ROUTER_GROUPS, -1))
    best_groups = grouped.topk(min(2, grouped.shape[-1])).values.sum(-1).topk(ROUTER_GROUPS_PER_TOKEN).indices
    excluded = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best_groups, False)
    return grouped.masked_fill(excluded.unsqueeze(-1), -torch.inf).flatten(-2)


# end: groups


class MixtureOfExperts(nn.Module):
    """Each token visits EXPERTS_PER_TOKEN of the EXPERTS (arXiv 1701.06538)."""

    def __init__(self):
        super().__init__()
        # if: router_bias
        self.router = nn.Linear(HIDDEN_SIZE, EXPERTS)
        # end: router_bias
        # if: not router_bias
        self.router = nn.Linear(HIDDEN_SIZE, EXPERTS, bias=False)
        # end: not router_bias
        # if: balance_bias
        self.register_buffer("balance_bias", torch.zeros(EXPERTS))  # affects the choice of experts only
        # end: balance_bias
        self.experts = Experts()
        # if: shared
        self.shared = FeedForward(SHARED_EXPERTS * EXPERT_FFN_SIZE)  # for every token
        # end: shared

    def forward(self, x):
        tokens = x.flatten(0, 1)
        # if: sigmoid
        scores = self.router(tokens).float().sigmoid().unflatten(0, x.shape[:2])
        # end: sigmoid
        # if: not sigmoid
        scores = self.router(tokens).float().softmax(-1).unflatten(0, x.shape[:2])
        # end: not sigmoid
        # if: balance_bias
        choice_scores = scores + self.balance_bias.to(x.device)
        # end: balance_bias
        # if: groups and balance_bias
        choice_scores = mask_groups(choice_scores)
        # end: groups and balance_bias
        # if: groups and not balance_bias
        choice_scores = mask_groups(scores)
        # end: groups and not balance_bias
        # if: chooses
        chosen = choice_scores.topk(EXPERTS_PER_TOKEN, sorted=False).indices
        # end: chooses
        # if: not chooses
        chosen = scores.topk(EXPERTS_PER_TOKEN, sorted=False).indices
        # end: not chooses
        weights = scores.gather(-1, chosen)
        # if: normalised
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        # end: normalised
        # if: balance and tp
        weights = AddToLoss.apply(weights, BALANCE_COEFFICIENT / (ACCUMULATION * TP) * self.balance_loss(scores, chosen))
        # end: balance and tp
        # if: balance and not tp and not one_micro_batch
        weights = AddToLoss.apply(weights, BALANCE_COEFFICIENT / ACCUMULATION * self.balance_loss(scores, chosen))
        # end: balance and not tp and not one_micro_batch
        # if: balance and not tp and one_micro_batch
        weights = AddToLoss.apply(weights, BALANCE_COEFFICIENT * self.balance_loss(scores, chosen))
        # end: balance and not tp and one_micro_batch
        # if: scaled
        weights = weights * ROUTED_SCALE
        # end: scaled
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        order = chosen.flatten().argsort(stable=True)  # of visits, by expert
        # if: ep
        rows = tokens[order // EXPERTS_PER_TOKEN]
        # Rows go to the ranks of their experts and back (arXiv 2006.16668); the number of rows of each expert goes first.
        received_counts = all_to_all_single(counts, None, None, self.group).view(EP, -1)  # from each rank, to each local expert
        send_sizes, receive_sizes = counts.view(EP, -1).sum(1).tolist(), received_counts.sum(1).tolist()
        rows = all_to_all_single_autograd(rows, receive_sizes, send_sizes, self.group)
        local_experts = torch.arange(EXPERTS // EP, device=x.device).repeat(EP)
        expert_order = local_experts.repeat_interleave(received_counts.flatten()).argsort(stable=True)
        results = self.experts(rows[expert_order], received_counts.sum(0))
        results = all_to_all_single_autograd(results[expert_order.argsort()], send_sizes, receive_sizes, self.group)
        # end: ep
        # if: not ep
        results = self.experts(tokens[order // EXPERTS_PER_TOKEN], counts)
        # end: not ep
        results = results[order.argsort()].unflatten(0, chosen.shape) * weights.unsqueeze(-1).to(x.dtype)
        # if: shared
        return results.sum(-2) + self.shared(tokens).view_as(x)
        # end: shared
        # if: not shared
        return results.sum(-2)
        # end: not shared
    # if: balance

    def balance_loss(self, scores, chosen):
        """The auxiliary loss of arXiv 2412.19437, section 2.1.2, mean over sequences: 1 where all experts are visited equally."""
        visits = torch.zeros_like(scores).scatter(-1, chosen, 1.0).sum(1)
        # if: shared_sequences
        for group in self.sequence_groups:  # ranks that hold other tokens of the same sequences
            dist.all_reduce(visits, group=group)
        # end: shared_sequences
        probabilities = (scores / scores.sum(-1, keepdim=True)).mean(1)
        return (visits * EXPERTS / (EXPERTS_PER_TOKEN * SEQ_LEN) * probabilities).sum(-1).mean()
    # end: balance
# if: lists_mixtures


def mixtures(part):
    return [layer.feed_forward for layer in part.layers.values() if isinstance(layer.feed_forward, MixtureOfExperts)]
# end: lists_mixtures
