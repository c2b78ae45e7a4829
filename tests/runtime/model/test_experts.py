"""Mixture of experts in one process: routing, computation, balancing; test_parity covers several ranks."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.model.experts import Experts, MixtureOfExperts
from strategist_runtime.model.feed_forward import FeedForward
from strategist_runtime.model.router import Router
from strategist_runtime.parallel.expert_balance import BALANCE_RATE, balance_experts
from strategist_runtime.parallel.experts import mixtures
from strategist_runtime.weights import seeded

from strategist.contract.model import MoEShape
from strategist.contract.options import Options

from ..cases_experts import MODELS, cases
from ..launch import forked, records, trial_arguments
from ..plans import TINY, plan

CPU = torch.device("cpu")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]


def with_values(module, seed=0):
    torch.manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def router(**changes):
    return with_values(Router(replace(TINY, moe=replace(MODELS["experts"].moe, **changes))))


@pytest.mark.parametrize("name", MODELS)
def test_the_moe_decoder_has_the_parameters_of_its_shape(name):
    shape = MODELS[name]
    with torch.device("meta"):
        model = Decoder(shape)
    steering = sum(layer.router.balance_bias.numel() for layer in mixtures(model)) * shape.moe.router_balance_bias
    assert sum(parameter.numel() for parameter in model.parameters()) + steering == shape.parameters


def test_the_first_layers_are_dense():
    with torch.device("meta"):
        model = Decoder(MODELS["experts sigmoid"])
    kinds = [type(layer.feed_forward) for layer in model.layers.values()]
    assert kinds == [FeedForward] + [MixtureOfExperts] * 4


def test_experts_have_independent_initial_weights():
    with torch.device("meta"):
        model = Decoder(MODELS["experts"])
    seeded.materialise(model, MODELS["experts"], 16, 0, CPU)
    up = model.layers["0"].feed_forward.experts.up
    assert up.std().item() == pytest.approx(seeded.STANDARD_DEVIATION, rel=0.05)
    assert up.unique().numel() > 0.99 * up.numel()


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_grouped_gemm_equals_a_loop_over_experts(gated, biased):
    shape = replace(MODELS["experts"], ffn_bias=biased, ffn_matrices=3 if gated else 2)
    counts = torch.tensor([3, 0, 5, 1, 0, 0, 7, 2])  # some experts without a row
    found = []
    for grouped, alignment in ((False, 1), (True, 1), (True, 8), (False, 4)):
        experts = with_values(Experts(shape))
        experts.grouped, experts.alignment = grouped, alignment
        torch.manual_seed(1)
        rows = torch.randn(int(counts.sum()), shape.hidden_size, requires_grad=True)
        results = experts(rows, counts)
        results.square().sum().backward()
        found.append([results.detach(), rows.grad, *(parameter.grad for parameter in experts.parameters())])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-5 * float(one.abs().max()))  # sums of such values round


@pytest.mark.parametrize("grouped", [True, False])
def test_experts_without_tokens_have_zero_gradients(grouped):
    experts = with_values(Experts(MODELS["experts"]))
    experts.grouped = grouped
    rows = torch.empty(0, TINY.hidden_size, requires_grad=True)
    experts(rows, torch.zeros(8, dtype=torch.int64)).square().sum().backward()
    assert experts.up.grad.abs().sum() == 0


def test_the_moe_output_is_the_weighted_sum_of_each_tokens_experts():
    mixture = with_values(MixtureOfExperts(MODELS["experts sigmoid"], 1))
    x, experts = torch.randn(2, 5, 32), mixture.experts
    routing = mixture.router(x)
    expected = mixture.shared(x).flatten(0, 1)
    for token, hidden in enumerate(x.flatten(0, 1)):
        for expert, weight in zip(routing.experts[token], routing.weights[token], strict=True):
            inside = F.silu(experts.gate[expert] @ hidden) * (experts.up[expert] @ hidden)
            expected[token] += weight * (experts.down[expert] @ inside)
    torch.testing.assert_close(mixture(x).flatten(0, 1), expected)


def test_router_weights_are_normalised_only_if_configured():
    x = torch.randn(2, 5, 32)
    logits = F.linear(x, router().weight).flatten(0, 1)
    best = logits.softmax(-1).topk(2).values
    torch.testing.assert_close(router()(x).weights, best / best.sum(-1, keepdim=True))
    torch.testing.assert_close(router(router_normalised=False, routed_scale=2.0)(x).weights, 2.0 * best)


def test_router_groups_restrict_the_choice_to_the_best_groups():
    one = router(router_score="sigmoid", router_groups=4, router_groups_per_token=1)
    x = torch.randn(2, 50, 32)
    scores = F.linear(x, one.weight).sigmoid().flatten(0, 1)
    group = scores.view(-1, 4, 2).sum(-1).argmax(-1)
    assert torch.equal(one(x).experts.sort().values, torch.stack((2 * group, 2 * group + 1), dim=-1))


def test_balance_biases_affect_the_choice_of_experts_but_not_the_weights():
    one = router()
    x = torch.randn(2, 50, 32)
    one.balance_bias[3] = 10.0
    routing = one(x)
    assert (routing.experts == 3).any(-1).all()
    scores = F.linear(x, one.weight).softmax(-1).flatten(0, 1).gather(-1, routing.experts)
    torch.testing.assert_close(routing.weights, scores / scores.sum(-1, keepdim=True))


def test_the_auxiliary_loss_adds_its_gradient_and_changes_no_output():
    """Against the formula of arXiv 2412.19437, equations 17 to 20, for two sequences."""
    x = torch.randn(2, 6, 32)
    plain, balanced = router(), router()
    balanced.balance_loss = 0.5
    assert torch.equal(plain(x).weights, balanced(x).weights)
    plain(x).weights.square().sum().backward()
    balanced(x).weights.square().sum().backward()
    alone = router()
    loss = torch.zeros(())
    for sequence in x:
        likely = F.linear(sequence, alone.weight).softmax(-1)
        chosen = likely.topk(2).indices
        for expert in range(8):
            share = (chosen == expert).sum() * 8 / (2 * 6)
            loss = loss + 0.5 * share * likely[:, expert].mean() / 2
    loss.backward()
    torch.testing.assert_close(balanced.weight.grad, plain.weight.grad + alone.weight.grad)


def test_the_auxiliary_loss_is_minimal_for_balanced_experts():
    one = router()
    even = torch.full((1, 4, 8), 1 / 8)
    visits = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]])
    assert one._auxiliary_loss(even, visits[None].float()).item() == pytest.approx(1.0)
    crowded = torch.zeros(1, 4, 8)
    crowded[..., 0] = crowded[..., 1] = 0.5
    assert one._auxiliary_loss(crowded, visits[:1].expand(1, 4, 8).float()).item() == pytest.approx(4.0)


def test_balance_biases_move_by_the_sign_of_the_load_error():
    shape = MODELS["experts"]
    with torch.device("meta"):
        model = Decoder(shape)
    seeded.materialise(model, shape, 16, 0, CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    balance_experts(optimizer, [model], plan(model=shape, options=Options(expert_balance="bias")), CPU)
    one, other = (layer.router for layer in mixtures(model))
    one.load.copy_(torch.tensor([9, 1, 5, 5, 5, 5, 5, 5]))
    other.load.fill_(5)
    model(torch.arange(16)[None] * 0)  # adds to the load
    visits = one.load.clone()
    optimizer.step()
    torch.testing.assert_close(one.balance_bias, BALANCE_RATE * (visits.mean() - visits).sign())
    assert one.load.sum() == 0


def test_with_an_auxiliary_loss_balance_biases_stay_zero():
    shape = MODELS["experts"]
    model = Decoder(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    balance_experts(optimizer, [model], plan(model=shape), CPU)
    router_of_first = next(mixtures(model)).router
    router_of_first.load.copy_(torch.arange(8))
    optimizer.step()
    assert router_of_first.balance_bias.abs().sum() == 0


@pytest.mark.timeout(120)
def test_all_to_alls_are_assigned_to_the_ep_axis(tmp_path):
    wanted = dict(cases())["experts ep 2"]
    done = forked(2, trial_arguments(wanted, tmp_path))
    assert done.returncode == 0, done.stderr
    for record in records(tmp_path):
        assert {row.axis for row in record.traffic if row.collective == "all_to_all"} == {"ep"}
        assert record.exposed_seconds_by_axis.keys() == {"ep", "dp_shard"}


@pytest.mark.gpu
def test_grouped_gemm_on_a_gpu_equals_a_loop_over_experts():
    rows = torch.randn(40, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    counts = torch.tensor([8, 0, 24, 8], device="cuda")
    shape = replace(MODELS["experts"], hidden_size=64, moe=MoEShape(experts=4, experts_per_token=1, expert_ffn_size=32))
    found = []
    for grouped in (False, True):
        experts = with_values(Experts(shape)).to("cuda", torch.bfloat16)
        experts.grouped = grouped
        results = experts(rows, counts)
        results.square().sum().backward()
        found.append((results.detach(), experts.down.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * one.abs().max().item())
