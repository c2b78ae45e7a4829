"""Reports of real plans, cached."""

from functools import cache

from planning.plans import best

from strategist import api
from strategist.contract.answer import Answer
from strategist.contract.report import PlanReport
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
    return api.report(best(STREAMED))
