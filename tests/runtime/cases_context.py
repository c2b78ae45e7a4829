"""Cases with context parallelism, and with several documents per sequence."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from strategist.contract.plan import Plan

from .plans import TINY

MODELS = {
    "packed": replace(TINY, name="packed", kv_heads=2),
    "packed learned": replace(TINY, name="packed learned", learned_positions=16),
}
"""Models that read packed documents, with sequences as long as those of the others."""

Case = Callable[..., tuple[str, Plan]]
BOTH = {"sequence_parallel": True, "loss_parallel": True}
PIPE = {"pp": 2, "no_sync": True}


def cases(case: Case) -> Iterator[tuple[str, Plan]]:
    """``case`` builds a named plan from settings."""
    yield from _context_parallel(case)
    yield from _mixed(case)
    yield from _packed(case)


def _context_parallel(case: Case) -> Iterator[tuple[str, Plan]]:
    """Each option, and each kind of attention."""
    yield case("cp", cp=2)
    yield case("cp alltoall none", cp=2, cp_rotate="alltoall", cp_load_balance="none", cp_restore_buffers=False)
    yield case("cp allgather none", cp=2, cp_load_balance="none", model="grouped", micro_batch=1)
    yield case("cp flex", cp=2, cp_attention="flex", model="grouped")
    yield case("cp flex sinks", cp=2, cp_attention="flex", cp_load_balance="none", model="sinks")
    yield case("cp learned", cp=2, model="gpt")
    yield case("cp latent", cp=2, model="latent", recompute="selective")
    yield case("cp recompute full", cp=2, recompute="full", model="qwen")
    yield case("cp compile", cp=2, compile=True, fullgraph=True, recompute="selective", micro_batch=1)
    yield case("cp flex compile", cp=2, cp_attention="flex", compile=True, fullgraph=True, model="grouped")
    yield case("bf16 cp", cp=2, precision="bf16")
    yield case("cp 4 alltoall", cp=4, cp_rotate="alltoall")


def _mixed(case: Case) -> Iterator[tuple[str, Plan]]:
    """Context parallelism combined with every other axis."""
    yield case("cp fsdp", cp=2, dp_shard=2, cp_restore_buffers=False)
    yield case("cp tp", cp=2, tp=2, **BOTH, cp_rotate="alltoall", model="grouped")
    yield case("cp hsdp", cp=2, dp_replicate=2, model="grouped", reshard_after_forward=False)
    yield case("cp pp", cp=2, **PIPE, model="qwen")
    looped = {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, "model": "deep", "micro_batch": 1}
    yield case("cp pp fsdp", cp=2, dp_shard=2, **PIPE, **looped)


def _packed(case: Case) -> Iterator[tuple[str, Plan]]:
    """Documents reach every layer: in pipeline stages, recomputed layers and sequence shards."""
    packed = {"model": "packed"}
    yield case("packed ddp", dp_replicate=2, **packed)
    yield case("packed pp", pp=2, **packed, recompute="selective")
    yield case("packed tp", tp=2, **BOTH, model="packed learned", micro_batch=1)
    shared = {"cp": 2, "cp_attention": "flex"}
    yield case("packed cp", **shared, **packed)
    yield case("packed cp per document", **shared, **packed, cp_load_balance="per_document", recompute="full", micro_batch=1)
    yield case("packed cp learned", **shared, model="packed learned", cp_load_balance="per_document")
    yield case("packed cp pp", **shared, **PIPE, **packed, cp_load_balance="per_document", cp_restore_buffers=False)
