"""Learning rate schedules, compared with those of torch and transformers."""

import pytest
import torch
import transformers
from strategist_runtime.training.learning_rate_schedule import learning_rate_share, set_learning_rate

from strategist.contract.measurement import TrialSettings

pytestmark = pytest.mark.torch

STEPS, WARMUP = 40, 6
SETTINGS = {"total_steps": STEPS, "learning_rate_warmup_steps": WARMUP}
LEAST = 0.1


def ours(**settings):
    chosen = TrialSettings(**SETTINGS, **settings)
    return [learning_rate_share(chosen, step) for step in range(STEPS)]


def theirs(scheduler):
    """The factors of a scheduler, step by step; ``scheduler`` builds it from an optimizer."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    chosen, found = scheduler(optimizer), []
    for _ in range(STEPS + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        chosen.step()
    return found


DECAYS = {
    "constant": ({}, "constant_with_warmup", {}),
    "linear": ({}, "linear", {}),
    "cosine": ({}, "cosine", {}),
    "cosine with a minimum": ({"learning_rate_min_ratio": LEAST}, "cosine_with_min_lr", {"min_lr_rate": LEAST}),
    "wsd": (
        {"learning_rate_decay_steps": 10},
        "warmup_stable_decay",
        {"num_decay_steps": 10, "decay_type": "linear"},
    ),
    "wsd with a minimum": (
        {"learning_rate_decay_steps": 10, "learning_rate_min_ratio": LEAST},
        "warmup_stable_decay",
        {"num_decay_steps": 10, "decay_type": "linear", "min_lr_ratio": LEAST},
    ),
}
"""Our settings besides the schedule in the name, and the same schedule in transformers."""


@pytest.mark.parametrize("name", DECAYS)
def test_schedules_equal_those_of_transformers(name):
    """Except for the warm-up, which ends one step earlier: our first step has a rate above 0."""
    settings, kind, more = DECAYS[name]

    def scheduler(optimizer):
        arguments = {"num_warmup_steps": WARMUP, "num_training_steps": None if "constant" in kind else STEPS}
        return transformers.get_scheduler(kind, optimizer, **arguments, scheduler_specific_kwargs=more or None)

    found, expected = ours(learning_rate_schedule=name.split()[0], **settings), theirs(scheduler)
    if "min_lr_ratio" not in more:  # their warm-up starts at the minimum
        assert found[:WARMUP] == pytest.approx(expected[1 : WARMUP + 1])
    assert found[WARMUP:] == pytest.approx(expected[WARMUP:STEPS])


def test_warm_up_and_linear_decay_equal_those_of_torch():
    def scheduler(optimizer):
        rise = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / WARMUP, total_iters=WARMUP - 1)
        fall = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=LEAST, total_iters=STEPS - WARMUP)
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], milestones=[WARMUP])

    assert ours(learning_rate_schedule="linear", learning_rate_min_ratio=LEAST) == pytest.approx(theirs(scheduler)[:STEPS])


def test_wsd_decays_in_the_last_tenth_by_default():
    found = ours(learning_rate_schedule="wsd")
    assert found[WARMUP : STEPS - 3] == [1.0] * (STEPS - 3 - WARMUP)
    assert found[-3:] == pytest.approx([0.75, 0.5, 0.25])


def test_the_default_schedule_is_constant():
    assert [learning_rate_share(TrialSettings(), step) for step in (0, 5, 10**9)] == [1.0, 1.0, 1.0]


def test_parameter_groups_with_own_rates_keep_their_ratio():
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.001}], lr=0.01)
    chosen = TrialSettings(**SETTINGS, learning_rate_schedule="cosine")
    for step in range(STEPS):
        set_learning_rate(optimizer, chosen, step)
        rate = learning_rate_share(chosen, step)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01 * rate, 0.001 * rate])
