"""Lightning's own Trainer, built by exported scripts for two processors, and torch's FSDP2 as their modules apply it.

``lightning.py check RANKS FILE...`` prints what each script made on so many ranks: a stand-in for the user's module, with two
layers, is sharded in a process group without others. ``lightning.py names`` prints the keywords of the calls that are read.
"""

import inspect
import json
import runpy
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch import strategies
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

STRATEGIES = ("DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
MADE: dict[str, Any] = {}
REAL = lightning.Trainer


class Layer(nn.Module):
    """One of its layers, with the names of transformers' Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.ModuleDict({f"{name}_proj": nn.Linear(64, 64) for name in "qkvo"})
        self.mlp = nn.ModuleDict({f"{name}_proj": nn.Linear(64, 64) for name in ("gate", "up", "down")})


class Model(lightning.LightningModule):
    """The user's module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.embed_tokens, self.lm_head = nn.Embedding(256, 64), nn.Linear(64, 256, bias=False)

    def configure_model(self) -> None:
        """Nothing of its own."""


class Data(lightning.LightningDataModule):
    """The user's data."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        MADE["micro_batch"] = batch_size


def trainer(**arguments: Any) -> Any:
    """The real one, for two processors instead of the devices; its fit prepares the module only."""
    MADE.update({name: arguments[name] for name in ("devices", "num_nodes")})
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    made = REAL(**{**arguments, "accelerator": "cpu", "devices": 2 if arguments["devices"] > 1 else 1, "num_nodes": 1, **quiet})
    MADE["strategy"] = type(made.strategy).__name__
    MADE["precision"], MADE["accumulation"] = made.precision, made.accumulate_grad_batches
    if isinstance(made.strategy, strategies.ModelParallelStrategy):
        MADE["mesh"] = [made.strategy._data_parallel_size, made.strategy._tensor_parallel_size]
    if isinstance(made.strategy, strategies.DDPStrategy):
        MADE["ddp"] = made.strategy._ddp_kwargs
    made.fit = _prepare
    return made


def _prepare(module: Model, datamodule: Data) -> None:
    """What the module's own hook does, on the mesh that the strategy would give it."""
    if "mesh" in MADE:
        module._device_mesh = dist.device_mesh.init_device_mesh(
            "cpu", (MADE["mesh"][0], MADE["mesh"][1]), mesh_dim_names=("data_parallel", "tensor_parallel")
        )
    module.configure_model()
    layer = module.layers[0]
    MADE["recomputed"] = "CheckpointWrapper" in [type(part).__name__.removeprefix("FSDP") for part in layer.modules()]
    MADE["compiled"] = layer._compiled_call_impl is not None
    MADE["split"] = {
        name.replace("_checkpoint_wrapped_module.", ""): [str(place) for place in part.placements][-1]
        for name, part in module.named_parameters()
        if isinstance(part, DTensor) and "tensor_parallel" in (part.device_mesh.mesh_dim_names or ()) and name.endswith("weight")
    }
    if isinstance(layer, FSDPModule):
        group = layer._get_fsdp_state()._fsdp_param_group
        after = group.post_forward_mesh_info
        MADE["resharded"] = after is not None
        MADE["kept"] = None if after is None or after is group.mesh_info else after.shard_mesh_size
        MADE["reduced"], MADE["computed"] = str(group.mp_policy.reduce_dtype), str(group.mp_policy.param_dtype)


def check(ranks: int, path: str) -> dict[str, Any]:
    """What a script makes."""
    MADE.clear()
    user = ModuleType("model")
    user.Model, user.Data = Model, Data  # type: ignore[attr-defined]
    sys.modules["model"] = user
    lightning.Trainer = trainer
    try:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        runpy.run_path(path, run_name="__main__")
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    finally:
        dist.destroy_process_group()
    return dict(MADE)


def names() -> Iterator[str]:
    """Keywords; what a strategy hands on to torch is torch's."""
    classes = {"Trainer": REAL, **{name: getattr(strategies, name) for name in STRATEGIES}}
    classes |= {"fully_shard": fully_shard, "MixedPrecisionPolicy": MixedPrecisionPolicy}
    for name, kind in classes.items():
        yield from (f"{name}.{word}" for word in inspect.signature(kind).parameters if word not in ("kwargs", "self"))
    wrapped = {"DDPStrategy": nn.parallel.DistributedDataParallel, "FSDPStrategy": torch.distributed.fsdp.FullyShardedDataParallel}
    for name, kind in wrapped.items():
        yield from (f"{name}.{word}" for word in inspect.signature(kind).parameters if word != "module")
    yield from (f"MixedPrecision.{word}" for word in inspect.signature(torch.distributed.fsdp.MixedPrecision).parameters)
    yield from (*STRATEGIES, "batch_size", "compile", "recompute", "CPUOffloadPolicy", "SequenceParallel", "loss_parallel")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "check":
        print(json.dumps([check(int(rest[0]), path) for path in rest[1:]]))
    else:
        print(json.dumps(sorted(set(names()))))
