from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def apply_tensor_parallel(part, mesh):
    """The first matrix of each pair is sharded by columns, the second by rows (arXiv 1909.08053)."""
    # if: sequence_parallel
    between = Shard(1)  # activations between the pairs are sharded by tokens (arXiv 2205.05198)
    # end: sequence_parallel
    # if: not sequence_parallel
    between = Replicate()
    # end: not sequence_parallel
    # if: sequence_parallel
    styles = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between), "norm": SequenceParallel()}
    # end: sequence_parallel
    # if: not sequence_parallel
    styles = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between)}
    # end: not sequence_parallel
    # if: loss_parallel
    styles["head"] = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
    # end: loss_parallel
    # if: not loss_parallel
    styles["head"] = ColwiseParallel(input_layouts=between, output_layouts=Replicate())
    # end: not loss_parallel
    # if: pp
    parallelize_module(part, mesh, {name: style for name, style in styles.items() if getattr(part, name) is not None})
    # end: pp
    # if: not pp
    parallelize_module(part, mesh, styles)
    # end: not pp
    gather_input = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    for layer in part.layers.values():
        # if: moe
        styles = {"attention": gather_input, "attention.output": RowwiseParallel(output_layouts=between)}
        styles |= {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
        # end: moe
        # if: not moe
        columns = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
        styles = {"attention": gather_input, "feed_forward": gather_input, **{name: ColwiseParallel() for name in columns}}
        styles |= {name: RowwiseParallel(output_layouts=between) for name in ("attention.output", "feed_forward.down")}
        # end: not moe
        # if: qk_norm
        heads = SequenceParallel(sequence_dim=2, use_local_output=True)  # each rank's heads, with the same weights
        styles |= {"attention.query_norm": heads, "attention.key_norm": heads}
        # end: qk_norm
        # if: moe
        if isinstance(layer.feed_forward, MixtureOfExperts):  # each rank routes a part of every sequence
            token_sharded = SequenceParallel(sequence_dim=0, use_local_output=True)  # rows are tokens of all sequences
            inputs = {"input_layouts": (between,), "desired_input_layouts": (Shard(1),), "use_local_input": True}
            outputs = {"output_layouts": (Shard(1),), "desired_output_layouts": (between,)}
            styles["feed_forward"] = PrepareModuleInputOutput(**inputs, **outputs)
            styles["feed_forward.router"] = token_sharded
            # if: shared
            styles |= {f"feed_forward.shared.{name}": token_sharded for name in ("gate", "up", "down")}
            # end: shared
        # end: moe
        # if: dense_first
        else:
            styles |= {"feed_forward": gather_input, "feed_forward.down": RowwiseParallel(output_layouts=between)}
            styles |= {"feed_forward.gate": ColwiseParallel(), "feed_forward.up": ColwiseParallel()}
        # end: dense_first
        # if: sequence_parallel
        styles |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        # end: sequence_parallel
        parallelize_module(layer, mesh, styles)
