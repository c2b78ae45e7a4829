"""Plans in which ranks share sequences."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """Each option of context parallelism, and its mixtures; ``case`` makes a named plan from settings."""
    alone = {"cp": 2}
    yield case("cp", **alone)
    yield case("cp alltoall none", **alone, cp_rotate="alltoall", cp_load_balance="none", cp_restore_buffers=False)
    yield case("cp allgather none", **alone, cp_load_balance="none", model="grouped", micro_batch=1)
    yield case("cp flex", **alone, cp_attention="flex", model="grouped")
    yield case("cp recompute full", **alone, recompute="full", model="qwen")
    yield case("cp recompute selective", **alone, recompute="selective", micro_batch=1)
    yield case("bf16 cp", **alone, precision="bf16")
    yield case("cp 4 alltoall", cp=4, cp_rotate="alltoall")
    yield case("cp fsdp", cp=2, dp_shard=2, cp_restore_buffers=False)
    both = {"sequence_parallel": True, "loss_parallel": True}
    yield case("cp tp both", cp=2, tp=2, **both, cp_rotate="alltoall", model="grouped")
    yield case("cp hsdp", cp=2, dp_replicate=2, model="grouped", reshard_after_forward=False)
    pipe = {"pp": 2, "postpone_gradient_sync": True}
    yield case("cp pp", cp=2, **pipe, model="qwen")
    yield case(
        "cp pp fsdp", cp=2, dp_shard=2, **pipe, micro_batch=1, pp_schedule="interleaved_1f1b", pp_virtual_stages=2, model="deep"
    )
