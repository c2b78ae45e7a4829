"""Ranks that share a GPU exchange messages through host memory: plans train like a single process, and trials record their
traffic.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome

from .launch import NO_COMPILER, SHORT, forked, records, trial_arguments
from .plans import plan
from .test_parity import CASES, compare, parity_arguments, reference

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

CHOSEN = (
    "ddp", "bf16 fsdp reduce bf16", "tp sequence True loss True", "cp", "cp flex", "pp 1f1b", "streamed 2",
    "experts ep 2 grouped selective",
)  # fmt: skip
WORLD = 2


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of each case and each reference, by name."""
    references = {reference(CASES[name], name) for name in CHOSEN}
    found = {}
    for ranks, names, how in ((1, references, ()), (WORLD, CHOSEN, ("runtime.staged_rank",))):
        *program, target = parity_arguments(tmp_path_factory.mktemp("staged"), sorted(names))
        done = forked(ranks, [*how, *program, target], **NO_COMPILER)
        assert done.returncode == 0, done.stdout + done.stderr
        found |= json.loads(Path(target).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_a_staged_plan_trains_like_a_single_process(name, results):
    compare(name, results[name], lambda other, _: results[other])


def test_ranks_of_a_plan_for_one_shared_gpu_stage_messages_and_record_them(tmp_path):
    trial_plan = plan(layout=Layout(pp=2, tp=2), knobs=Knobs(micro_batch=4, sequence_parallel=True), kind="cuda")
    trial_plan = replace(trial_plan, cluster=replace(trial_plan.cluster, devices_share_one_gpu=True)).identified()
    done = forked(4, ["runtime.shared_gpu_rank", *trial_arguments(trial_plan, tmp_path, replace(SHORT, steps=1))])
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert [record.outcome for record in found] == [Outcome.OK] * 4
    assert {row.axis for row in found[0].traffic if row.calls} >= {"pp", "tp"}
    assert 0 < found[0].communication_seconds < found[0].profiled_step_seconds
