"""The simulation of one rank: the trainer that would run there, its second step followed."""

import gc
import time
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.simulation import MEMORY_PARTS, SimulatedRank
from strategist.contract.stages import stages_of_rank
from strategist_runtime import compat_simulate
from strategist_runtime.builder import Native
from strategist_runtime.data.batch import Batch
from strategist_runtime.measure import memory
from strategist_runtime.measure.traffic import Meter, traffic
from strategist_runtime.mesh import axis_of, make_meshes
from strategist_runtime.model.decoder import Decoder, Piece
from strategist_runtime.model.rotary import rotary_of
from strategist_runtime.model.scene import Scenes
from strategist_runtime.simulate.live import Instant, Live, storages
from strategist_runtime.training.profiling import tables
from strategist_runtime.training.trainer import Trainer, make_trainer

DEVICE = torch.device("cpu")
"""The only one on which torch's tensors without values go through autograd where no GPU is at hand."""


class WithoutValues(Native):
    """Builds the native decoder where it will lie; nothing gets first values."""

    def build(self, plan: Plan, piece: Piece) -> Decoder:
        return Decoder(plan.model, piece)

    def fill(self, model: Decoder, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        seq_len = plan.workload.seq_len
        order = torch.arange(seq_len, device=device)
        model.scenes = Scenes(rotary_of(plan.model, seq_len, device), order, window=plan.model.sliding_window)


def simulate(plan: Plan, rank: int) -> SimulatedRank:
    """What ``rank`` holds and exchanges in a step of ``plan``. The process stays that rank: call it once."""
    begin = time.perf_counter()
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    compat_simulate.join_alone(rank, layout.world_size)
    meshes = make_meshes(layout, DEVICE.type, rank, experts=plan.model.moe is not None, offload=knobs.offload)
    with compat_simulate.no_values():
        trainer = make_trainer(plan, TrialSettings(), meshes, DEVICE, WithoutValues())
        rows = trainer.batch(0)
        followed(trainer, rows, Live())  # the first step makes the optimizer's states
        live, found = Live(), Found(trainer)
        with Meter() as meter:
            followed(trainer, rows, live)
        followed(trainer, rows, Live(live.peak_event, found.inspect))
        static = memory.static_bytes(trainer.parts, trainer.optimizer, tables(trainer))
    assert found.instant is not None
    return SimulatedRank(
        rank=rank,
        stages=stages_of_rank(knobs.pp_schedule, layout.pp, layout.pp * knobs.pp_virtual_stages, meshes.stage_rank),
        peak_memory_bytes=live.peak,
        between_steps_bytes=static,
        memory=found.memory,
        modules=found.modules,
        moment=found.instant.moment,
        traffic=traffic({}, meter.calls, (), lambda group: axis_of(group, layout)),
        flops=float(live.flops),
        wall_seconds=time.perf_counter() - begin,
    )


def followed(trainer: Trainer, rows: Batch, live: Live) -> None:
    """One step, with nothing freed later than its last use."""
    gc.collect()
    live.hold(kept(trainer, rows))
    gc.disable()
    try:
        with live.following(trainer.parts):
            loss = trainer.accumulate(rows)
            live.updating = True
            trainer.update(loss)
    finally:
        gc.enable()


def kept(trainer: Trainer, rows: Batch) -> Iterator[Tensor]:
    """What lives before a step begins."""
    yield from memory.parameters(trainer.parts)
    yield from memory.states(trainer.optimizer)
    yield from tables(trainer)
    yield from rows.tensors().values()


class Found:
    """What the fullest instant held, by part and by module: whose tensor a storage is, where somebody knows, else what made it."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.instant: Instant | None = None
        self.memory: dict[str, int] = {}
        self.modules: dict[str, int] = {}
        self.static = dict.fromkeys(map(compat_simulate.key_of, storages(memory.parameters(trainer.parts))), "parameters")
        self.static |= dict.fromkeys(map(compat_simulate.key_of, storages(memory.states(trainer.optimizer))), "optimizer")

    def inspect(self, instant: Instant) -> None:
        """Takes the instant apart, while it lasts."""
        self.instant = instant
        owned = ((part, storage) for part, tensor in self._owned() for storage in storages([tensor]))
        owners = self.static | {compat_simulate.key_of(storage): part for part, storage in owned}
        parts: Counter[str] = Counter(dict.fromkeys(MEMORY_PARTS, 0))
        modules: Counter[str] = Counter()
        for key, size in instant.bytes_of.items():
            birth = instant.births.get(key)
            parts[owners.get(key) or (birth.part if birth else "activations")] += size
            modules[birth.module if birth else ""] += size
        self.memory, self.modules = dict(parts), {name: size for name, size in modules.items() if size}

    def _owned(self) -> Iterator[tuple[str, Tensor]]:
        for part in self.trainer.parts:
            for parameter in part.parameters():
                if parameter.grad is not None:
                    yield "gradients", parameter.grad
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    yield from compat_simulate.fsdp_tensors(module)
