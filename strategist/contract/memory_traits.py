"""Memory traits: what a framework keeps in device memory, where frameworks differ."""

from dataclasses import dataclass

from strategist.errors import not_among

PARAMETERS = ("shards", "copies")
SPLITS = ("even", "parameters")
LOGS = ("fullest", "first", "last")
ROOTS = ("both", "head", "neither")
GRADIENTS_ON_HOST = ("all", "optimizer", "never")


@dataclass(frozen=True, kw_only=True)
class MemoryTraits:
    """Facts of a framework that decide what its tensors take.

    parameters: ``shards`` in fp32 of which computing makes copies layer by layer (FSDP2), or whole ``copies`` in the type that
        matmuls compute in, beside fp32 ones that belong to the optimizer (Megatron, DeepSpeed, nanotron).
    gradients_on_host: the offload that takes gradients to the host: that of ``all``, already that of the ``optimizer`` (arXiv
        2101.06840, section 4.1), or ``never``.
    layers_away: layers of a pipeline stage whose activations wait in host memory (Megatron-Core: ``cpu_offloading_num_layers``).
    float8_parameters: with matmuls in float8, the copies that layers compute with are float8.
    allocates_once: all tensors have their places before the first step, so that no allocator holds more than they take.
    autocast: FSDP gathers parameters in the type that they are stored in, and autocast casts them at each matmul.
    frozen_bytes: bytes of a frozen parameter that is not quantized: 1 where it is stored in float8, but for embedding and head.
    piled_gradient_bytes: bytes a parameter of gradients in the compute type that pile up during a backward pass, until they are
        added to those that stay.
    norm_bytes: bytes that a norm saves of each value of its input: 2 where one kernel computes it, 6 where it is written in torch
        and computes in fp32 (the fp32 copy, and the normed value in the compute type).
    repeats_heads: keys and values are repeated for all query heads before attention saves them.
    caches_keys: keys and values of all layers stay with the model's output until the backward pass ends (``use_cache``).
    regathers: with sequence parallelism a linear saves its shard of the input and gathers it again for its weight gradient
        (arXiv 2205.05198, section 4.2.2), instead of the gathered input.
    quantized_inputs: matmuls in float8 save their inputs in float8 (Transformer Engine), instead of the type of the activations.
    quantized_matmul_inputs: matmuls of frozen 4-bit weights save their inputs, though no gradient needs them (bitsandbytes up to
        0.42, autograd/_functions.py: MatMul4Bit).
    float8_activations: with matmuls in float8, what goes into the feed-forward's activation is saved in float8, too (Megatron-Core:
        ``activation_func_fp8_input_store``).
    expert_outputs: the router's weights multiply the outputs of experts, which are saved for it, instead of the activations between
        an expert's matmuls.
    dropout_bytes: masks of dropout for each value of the hidden size in a layer, in models with layer norms; others have none.
    whole_shared_experts: where tensor-parallel ranks share a mixture's tokens out (etp 1), each has its shared experts whole;
        else those are cut like any feed-forward.
    flat: a layer's parameters are one tensor, whose gradient is reduced where it lies (FSDP1); else gradients are copied into the
        buffer of their reduction first.
    root: what stays gathered of embedding and head: ``both``, which FSDP2 gathers and reduces together; the ``head`` from its
        forward to its backward pass; or ``neither`` while it does not compute.
    selective_matmuls: share of the matmuls whose outputs selective recomputation saves.
    holds_outputs: stages of a pipeline keep their outputs until their gradients come, the last one its logits in the compute
        type beside what the loss makes of them.
    parallel_loss_bytes: bytes a logit that the loss takes more where logits stay sharded.
    lingering_logit_bytes: bytes a logit that stay from one micro-batch to the next.
    foreach: the optimizer updates all parameters in one go, for which it makes a copy of one of its states (torch's default; fused
        ones make none).
    split: layers of the stages of a pipeline: equally many, or by ``parameters``, where embeddings weigh nothing, the head what
        it holds, and a stage is full once it passes its share.
    logged: the stage whose memory its log tells.
    """

    parameters: str = "shards"
    gradients_on_host: str = "all"
    layers_away: float = 0.0
    float8_parameters: bool = False
    allocates_once: bool = False
    autocast: bool = False
    frozen_bytes: float = 2.0
    piled_gradient_bytes: float = 0.0
    norm_bytes: float = 2.0
    repeats_heads: bool = False
    caches_keys: bool = False
    regathers: bool = False
    quantized_inputs: bool = False
    quantized_matmul_inputs: bool = False
    float8_activations: bool = False
    expert_outputs: bool = True
    dropout_bytes: float = 0.0
    whole_shared_experts: bool = True
    flat: bool = False
    root: str = "both"
    selective_matmuls: float = 1.0
    holds_outputs: bool = False
    parallel_loss_bytes: float = 0.0
    lingering_logit_bytes: float = 0.0
    foreach: bool = False
    split: str = "even"
    logged: str = "fullest"

    def __post_init__(self) -> None:
        closed = {
            "parameters": PARAMETERS,
            "root": ROOTS,
            "split": SPLITS,
            "logged": LOGS,
            "gradients_on_host": GRADIENTS_ON_HOST,
        }
        for name, allowed in closed.items():
            if getattr(self, name) not in allowed:
                raise not_among(f"memory_traits: {name} {getattr(self, name)}", str(getattr(self, name)), allowed)


TORCH_MEMORY_TRAITS = MemoryTraits(holds_outputs=True, parallel_loss_bytes=4.0)
"""What torch's own parallel APIs keep. Loss parallel makes zeros, exponentials and their difference in fp32 beside log-softmax
(torch/distributed/tensor/parallel/loss.py)."""
