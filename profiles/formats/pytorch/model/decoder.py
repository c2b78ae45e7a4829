from torch import nn


class Layer(nn.Module):
    # if: dense_first
    def __init__(self, index):
    # end: dense_first
    # if: not dense_first
    def __init__(self):
    # end: not dense_first
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.attention = Attention()
        self.feed_forward_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        # if: not moe
        self.feed_forward = FeedForward(FFN_SIZE)
        # end: not moe
        # if: moe and not dense_first
        self.feed_forward = MixtureOfExperts()
        # end: moe and not dense_first
        # if: dense_first
        self.feed_forward = FeedForward(FFN_SIZE) if index < FIRST_DENSE_LAYERS else MixtureOfExperts()
        # end: dense_first

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


# if: pp
class Decoder(nn.Module):
    """Layers ``first`` to ``last - 1``, named as in the whole model; the embedding is with its first, the head with its last."""

    def __init__(self, first, last):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE) if first == 0 else None
        # if: dense_first
        self.layers = nn.ModuleDict({str(index): Layer(index) for index in range(first, last)})
        # end: dense_first
        # if: not dense_first
        self.layers = nn.ModuleDict({str(index): Layer() for index in range(first, last)})
        # end: not dense_first
        self.norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON) if last == LAYERS else None
        self.head = nn.Linear(HIDDEN_SIZE, VOCAB_SIZE, bias=False) if last == LAYERS else None

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        # if: compile and tp
        x = x.clone()  # waits for the collective: torch gives an argument of a compiled layer that is under way no gradient
        # end: compile and tp
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


# end: pp
# if: not pp
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE)
        # if: dense_first
        self.layers = nn.ModuleDict({str(index): Layer(index) for index in range(LAYERS)})
        # end: dense_first
        # if: not dense_first
        self.layers = nn.ModuleDict({str(index): Layer() for index in range(LAYERS)})
        # end: not dense_first
        self.norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.head = nn.Linear(HIDDEN_SIZE, VOCAB_SIZE, bias=False)
        # if: tied
        self.head.weight = self.embedding.weight
        # end: tied

    # if: chunked_loss
    def forward(self, tokens, targets):
    # end: chunked_loss
    # if: not chunked_loss
    def forward(self, tokens):
    # end: not chunked_loss
        x = self.embedding(tokens)
        # if: compile and tp
        x = x.clone()  # waits for the collective: torch gives an argument of a compiled layer that is under way no gradient
        # end: compile and tp
        for layer in self.layers.values():
            x = layer(x)
        # if: chunked_loss
        # if: fsdp
        return ChunkedLoss.apply(self.norm(x).flatten(0, 1), self.head.weight, targets.flatten())  # FSDP2 gathers the head here
        # end: fsdp
        # if: not fsdp
        return ChunkedLoss.apply(self.norm(x).flatten(0, 1), self.head.weight, targets.flatten())
        # end: not fsdp
        # end: chunked_loss
        # if: not chunked_loss
        return self.head(self.norm(x))
        # end: not chunked_loss
# end: not pp
