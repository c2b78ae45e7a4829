"""Trainings with masked and mixed data, groups without weight decay, a schedule and an evaluation: equal with every layout."""

import json
from dataclasses import replace

import numpy
import pytest
import torch
import torch.nn.functional as F
from strategist_runtime.data.batch import IGNORED
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.optimizers.weight_decay import no_decay_parameters
from strategist_runtime.training.trainer import make_trainer
from torch import nn

from strategist.contract import codec
from strategist.contract.data_source import DataSource
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.contract.options import Options

from ..cases import MODELS
from ..cases_experts import MODELS as EXPERTS
from ..data.test_examples import tokenizer, write_lines  # noqa: F401 - a fixture
from ..launch import forked
from ..plans import TINY, WORKLOAD, plan
from ..training_rank import figures

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

CPU = torch.device("cpu")
DEEP = replace(TINY, name="qwen deep", layers=4, qk_norm=True, tied_embeddings=True)
INTERLEAVED = {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2}
V_SHAPED = {"pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2}
FLEX = Options(cp_attention="flex")
LORA = replace(WORKLOAD, train="lora", lora_rank=4)
PAIRS = {
    "fsdp": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, reshard_after_forward=False)),
    "tensor": plan(layout=Layout(tp=2), knobs=Knobs(micro_batch=4, sequence_parallel=True, loss_parallel=True)),
    "pipeline": plan(model=DEEP, layout=Layout(pp=2), knobs=Knobs(micro_batch=2, **V_SHAPED)),
    "interleaved": plan(model=DEEP, layout=Layout(pp=2), knobs=Knobs(micro_batch=2, **INTERLEAVED)),
}
"""Plans on two ranks."""

FOURS = {
    "context": plan(layout=Layout(cp=2, dp_shard=2), knobs=Knobs(micro_batch=2), options=FLEX),
    "replicas": plan(layout=Layout(dp_replicate=4), knobs=Knobs(micro_batch=1, no_sync=True)),
    "pipeline of shards": plan(model=DEEP, layout=Layout(pp=2, dp_shard=2), knobs=Knobs(micro_batch=1, recompute="full")),
    "streamed": plan(
        model=DEEP, layout=Layout(pp=4), knobs=Knobs(micro_batch=2, offload="streamed", recompute="full", pp_schedule="gpipe")
    ),
    "experts": plan(model=EXPERTS["experts"], layout=Layout(dp_shard=4, ep=2), knobs=Knobs(micro_batch=2)),
    "offloaded": plan(layout=Layout(dp_shard=4), knobs=Knobs(micro_batch=2, offload="all")),
    "host optimizer": plan(layout=Layout(dp_shard=2, tp=2), knobs=Knobs(micro_batch=2, offload="optimizer")),
    "lora": plan(layout=Layout(dp_shard=2, tp=2), knobs=Knobs(micro_batch=2), workload=LORA),
    "activations": plan(layout=Layout(dp_shard=4), knobs=Knobs(micro_batch=1, activation_offload=True)),
}


def settings_of(folder, tokens):
    """Token ids and masked examples, three to one; the evaluation data do not fill a whole batch."""
    generator = numpy.random.default_rng(0)
    numpy.save(folder / "tokens.npy", generator.integers(0, 64, 1000).astype("uint16"))
    numpy.save(folder / "held-out.npy", generator.integers(0, 64, 16 * 5 + 1).astype("uint16"))
    letters = ["".join(generator.choice(list("abcdefghij"), 5)) for _ in range(60)]
    lines = [{"prompt": text[:2], "response": text[: 1 + n % 5]} for n, text in enumerate(letters)]
    examples, held_out = write_lines(folder / "examples.jsonl", *lines), write_lines(folder / "held-out.jsonl", *lines[:12])
    return TrialSettings(
        total_steps=8, learning_rate=0.01, learning_rate_schedule="cosine", learning_rate_warmup_steps=2, weight_decay=0.5,
        no_decay=("norms", "embeddings"), betas=(0.8, 0.9), clip_norm=0.5, tokenizer=str(tokens),
        data=(DataSource(path=str(folder / "tokens.npy"), weight=3.0), DataSource(path=examples, weight=1.0)),
        evaluation_data=(DataSource(path=str(folder / "held-out.npy")), DataSource(path=held_out)),
    )  # fmt: skip


def single_process_plan(run):
    """The plan of one process for the same training."""
    return plan(model=run.model, workload=run.workload, knobs=Knobs(micro_batch=8))


@pytest.fixture(scope="module")
def compared(tmp_path_factory, tokenizer):  # noqa: F811
    """``compared(plans, ranks)`` returns the figures of each plan, and those of one process."""

    def run(plans, ranks):
        folder = tmp_path_factory.mktemp("trainings")
        settings = settings_of(folder, tokenizer)
        codec.save(settings, folder / "settings.json")
        for name, chosen in plans.items():
            codec.save(chosen, folder / f"{name}.json")
        done = forked(ranks, ["runtime.training_rank", str(folder), *plans])
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        single = {name: single_process_plan(chosen) for name, chosen in plans.items()}
        distinct = {each.id: each for each in single.values()}
        expected = {key: figures(each, settings, Meshes()) for key, each in distinct.items()}
        return {name: (found[name], expected[each.id]) for name, each in single.items()}

    return run


@pytest.mark.parametrize(("plans", "ranks"), [(PAIRS, 2), pytest.param(FOURS, 4, marks=pytest.mark.full)])
def test_every_layout_trains_and_evaluates_like_one_process(compared, plans, ranks):
    wrong = []
    for name, (found, expected) in compared(plans, ranks).items():
        for figure, values in expected.items():
            if found[figure] != pytest.approx(values, rel=2e-6):
                wrong.append((name, figure, found[figure], values))
        assert len({round(value, 4) for value in expected["evaluation_losses"]}) > 1
    assert wrong == []


def test_one_process_trains_like_a_plain_torch_loop(tmp_path, tokenizer):  # noqa: F811
    """The loop has the masks, the mixture, parameter groups, betas and the schedule, and evaluates sample by sample."""
    settings = settings_of(tmp_path, tokenizer)
    run = single_process_plan(PAIRS["tensor"])
    ours = figures(run, settings, Meshes())
    trainer = make_trainer(run, settings, Meshes(), CPU)
    (model,) = trainer.parts
    without_decay = [p for name, p in model.named_parameters() if "norm" in name or name in ("embedding.weight", "head.weight")]
    decays = [p for p in model.parameters() if not any(p is other for other in without_decay)]
    groups = [{"params": decays, "weight_decay": 0.5}, {"params": without_decay, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9))
    rates = [0.5, 1.0, 1.0]
    for index, loss in enumerate(ours["losses"]):
        batch = trainer.batch(index)
        assert batch.documents is not None
        assert (batch.targets == IGNORED).any()
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * rates[index]
        logits = model(batch.tokens, documents=batch.documents)
        theirs = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
        assert theirs.item() == pytest.approx(loss, rel=2e-6)
        theirs.backward()
        assert nn.utils.clip_grad_norm_(model.parameters(), 0.5).item() == pytest.approx(ours["grad_norms"][index], rel=2e-5)
        optimizer.step()
        optimizer.zero_grad()
    assert ours["evaluation_losses"][-1] == pytest.approx(evaluated(model, settings, run), rel=2e-6)


def evaluated(model, settings, run):
    """The mean loss over all held-out targets, sample by sample."""
    from strategist_runtime.data.sources import SourceOpener

    dataset = SourceOpener(plan=run, settings=settings).evaluation_dataset()
    total, count = 0.0, 0
    for number in range(dataset.samples):
        sample = dataset.sample(number)
        documents = None if sample.documents is None else sample.documents[None, :-1]
        with torch.no_grad():
            logits = model(sample.ids[None, :-1], documents=documents)[0]
        counts = torch.ones(16, dtype=torch.bool) if sample.trained is None else sample.trained[1:]
        total += F.cross_entropy(logits[counts], sample.ids[1:][counts], reduction="sum").item()
        count += int(counts.sum())
    return total / count


@pytest.mark.parametrize("model", ["gpt", "qwen", "tiny"])
def test_no_decay_groups_contain_norms_biases_and_embeddings(model):
    trainer = make_trainer(plan(model=MODELS[model]), TrialSettings(), Meshes(), CPU)
    names = {name for name, _ in plain_names(trainer.parts)}
    norms, biases, embeddings = ({name for name in no_decay_parameters(trainer.parts, [group]) if name in names} for group in (
        "norms", "biases", "embeddings",
    ))  # fmt: skip
    assert norms == {name for name in names if "norm" in name}
    assert biases == {name for name in names if name.endswith("bias") and "norm" not in name}
    assert embeddings == names & {"embedding.weight", "positions.weight", "head.weight"}


@pytest.mark.parametrize("name", ["adamw", "adamw_bf16", "adamw8bit", "muon", "sgd"])
def test_every_optimizer_excludes_no_decay_groups_from_weight_decay(name):
    """With zero gradients only weight decay changes a weight."""
    settings = TrialSettings(weight_decay=0.5, no_decay=("norms",), learning_rate=0.1, clip_norm=None)
    trainer = make_trainer(plan(workload=replace(WORKLOAD, optimizer=name)), settings, Meshes(), CPU)
    before = {key: parameter.detach().clone() for key, parameter in plain_names(trainer.parts)}
    for parameter in trainer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer.step()
    for key, parameter in plain_names(trainer.parts):
        share = 1.0 if "norm" in key else 0.95
        torch.testing.assert_close(parameter.detach(), share * before[key], rtol=1e-6, atol=0.0, msg=key)


@pytest.mark.parametrize("choice", ["skip", "stop"])
def test_a_non_finite_step_updates_no_parameter(choice):
    trainer = make_trainer(plan(), TrialSettings(non_finite=choice), Meshes(), CPU)
    (model,) = trainer.parts
    trainer.step(trainer.batch(0))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    hook = model.norm.register_forward_hook(lambda _module, _inputs, output: output * float("nan"))
    result = trainer.step(trainer.batch(1))
    hook.remove()
    assert (result.finite, result.skipped) == (False, choice == "skip")
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert trainer.step(trainer.batch(2)).finite
