"""Exports a plan as a training script with Lightning's Trainer; the user adds module and data."""

from collections.abc import Mapping

from strategist.contract.environment import environment
from strategist.contract.plan import Plan
from strategist.formats.commented_text import heading
from strategist.formats.export_notes import header_lines, setting_notes
from strategist.formats.format import ExportedFiles, File
from strategist.formats.launch_commands import start_script, torchrun

DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
SHARD = '''

class Sharded(Model):
    """Your module, which shards its layers when the mesh is there."""

    def configure_model(self) -> None:
        super().configure_model()
        mesh = self.device_mesh["data_parallel"]
{split}        policy = MixedPrecisionPolicy(param_dtype=torch.{param}, reduce_dtype=torch.{reduce})
        for index, layer in enumerate(self.layers):
{layer}            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward={reshard})
        fully_shard(self, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
'''
WHOLE = """        parallelize_module(self, self.device_mesh["tensor_parallel"], WHOLE)
"""
SPLIT = """            parallelize_module(layer, self.device_mesh["tensor_parallel"], LAYER)
"""
TENSORS = """
# Names are those of transformers' Llama: write those of your module, or torch warns that they are not there.
LAYER = {
    **{f"self_attn.{name}_proj": ColwiseParallel() for name in ("q", "k", "v")},
    **{f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")},
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}
WHOLE = {
    "embed_tokens": RowwiseParallel(input_layouts=Replicate()),
    "lm_head": ColwiseParallel(output_layouts=Replicate()),
}
"""
"""Megatron's tensor parallelism (arXiv 1909.08053, section 3); every rank has the whole inputs and outputs."""

PLAIN = '''

class Prepared(Model):
    """Your module, with its layers as the plan has them."""

    def configure_model(self) -> None:
        super().configure_model()
        for index, layer in enumerate(self.layers):
{layer}'''
WRAPPED = "            layer = self.layers[index] = checkpoint_wrapper(layer)\n"
COMPILED = "            layer.compile()\n"


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The training script, and a script that starts it."""
    needs = (
        "model.py: your Model, a LightningModule whose layers (a ModuleList) are its decoder layers",
        f"optimizer: Model updates with {plan.workload.optimizer}, at your learning rate",
        f"data: Data in model.py, a LightningDataModule with batches of batch_size sequences of {plan.workload.seq_len} tokens",
    )
    head = (*header_lines(plan), *setting_notes(plan, reasons).values())
    files = [File(name="train.py", text=heading(head) + _imports(plan) + _module(plan) + _trainer(plan))]
    command = ("torchrun", *torchrun(plan), "train.py")
    files.append(
        File(name="train.sh", text=start_script(plan, command, about=header_lines(plan), environment=environment(plan)), runs=True)
    )
    return ExportedFiles(files=tuple(files), command=("bash", "train.sh"), needs=needs, user_files=("model.py",))


def sharded(plan: Plan) -> bool:
    """Whether FSDP2 or tensor parallelism shards the model; otherwise there are replicas or a single device."""
    return plan.candidate.layout.dp_shard > 1 or plan.candidate.layout.tp > 1


def _imports(plan: Plan) -> str:
    lines = [
        "import lightning",
        *(["import torch"] if sharded(plan) else []),
        _strategy_import(plan),
        "from model import Data, Model",
    ]
    if sharded(plan):
        lines.append("from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard")
    if plan.candidate.layout.tp > 1:
        lines.append("from torch.distributed.tensor import Replicate")
        lines.append("from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module")
    if plan.candidate.knobs.recompute == "full":
        lines.insert(-1, "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper")
    return "\n".join(line for line in lines if line) + "\n"


def _strategy_import(plan: Plan) -> str:
    name = _strategy_name(plan)
    return f"from lightning.pytorch.strategies import {name}" if name else ""


def _strategy_name(plan: Plan) -> str:
    if sharded(plan):
        return "ModelParallelStrategy"
    return "DDPStrategy" if plan.candidate.layout.dp_replicate > 1 else ""


def _module(plan: Plan) -> str:
    """Code that transforms the layers, in TorchTitan's order: tensor parallelism, recomputation, compilation, FSDP2."""
    knobs, splits = plan.candidate.knobs, plan.candidate.layout.tp > 1
    layer = (SPLIT if splits else "") + (WRAPPED if knobs.recompute == "full" else "") + (COMPILED if knobs.compile else "")
    if sharded(plan):
        dtypes = {"param": DTYPES[plan.workload.precision], "reduce": DTYPES[knobs.reduce_dtype]}
        sharding = SHARD.format(layer=layer, split=WHOLE if splits else "", reshard=_reshard(plan), **dtypes)
        return (TENSORS if splits else "") + sharding
    return PLAIN.format(layer=layer) if layer else ""


def _reshard(plan: Plan) -> str:
    knobs = plan.candidate.knobs
    return str(knobs.reshard_group_size if knobs.reshard_after_forward == "subgroup" else knobs.reshard_after_forward)


def _trainer(plan: Plan) -> str:
    """Code of the strategy, the Trainer and the start."""
    name = _strategy_name(plan)
    precision = "bf16-mixed" if plan.workload.precision == "bf16" and not sharded(plan) else "32-true"
    prepared = "Sharded" if sharded(plan) else "Prepared" if _module(plan) else "Model"
    lines = [
        "", "", 'if __name__ == "__main__":', *_strategy(plan, name),
        "    trainer = lightning.Trainer(",
        '        accelerator="gpu",',
        f"        devices={plan.cluster.gpus_per_node},",
        f"        num_nodes={plan.cluster.nodes},",
        f'        precision="{precision}",',
        f"        accumulate_grad_batches={plan.accumulation},",
        f"        strategy={'strategy' if name else chr(34) + 'auto' + chr(34)},",
        "    )",
        f"    trainer.fit({prepared}(), datamodule=Data(batch_size={plan.candidate.knobs.micro_batch}))",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _strategy(plan: Plan, name: str) -> list[str]:
    """Lines that make the strategy; none for a single device."""
    layout, options = plan.candidate.layout, plan.candidate.options
    if name == "ModelParallelStrategy":
        return [f"    strategy = ModelParallelStrategy(data_parallel_size={layout.dp_shard}, tensor_parallel_size={layout.tp})"]
    if not name:
        return []
    return [
        "    strategy = DDPStrategy(",
        f"        bucket_cap_mb={options.bucket_cap_mb},",
        f"        gradient_as_bucket_view={options.gradient_as_bucket_view},",
        f"        static_graph={options.static_graph},",
        f"        find_unused_parameters={options.find_unused_parameters},",
        "    )",
    ]
