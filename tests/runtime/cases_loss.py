"""Cases with a chunked loss: a micro-batch has several chunks, since half of the hidden size are 16 tokens."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` builds a named plan from settings."""
    chunked = {"chunked_loss": True, "micro_batch": 4}
    split = {**chunked, "loss_parallel": True}
    both = {**split, "sequence_parallel": True}
    yield case("chunked alone", **chunked)
    yield case("chunked alone tied odd chunk", **chunked, model="odd")
    yield case("chunked ddp", **chunked, dp_replicate=2)
    yield case("chunked ddp bf16", **chunked, dp_replicate=2, precision="bf16")
    yield case("chunked ddp accumulation no_sync", **{**chunked, "micro_batch": 2}, dp_replicate=2, no_sync=True)
    yield case("chunked fsdp", **chunked, dp_shard=2, model="qwen")
    yield case("chunked fsdp root resharded", **chunked, dp_shard=2, reshard_root=True)
    yield case("chunked fsdp accumulation", **{**chunked, "micro_batch": 2}, dp_shard=2, no_sync=True, reshard_after_forward=False)
    yield case("chunked fsdp bf16", **chunked, dp_shard=2, precision="bf16", recompute="full")
    yield case("chunked fsdp fp16", **chunked, dp_shard=2, precision="fp16")
    yield case("chunked fsdp offload all", **chunked, dp_shard=2, offload="all", pin_memory=False)
    yield case("chunked fsdp optimizer in backward", **chunked, dp_shard=2, optimizer_in_backward=True)
    yield case("chunked compiled", **chunked, dp_shard=2, compile=True)
    yield case("chunked cp", **{**chunked, "micro_batch": 8}, cp=2, dp_shard=1)
    yield case("chunked cp fsdp tp", **both, cp=2, dp_shard=2, tp=2)
    yield case("chunked tp", **split, tp=2)
    yield case("chunked tp sequence", **both, tp=2, model="qwen")
    yield case("chunked hsdp tp", **both, dp_replicate=2, dp_shard=1, tp=2)
    yield case("chunked fsdp tp", **both, dp_shard=2, tp=2)
    yield case("chunked bf16 fsdp tp", **both, dp_shard=2, tp=2, precision="bf16")
    piped = {"chunked_loss": True, "pp": 2, "micro_batch": 2}
    twice = {"pp_virtual_stages": 2, "model": "deep"}
    yield case("chunked pp", **piped)
    yield case("chunked pp gpipe tied", **piped, pp_schedule="gpipe", model="qwen")
    yield case(
        "chunked pp interleaved fsdp",
        **{**piped, "micro_batch": 1},
        **twice,
        dp_shard=2,
        no_sync=True,
        pp_schedule="interleaved_1f1b",
    )
    half = {"reshard_after_forward": False, "no_sync": True, "micro_batch": 1}
    for schedule in ("interleaved_zero_bubble", "zbv_zero_bubble", "dual_pipe_v"):
        yield case(f"chunked pp {schedule}", **piped, **twice, pp_schedule=schedule)
        yield case(f"chunked pp fsdp {schedule}", **{**piped, **half}, **twice, dp_shard=2, pp_schedule=schedule)
    yield case("chunked pp fsdp tp", pp=2, dp_shard=2, tp=2, **{**both, "micro_batch": 2}, no_sync=True)
    yield case(
        "chunked streamed",
        **{**piped, "micro_batch": 4},
        offload="streamed",
        recompute="full",
        pp_schedule="gpipe",
        model="qwen deep",
    )
