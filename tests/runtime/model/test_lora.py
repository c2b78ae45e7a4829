"""LoRA: adapters and frozen weights have the sizes that the cost model counts."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.lora import linears
from strategist_runtime.training.trainer import make_trainer

from strategist.contract.measurement import TrialSettings
from strategist.cost.model_states import lora_parameters, model_state_bytes, state_bytes

from ..cases_lora import DEEP, SHAPES
from ..plans import TINY, WORKLOAD, plan

pytestmark = pytest.mark.torch

WIDE = replace(DEEP, hidden_size=512, heads=8, kv_heads=8, head_size=64, ffn_size=1024, qkv_bias=False, qk_norm=False)
MODELS = {"plain": TINY, "biased": DEEP, "wide": WIDE, "tied": replace(TINY, tied_embeddings=True)}
OTHERS = {name: SHAPES[name] for name in ("latent", "experts")}


def trainer(model, **workload):
    return make_trainer(
        plan(model=model, workload=replace(WORKLOAD, lora_rank=4, **workload)), TrialSettings(), Meshes(), torch.device("cpu")
    )


def bytes_of(parameters):
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def trained_and_frozen(model):
    parameters = [*model.parameters()]
    return [each for each in parameters if each.requires_grad], [each for each in parameters if not each.requires_grad]


@pytest.mark.parametrize("name", OTHERS)
def test_adapters_of_moe_and_latent_attention_equal_the_cost_models_count(name):
    (part,) = trainer(OTHERS[name], train="lora").parts
    learning, _ = trained_and_frozen(part)
    assert sum(each.numel() for each in learning) == lora_parameters(OTHERS[name], 4)


@pytest.mark.parametrize("train", ["lora", "qlora"])
@pytest.mark.parametrize("name", MODELS)
def test_trained_parameters_equal_the_cost_models_count(name, train):
    if train == "qlora" and name in ("plain", "tied"):
        model = replace(MODELS[name], hidden_size=64, heads=8, kv_heads=8, ffn_size=64)
    else:
        model = MODELS[name]
    (part,) = trainer(model, train=train, precision="bf16").parts
    learning, _ = trained_and_frozen(part)
    assert sum(each.numel() for each in learning) == lora_parameters(model, 4)
    per = state_bytes(model, replace(WORKLOAD, lora_rank=4, train=train))
    assert bytes_of(learning) == pytest.approx(per.trained * model.parameters * 4)


@pytest.mark.parametrize(("train", "tolerance"), [("lora", 1e-9), ("qlora", 0.03)])
def test_state_bytes_equal_the_cost_models(train, tolerance):
    """For 4-bit weights the model counts norms like matrices, and the two numbers per row as a share of a block."""
    workload = {"train": train, "precision": "bf16"}
    trained = trainer(WIDE, **workload)
    for parameter in (each for part in trained.parts for each in part.parameters() if each.requires_grad):
        parameter.grad = torch.ones_like(parameter)
    trained.optimizer.step()
    learning, frozen = trained_and_frozen(trained.parts[0])
    moments = [value for state in trained.optimizer.state.values() for value in state.values() if value.dim()]
    total = bytes_of(frozen) + 2 * bytes_of(learning) + bytes_of(moments)
    assert total == pytest.approx(model_state_bytes(WIDE, replace(WORKLOAD, lora_rank=4, **workload)), rel=tolerance)


def test_adapters_change_no_output_before_the_first_step():
    dense, adapted = trainer(TINY), trainer(TINY, train="lora")
    tokens = dense.batch(0).tokens
    torch.testing.assert_close(adapted.parts[0](tokens), dense.parts[0](tokens))


def test_the_adapters_output_is_proportional_to_alpha():
    outputs = []
    for alpha in (4.0, 8.0):
        settings = TrialSettings(lora_alpha=alpha)
        made = make_trainer(plan(workload=replace(WORKLOAD, train="lora", lora_rank=4)), settings, Meshes(), torch.device("cpu"))
        (first, *_) = linears(made.parts[0].layers.values())
        torch.nn.init.ones_(first.lora_b)
        x = torch.ones(1, 32)
        outputs.append(first(x) - torch.nn.functional.linear(x, first.weight))
    torch.testing.assert_close(outputs[1], 2 * outputs[0])


def test_only_adapters_are_updated():
    made = trainer(TINY, train="lora", optimizer="adamw")
    before = {name: value.clone() for name, value in made.parts[0].state_dict().items()}
    for step in range(2):
        made.step(made.batch(step))
    changed = {name for name, value in made.parts[0].state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.endswith(("lora_a", "lora_b"))}
    assert not dist.is_initialized()
