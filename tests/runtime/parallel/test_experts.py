"""Shared experts under tensor parallelism; test_parity covers routed experts."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from strategist_runtime.mesh import make_meshes
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.parallel.experts import apply_expert_parallel, mixtures

from strategist.contract.layout import Layout

from ..cases_experts import MODELS
from ..plans import plan

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("etp", [1, 2])
def test_shared_experts_are_sharded_by_etp(gated, etp):
    layout = Layout(tp=2, etp=etp)
    model = replace(MODELS["experts sigmoid"], ffn_matrices=3 if gated else 2)
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    try:
        with torch.device("meta"):
            built = Decoder(model)
        apply_expert_parallel(built, plan(model=model, layout=layout), make_meshes(layout, "cpu", 0, experts=True))
        width = model.moe.shared_experts * model.moe.expert_ffn_size // etp
        for layer in mixtures(built):
            shared = {name: getattr(layer.shared, name) for name in ("gate", "up", "down")}
            sizes = {name: part and tuple(local(part.weight).shape) for name, part in shared.items()}
            inner = (width, model.hidden_size)
            assert sizes == {"gate": inner if gated else None, "up": inner, "down": inner[::-1]}
    finally:
        dist.destroy_process_group()


def local(weight):
    return weight.to_local() if hasattr(weight, "to_local") else weight
