"""Reports of real plans and of a study, cached."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from planning.plans import answer_of
from tuner.studies import tuned

from strategist import api
from strategist.contract.answer import Answer
from strategist.contract.goals import Goals
from strategist.contract.report import PlanReport, StudyReport
from strategist.contract.request import Request
from strategist.contract.workload import Workload

PIPELINE = Request(
    model="llama3.1-8b", gpus="2x8xH100", workload=Workload(global_batch=32),
    fix={"pp": 4, "dp_shard": 2, "tp": 2, "pp_schedule": "1f1b", "offload": "none"},
)  # fmt: skip
STREAMED = Request(model="32b", gpus="8x24GB", workload=Workload(global_batch=2), fix={"offload": "streamed"})


@cache
def answer() -> Answer:
    return api.plan(PIPELINE, top=3)


@cache
def pipeline() -> PlanReport:
    """Report of a plan with pipeline parallelism over two nodes."""
    return api.report(answer())


@cache
def streamed() -> PlanReport:
    """Report of a plan with streamed offload."""
    return api.report(answer_of(STREAMED))


@cache
def study() -> StudyReport:
    """Report of a study with two objectives and four trials."""
    with TemporaryDirectory(prefix="studies-") as folder:
        return api.study_report(tuned(Path(folder, "both"), 4, goals=Goals(objectives=("throughput", "memory"))))
