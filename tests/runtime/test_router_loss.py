"""The auxiliary router loss as a model's configuration requests it, compared with a training loop of transformers."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from strategist_runtime.mesh import Meshes
from strategist_runtime.training.trainer import make_trainer
from torch import nn
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings
from strategist.profiles.huggingface import read_config

from .hugging_face import SIZES
from .plans import plan

pytestmark = pytest.mark.torch
STEPS, RATE = 20, 1e-3


def folder_of(kind, path, **settings):
    """A model with initial weights and without padding tokens."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES[kind], "pad_token_id": None}, **settings)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return str(path)


def trainer_of(folder, **settings):
    """Our trainer for the model of a folder."""
    chosen = plan(model=read_config(Path(folder)), knobs=Knobs(micro_batch=8))
    return make_trainer(chosen, TrialSettings(learning_rate=RATE, **settings), Meshes(), torch.device("cpu"))


def trained(trainer):
    """Losses of our trainer, and its batches."""
    batches = [trainer.batch(index) for index in range(STEPS)]
    return [trainer.step(batch).loss for batch in batches], batches


def transformers_losses(model, batches, coefficient):
    """Losses of a training loop over transformers' model with its own auxiliary loss."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=RATE), []
    for batch in batches:
        found = model(batch.tokens, output_router_logits=True)
        loss = F.cross_entropy(found.logits.flatten(0, 1), batch.targets.flatten())
        balance = load_balancing_loss_func(found.router_logits, model.num_experts, model.num_experts_per_tok)
        (loss + coefficient * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_without_output_router_logits_there_is_no_auxiliary_loss(tmp_path):
    folder = folder_of("mixtral", tmp_path, router_aux_loss_coef=0.02)
    losses, batches = trained(trainer_of(folder, weights=folder))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert losses == pytest.approx(transformers_losses(model, batches, 0.0), rel=1e-6)


def test_a_transformers_model_adds_its_own_auxiliary_loss(tmp_path):
    folder = folder_of("mixtral", tmp_path, router_aux_loss_coef=0.02, output_router_logits=True)
    trainer = trainer_of(folder, hugging_face=folder)
    with_loss, without = (deepcopy(trainer.parts[0].model) for _ in range(2))
    losses, batches = trained(trainer)
    assert losses == pytest.approx(transformers_losses(with_loss, batches, 0.02), rel=1e-6)
    assert losses != pytest.approx(transformers_losses(without, batches, 0.0), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "coefficient"),
    [
        ("mixtral", {"router_aux_loss_coef": 0.03, "output_router_logits": True}, 0.03 * 2 / 3),
        ("qwen3_moe", {"router_aux_loss_coef": 0.06, "output_router_logits": True}, 0.06 * 2 / 3),
        ("qwen3_moe", {"router_aux_loss_coef": 0.06}, 0.0),
        ("deepseek_v3", {"aux_loss_alpha": 0.004, "seq_aux": True}, 0.004),
        ("deepseek_v3", {}, 0.0),
    ],
)
def test_auxiliary_loss_coefficients_are_read_from_the_configuration(tmp_path, kind, settings, coefficient):
    """Three layers and two experts per token; ours applies to each layer and is 1 where theirs, for all layers, is 2."""
    transformers.AutoConfig.for_model(kind, **SIZES[kind], **settings).save_pretrained(tmp_path)
    assert read_config(tmp_path).moe.balance_coefficient == pytest.approx(coefficient)
