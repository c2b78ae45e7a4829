"""ModelShape: the shape of a decoder-only transformer, and its exact parameter counts."""

from collections import Counter
from functools import cached_property

from strategist.contract.codec import added, shared
from strategist.contract.name_rules import check_name
from strategist.errors import InputError
from strategist.frozen import frozen

ROUTER_SCORES = ("softmax", "sigmoid")
ACTIVATION_PARAMETERS = {"xielu": 2}
"""Trained parameters of a feed-forward's activation function, by its name (xIELU: arXiv 2411.13010)."""


@frozen
class MoEShape:
    """Mixture-of-experts feed-forward: ``experts`` routed experts, of which each token uses ``experts_per_token``.

    first_dense_layers: number of first layers with a dense feed-forward.
    router_parameter_bias: the router's linear has a bias (gpt-oss).
    router_balance_bias: a bias per expert affects only the selection of experts (DeepSeek-V3).
    shared_expert_gate: a linear with one output weighs the shared experts of each token (Qwen2-MoE).

    The fields below do not change the price:

    router_score: softmax or sigmoid.
    router_normalised: the scores of the selected experts are divided by their sum.
    router_groups, router_groups_per_token: experts are selected from the best ``router_groups_per_token`` of ``router_groups``
        equal groups.
    routed_scale: factor on the output of routed experts.
    balance_coefficient: weight of each layer's auxiliary load-balancing loss; 0 for none.
    """

    experts: int
    experts_per_token: int
    expert_ffn_size: int
    shared_experts: int = 0
    first_dense_layers: int = 0
    router_parameter_bias: bool = False
    router_balance_bias: bool = False
    router_score: str = added("softmax")
    router_normalised: bool = added(True)
    router_groups: int = added(1)
    router_groups_per_token: int = added(1)
    routed_scale: float = added(1.0)
    balance_coefficient: float = added(0.001)
    shared_expert_gate: bool = added(False)

    def __post_init__(self) -> None:
        if self.router_score not in ROUTER_SCORES:
            raise InputError(f"router_score {self.router_score!r}", "is softmax or sigmoid", "correct the shape")
        within = self.experts // max(self.router_groups, 1) * self.router_groups_per_token
        if self.router_groups < 1 or self.experts % self.router_groups or min(within, self.experts) < self.experts_per_token:
            groups = f"router_groups {self.router_groups}, router_groups_per_token {self.router_groups_per_token}"
            law = f"groups of equal size must reach {self.experts_per_token} of the {self.experts} experts"
            raise InputError(groups, law, "correct the shape")


@frozen
class MLAShape:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): ranks and head sizes, in elements.

    ``query_rank`` is 0 where queries are projected directly, without a latent.
    """

    query_rank: int
    key_value_rank: int
    rope_head_size: int
    nope_head_size: int
    value_head_size: int


@frozen
class RopeScaling:
    """Scaling of rotary frequencies: a model pretrained with ``original_positions`` positions, extended by ``factor``.

    kind: linear (arXiv 2306.15595), llama3 (arXiv 2407.21783, as in the model's code), yarn (arXiv 2309.00071), or the name of
        another.
    low_frequency, high_frequency: bounds of llama3.
    fast_turns, slow_turns: bounds of yarn, in turns over the original positions; rounded outwards with ``whole_bounds``.
    magnitude, magnitude_all: weights of yarn's correction of attention scores in DeepSeek's models (mscale, mscale_all_dim); 0 for
        none.
    attention_factor: replaces yarn's own attention factor; 0 keeps yarn's own.
    """

    kind: str
    factor: float = 1.0
    original_positions: int = 0
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    whole_bounds: bool = True
    magnitude: float = 0.0
    magnitude_all: float = 0.0
    attention_factor: float = 0.0


@shared
@frozen
class ModelShape:
    """Shape of a decoder-only transformer. Sizes are in elements; ``ffn_matrices`` is 3 for gated feed-forwards (SwiGLU), else 2.

    Weights of a trained model depend on ``norm_epsilon``, ``activation`` and ``rope_scaling``, the price does not.

    activation: empty for silu in gated feed-forwards and gelu_tanh in others.
    sliding_window: tokens, 0 for none; every ``full_attention_every``-th layer has full attention instead.
    layer_norms: norms of the hidden state in a layer: 2 usually; 1 where attention and feed-forward read the same norm's output
        (GPT-J), 4 where their outputs have norms, too (Gemma 2).
    norm_bias: a LayerNorm has a bias; of no effect on RMS norms.
    qk_norm_all_heads: norms of queries and keys span all heads (OLMo 2), not each head.
    embedding_norm: the token embedding's output has a norm (BLOOM).
    head_bias: the output projection has a bias (GPT-J).
    activation_limit: limit that the inputs of a gated activation are clamped to (gpt-oss), 0 for none.
    """

    name: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_size: int
    vocab_size: int
    ffn_matrices: int = 3
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    attention_sinks: bool = False
    norm: str = "rms"
    learned_positions: int = 0
    rope_theta: float = 10000.0
    moe: MoEShape | None = None
    mla: MLAShape | None = None
    norm_epsilon: float = added(1e-5)
    activation: str = added("")
    rope_scaling: RopeScaling | None = added(None)
    sliding_window: int = added(0)
    full_attention_every: int = added(0)
    layer_norms: int = added(2)
    norm_bias: bool = added(True)
    qk_norm_all_heads: bool = added(False)
    embedding_norm: bool = added(False)
    head_bias: bool = added(False)
    activation_limit: float = added(0.0)

    def __post_init__(self) -> None:
        check_name("model name", self.name)
        for name in ("layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise InputError(f"model {self.name}: {name} {getattr(self, name)}", "must be at least 1", "correct the shape")
        if self.heads % self.kv_heads:
            raise InputError(
                f"model {self.name}: heads {self.heads}, kv_heads {self.kv_heads}",
                "kv_heads must divide heads", "correct the shape",
            )  # fmt: skip
        if self.norm not in ("rms", "layer"):
            raise InputError(f"model {self.name}: norm {self.norm!r}", "is rms or layer", "correct the shape")
        if self.ffn_matrices not in (2, 3):
            raise InputError(f"model {self.name}: ffn_matrices {self.ffn_matrices}", "is 2 or 3", "correct the shape")
        if self.layer_norms not in (1, 2, 4):
            raise InputError(f"model {self.name}: layer_norms {self.layer_norms}", "is 1, 2 or 4", "correct the shape")

    @property
    def ffn_activation(self) -> str:
        """Name of the feed-forward's activation function."""
        return self.activation or ("silu" if self.ffn_matrices == 3 else "gelu_tanh")

    def window(self, layer: int) -> int:
        """Number of tokens that a token of ``layer`` (from 0) attends to, itself included; 0 for all tokens before it."""
        whole = self.full_attention_every and (layer + 1) % self.full_attention_every == 0
        return 0 if whole else self.sliding_window

    @cached_property
    def windows(self) -> dict[int, int]:
        """Number of layers by window size in tokens (0: full attention)."""
        return dict(Counter(self.window(layer) for layer in range(self.layers)))

    @property
    def _norm_parameters(self) -> int:
        return self.hidden_size * (2 if self.norm == "layer" and self.norm_bias else 1)

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer's attention, without the norm before it."""
        h = self.hidden_size
        if self.mla is not None:
            m = self.mla
            queries = self.heads * (m.nope_head_size + m.rope_head_size)
            query = h * m.query_rank + m.query_rank + m.query_rank * queries if m.query_rank else h * queries
            key_value = h * (m.key_value_rank + m.rope_head_size) + m.key_value_rank
            key_value += m.key_value_rank * self.heads * (m.nope_head_size + m.value_head_size)
            return query + key_value + self.heads * m.value_head_size * h
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        count = h * q + 2 * h * kv + q * h
        count += (q + 2 * kv) * self.qkv_bias + h * self.output_bias
        normed = q + kv if self.qk_norm_all_heads else 2 * self.head_size
        return count + normed * self.qk_norm + self.heads * self.attention_sinks

    @property
    def rotary_size(self) -> int:
        """Elements of a head that have rotary position embeddings; 0 where positions are learned."""
        if self.learned_positions:
            return 0
        return self.mla.rope_head_size if self.mla else self.head_size

    @property
    def query_width(self) -> int:
        """Elements of one token's queries in a layer, over all heads."""
        return self.heads * (self.mla.nope_head_size + self.mla.rope_head_size if self.mla else self.head_size)

    @property
    def attended_width(self) -> int:
        """Elements of one token's attention output over all heads: the input of the output projection."""
        return self.heads * (self.mla.value_head_size if self.mla else self.head_size)

    @property
    def key_value_width(self) -> int:
        """Elements of one token's keys and values as the attention kernel reads them; with MLA, expanded from the latent per
        head.
        """
        return self.query_width + self.attended_width if self.mla else 2 * self.kv_heads * self.head_size

    def _ffn_parameters(self, width: int) -> int:
        bias = (width * (self.ffn_matrices - 1) + self.hidden_size) * self.ffn_bias
        return self.ffn_matrices * self.hidden_size * width + bias + ACTIVATION_PARAMETERS.get(self.activation, 0)

    @property
    def dense_layer_parameters(self) -> int:
        """Parameters of one layer with a dense feed-forward, its norms included."""
        return self.attention_parameters + self._ffn_parameters(self.ffn_size) + self.layer_norms * self._norm_parameters

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert; 0 for dense models."""
        return self._ffn_parameters(self.moe.expert_ffn_size) if self.moe else 0

    @property
    def shared_expert_parameters(self) -> int:
        """Parameters of the shared experts of one MoE layer and of their gate; 0 where it has none."""
        if self.moe is None or not self.moe.shared_experts:
            return 0
        gate = self.hidden_size * self.moe.shared_expert_gate
        return self._ffn_parameters(self.moe.expert_ffn_size * self.moe.shared_experts) + gate

    @property
    def moe_layer_shared_parameters(self) -> int:
        """Parameters of one MoE layer outside its routed experts (attention, norms, router, shared experts); 0 if dense."""
        if self.moe is None:
            return 0
        router = self.hidden_size * self.moe.experts
        router += self.moe.experts * (self.moe.router_parameter_bias + self.moe.router_balance_bias)
        norms = self.layer_norms * self._norm_parameters
        return self.attention_parameters + norms + router + self.shared_expert_parameters

    @property
    def moe_layers(self) -> int:
        return self.layers - self.moe.first_dense_layers if self.moe else 0

    @property
    def dense_layers(self) -> int:
        return self.layers - self.moe_layers

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding, its norm and learned position embeddings."""
        return (self.vocab_size + self.learned_positions) * self.hidden_size + self.embedding_norm * self._norm_parameters

    @property
    def head_parameters(self) -> int:
        """Parameters of the output projection; 0 when it is tied to the token embedding and has no bias."""
        weight = 0 if self.tied_embeddings else self.vocab_size * self.hidden_size
        return weight + self.vocab_size * self.head_bias

    def _total(self, experts: int) -> int:
        layers = self.dense_layers * self.dense_layer_parameters
        layers += self.moe_layers * (self.moe_layer_shared_parameters + experts * self.expert_parameters)
        return layers + self.embedding_parameters + self.head_parameters + self._norm_parameters

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self._total(self.moe.experts if self.moe else 0)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses; equal to ``parameters`` for dense models."""
        return self._total(self.moe.experts_per_token if self.moe else 0)


@frozen
class NamedModel:
    """A resolved model name: the shape, a note on assumptions, and bytes of model state by training mode."""

    shape: ModelShape
    note: str
    state_bytes: dict[str, int]
