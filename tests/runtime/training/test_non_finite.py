"""A training with non-finite losses, caused by one token's embedding."""

import json

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file

from strategist.contract import checkpoint
from strategist.contract.measurement import Outcome, TrialSettings

from ..launch import run_alone
from ..plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(150)]

STEPS = 10
DAMAGED = 7


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A model whose embedding of one token is NaN."""
    folder = tmp_path_factory.mktemp("weights")
    code, _, errors = run_alone(plan(), folder, TrialSettings(total_steps=1, export=str(folder / "model")))
    assert code == 0, errors
    file = folder / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.embed_tokens.weight"][DAMAGED] = torch.nan
    save_file(tensors, file)
    return folder / "model"


def trained(folder, weights, tokens, **settings):
    """The exit code, record and curve of a training on these tokens."""
    numpy.save(folder / "tokens.npy", tokens.astype("uint16"))
    chosen = TrialSettings(
        weights=str(weights), data=str(folder / "tokens.npy"), log=str(folder), save=str(folder / "save"), **settings
    )  # fmt: skip
    code, record, _ = run_alone(plan(), folder, chosen)
    return code, record, [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]


@pytest.fixture
def tokens():
    """Tokens for all steps; one step reads the damaged token."""
    found = numpy.random.default_rng(0).integers(DAMAGED + 1, TINY.vocab_size, STEPS * WORKLOAD.global_batch * WORKLOAD.seq_len + 1)
    found[WORKLOAD.seq_len // 2] = DAMAGED
    return found


def test_with_skip_a_non_finite_step_is_marked_and_training_continues(tmp_path, weights, tokens):
    code, record, rows = trained(tmp_path, weights, tokens, total_steps=STEPS, non_finite="skip")
    assert (code, record.outcome, len(rows), len(record.losses)) == (0, Outcome.OK, STEPS, STEPS - 1)
    (skipped,) = (row for row in rows if row["skipped"])
    assert (skipped["loss"], skipped["grad_norm"]) == (None, None)


def test_with_stop_a_non_finite_step_ends_the_training_with_the_previous_checkpoint(tmp_path, weights, tokens):
    code, record, rows = trained(tmp_path, weights, tokens, total_steps=STEPS, save_every=1)
    assert (code, record.outcome, record.message) == (78, Outcome.NAN, f"step {len(rows)}: loss nan, gradient norm nan")
    assert checkpoint.newest(tmp_path / "save")[1].step == len(rows)


def test_too_many_consecutive_non_finite_steps_end_the_training(tmp_path, weights, tokens):
    code, record, _ = trained(tmp_path, weights, 0 * tokens + DAMAGED, total_steps=60, non_finite="skip")
    assert (code, record.outcome) == (78, Outcome.NAN)
    assert record.message == "step 24: loss nan, gradient norm nan, the 25th in a row"
