"""Random legal plans are accepted by the back end's profile exactly if the runtime accepts them."""

import json
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from strategist_runtime.capability import refusals

from strategist.contract.knobs import CHOICES, CONVERGENCE_KNOBS, Candidate
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import MLAShape, MoEShape, RopeScaling
from strategist.contract.options import OPTION_CHOICES
from strategist.contract.request import CONVERGENCE
from strategist.contract.settings import with_settings
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES, Workload
from strategist.errors import InputError
from strategist.expr.columns import row_of
from strategist.expr.evaluate import scalar
from strategist.programs.backends import load_backend
from strategist.search.candidate_tables import candidate_table
from strategist.search.facts import situation_facts
from strategist.search.rank import candidate
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

from .plans import GROUPED, TINY, cluster, plan

PLANS, EACH = 1500, 6
"""Number of plans in total, and per space."""

EXPERTS = MoEShape(experts=4, experts_per_token=2, expert_ffn_size=16)
LATENT = MLAShape(query_rank=8, key_value_rank=8, rope_head_size=4, nope_head_size=4, value_head_size=4)
WIDE = replace(TINY, hidden_size=128, head_size=32, ffn_size=256)
MODELS = (
    TINY, GROUPED, WIDE, WIDE,
    replace(WIDE, attention_sinks=True), replace(WIDE, sliding_window=8), replace(TINY, sliding_window=64),
    replace(TINY, moe=EXPERTS), replace(TINY, moe=replace(EXPERTS, shared_experts=1, shared_expert_gate=True)),
    replace(TINY, layer_norms=1), replace(WIDE, mla=LATENT), replace(TINY, head_size=9), replace(TINY, ffn_size=40),
    replace(TINY, hidden_size=40),
    replace(TINY, head_size=9, learned_positions=32), replace(TINY, learned_positions=16), replace(TINY, activation="relu2"),
    replace(TINY, activation="swish9"), *(replace(TINY, rope_scaling=RopeScaling(kind=kind)) for kind in ("yarn", "longrope")),
)  # fmt: skip
KINDS = {"train": (*TRAIN_MODES, "full"), "precision": (*PRECISIONS, "bf16"), "optimizer": OPTIMIZERS}
OPEN = tuple(name for name in CONVERGENCE if name not in ("optimizer", "global_batch"))
LIBRARY = "which is not installed"
"""Missing libraries of a machine are not part of the profile."""


def blocks(model, on, workload, fixed):
    """The space with all settings that may change convergence, limited by the fixed ones."""
    try:
        return space(model, on, workload, SpaceConstraints(allow=OPEN, fix=fixed))
    except InputError:  # the fixed settings are illegal here
        return []


def legal_plans():
    """Legal plans of all kinds."""
    draw = Random(0)
    clusters = [cluster(devices, kind=kind) for devices in (2, 4) for kind in ("cpu", "cuda")]
    often = [{name: value} for name in CONVERGENCE_KNOBS for value in CHOICES[name]]
    often += [{"offload": "streamed"}, {"recompute": "budget"}, *[{}] * 6]
    found = []
    while len(found) < PLANS:
        kinds = {name: draw.choice(values) for name, values in KINDS.items()}
        sizes = {"seq_len": draw.choice((16, 24, 32)), "global_batch": 8, "document_tokens": draw.choice((0, 0, 6))}
        model, on, workload = draw.choice(MODELS), draw.choice(clusters), Workload(**kinds, **sizes)
        halves = {"compile": draw.choice((False, True)), "reduce_dtype": draw.choice(("fp32", "bf16"))}
        enumerated = blocks(model, on, workload, {**halves, **draw.choice(often)})
        for number in draw.sample(range(len(enumerated)), min(EACH, len(enumerated))):
            block = enumerated.take(np.array([number]))
            chosen = with_options(candidate(candidate_table(block), draw.randrange(block.candidates)), draw)
            if not chosen.violations(model, workload, on.devices):
                found.append(replace(plan(), model=model, cluster=on, workload=workload, candidate=chosen))
    return found


def with_options(chosen, draw) -> Candidate:
    """The candidate with random values for some options."""
    return with_settings(chosen, {name: draw.choice(OPTION_CHOICES[name]) for name in draw.sample(list(OPTION_CHOICES), 6)})


@pytest.fixture(scope="module")
def plans():
    return legal_plans()


def profile_refusals(backend, each):
    """The refusals of a plan by the profile."""
    facts = situation_facts(each.model, each.cluster, each.workload)
    return load_backend(backend).refusals(each.candidate, each.model, each.workload, facts)


def test_native_profile_and_runtime_refuse_the_same_plans(plans):
    counts = Counter()
    for each in plans:
        own = [text for text in refusals(each) if LIBRARY not in text]
        assert bool(profile_refusals("native", each)) == bool(own), (
            profile_refusals("native", each),
            own,
            each.candidate,
            each.workload,
        )
        counts[bool(own)] += 1
    assert min(counts.values()) > PLANS / 5


def test_each_condition_of_the_profile_holds_for_some_plan(plans):
    known = [
        {**situation_facts(each.model, each.cluster, each.workload), **row_of(each.candidate, each.accumulation)} for each in plans
    ]
    for refusal in load_backend("native").refuses:
        assert any(scalar(refusal.when, facts) is True for facts in known), refusal.when.text


def test_transformers_profile_and_runtime_refuse_the_same_plans(plans, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 2}), encoding="utf-8")
    settings, counts = TrialSettings(hugging_face=str(tmp_path)), Counter()
    for each in plans:
        own = [text for text in refusals(each, settings) if LIBRARY not in text and "plan again with --model" not in text]
        assert bool(profile_refusals("transformers", each)) == bool(own), (profile_refusals("transformers", each), own)
        counts[bool(own)] += 1
    assert min(counts.values()) > PLANS / 50
