"""Memory traits: how a framework uses device memory, where frameworks differ."""

from strategist.errors import not_among
from strategist.frozen import frozen

PARAMETERS = ("shards", "copies")
SPLITS = ("even", "parameters")
LOGGED_RANKS = ("fullest", "first", "last")
ROOTS = ("both", "head", "neither")
GRADIENTS_ON_HOST = ("all", "optimizer", "never")


@frozen
class MemoryTraits:
    """Properties of a framework that determine the memory of its tensors.

    parameters: ``shards`` in fp32, from which copies for computation are gathered layer by layer (FSDP2), or whole ``copies`` in
        the compute type beside fp32 ones that belong to the optimizer and are offloaded with it (Megatron, DeepSpeed, nanotron).
    gradients_on_host: which value of the knob offload moves gradients to the host: only ``all``, already ``optimizer`` (arXiv
        2101.06840, section 4.1), or ``never``.
    layers_away: layers of a pipeline stage whose activations are offloaded to host memory (Megatron-Core:
        ``cpu_offloading_num_layers``).
    float8_parameters: with matmuls in float8, the copies of parameters for computation are float8.
    allocates_once: all tensors are allocated before the first step, so that the allocator reserves no more than they need.
    autocast: FSDP gathers parameters in their stored type, and autocast casts them at each matmul.
    frozen_bytes: bytes per frozen parameter that is not quantized: 1 where it is stored in float8, except embedding and head.
    piled_gradient_bytes: bytes per parameter of compute-type gradients that accumulate during a backward pass, before they are
        added to the stored gradients.
    norm_bytes: bytes per input value that a norm saves: 2 for a fused kernel, 6 for a norm written in torch that computes in fp32
        (the fp32 copy, and the normed value in the compute type).
    repeats_heads: keys and values are repeated for all query heads before attention saves them.
    caches_keys: keys and values of all layers stay in memory with the model's output until the backward pass ends (``use_cache``).
    regathers: with sequence parallelism, a linear saves its shard of the input and gathers it again for its weight gradient (arXiv
        2205.05198, section 4.2.2), instead of saving the gathered input.
    quantized_inputs: matmuls in float8 save their inputs in float8 (Transformer Engine), instead of the activations' type.
    quantized_matmul_inputs: matmuls of frozen 4-bit weights save their inputs, though no gradient needs them (bitsandbytes up to
        0.42, autograd/_functions.py: MatMul4Bit).
    float8_activations: with matmuls in float8, the input of the feed-forward's activation function is also saved in float8
        (Megatron-Core: ``activation_func_fp8_input_store``).
    expert_outputs: router weights multiply the outputs of experts, which are saved for that, instead of the activations between an
        expert's matmuls.
    dropout_bytes: bytes of dropout masks per value of the hidden size in a layer, in models with layer norms; others have none.
    whole_shared_experts: where tensor-parallel ranks split an MoE layer's tokens (etp 1), each rank holds the shared experts whole;
        else shared experts are sharded like any feed-forward.
    flat: a layer's parameters are one tensor, whose gradient is reduced in place (FSDP1); else gradients are first copied into the
        reduction buffer.
    root: which of embedding and head stay gathered: ``both``, which FSDP2 gathers and reduces together; the ``head`` from its
        forward to its backward pass; or ``neither``, except while it computes.
    selective_matmuls: share of the matmuls whose outputs selective recomputation saves. saves_experts: those of routed experts are
        among them.
    holds_outputs: pipeline stages keep their outputs until the gradients arrive; the last stage keeps its logits in the compute
        type, beside the memory of the loss.
    parallel_loss_bytes: additional bytes per logit of the loss where logits stay sharded.
    lingering_logit_bytes: bytes per logit that stay allocated from one micro-batch to the next.
    foreach: the optimizer updates all parameters at once and copies one of its states for that (torch's default; fused optimizers
        make no copy).
    flattens_gradients: the optimizer step copies its gradients into one tensor and casts that to fp32; of sharded parameters, a
        group of 10^9 at a time (DeepSpeed: runtime/zero/stage3.py, ``_prepare_fp32_grad_for_sub_group``, ``sub_group_size``).
    keeps_inputs: with a frozen base that FSDP1 shards, inputs of recomputed layers stay until the end of the backward pass, with
        their gradients: the hook that reshards frozen parameters refers to both (torch/distributed/fsdp/_runtime_utils.py:
        ``_register_post_backward_reshard_only_hook``), if checkpoints are reentrant.
    split: split of layers into pipeline stages: ``even``, or by ``parameters``, where embeddings count 0 and the head counts its
        parameters, and a stage ends with the layer that exceeds its share.
    logged: the stage whose memory the framework's log reports.
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
    saves_experts: bool = True
    holds_outputs: bool = False
    parallel_loss_bytes: float = 0.0
    lingering_logit_bytes: float = 0.0
    foreach: bool = False
    flattens_gradients: bool = False
    keeps_inputs: bool = False
    split: str = "even"
    logged: str = "fullest"

    def __post_init__(self) -> None:
        closed = {
            "parameters": PARAMETERS,
            "root": ROOTS,
            "split": SPLITS,
            "logged": LOGGED_RANKS,
            "gradients_on_host": GRADIENTS_ON_HOST,
        }
        for name, allowed in closed.items():
            if getattr(self, name) not in allowed:
                raise not_among(f"memory_traits: {name} {getattr(self, name)}", str(getattr(self, name)), allowed)


TORCH_MEMORY_TRAITS = MemoryTraits(holds_outputs=True, parallel_loss_bytes=4.0)
"""Memory traits of torch's own parallel APIs.

Loss parallel allocates zeros, exponentials and their difference in fp32 beside log-softmax
(torch/distributed/tensor/parallel/loss.py).
"""
