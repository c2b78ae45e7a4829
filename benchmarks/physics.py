"""Best plans against the least that their steps take: python benchmarks/physics.py [docs/figures.md]

Exits with 1 where a plan is below its bound.
"""

import sys
from pathlib import Path
from typing import Any

from between import put

from strategist import api
from strategist.contract.bound import Bound
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.files import yaml_file
from strategist.report.reference.markdown import table
from strategist.report.setting_text import candidate_words

TITLES = ("model", "GPUs", "tokens x batch", "best plan", "step", "at least", "bound by", "reached")


def main() -> None:
    """Plans every request of ``physics.yaml``, prints the table, and writes it into the page where one is named."""
    requests: list[dict[str, Any]] = yaml_file.load(Path(__file__).with_suffix(".yaml")).data
    plans = [(request, planned(request)) for request in requests]
    text = table(TITLES, [row(request, plan) for request, plan in plans])
    print(text)
    if len(sys.argv) > 1:
        put(Path(sys.argv[1]), "physics", text)
    below = [plan.model.name for _, plan in plans if plan.estimate.step_seconds < bound_of(plan).seconds * (1 - 1e-9)]
    if below:
        sys.exit(f"below the bound: {', '.join(below)}")


def planned(request: dict[str, Any]) -> Plan:
    """The best plan."""
    workload = Workload(**{name: value for name, value in request.items() if name not in ("model", "gpus")})
    answer = api.plan(Request(model=request["model"], gpus=request["gpus"], workload=workload), top=1)
    if not answer.plans:
        sys.exit(f"{request['model']} on {request['gpus']}: {answer.verdict}")
    return answer.plans[0]


def bound_of(plan: Plan) -> Bound:
    """The bound that every plan carries."""
    assert plan.estimate.bound is not None
    return plan.estimate.bound


def row(request: dict[str, Any], plan: Plan) -> tuple[str, ...]:
    """A request, its best plan, and how far that is from the bound."""
    bound, seconds = bound_of(plan), plan.estimate.step_seconds
    batch = f"{request['seq_len']:,} x {request['global_batch']:,}" + (f", {request['train']}" if "train" in request else "")
    reached, limit = f"{bound.seconds / seconds:.0%}", bound.limited_by.replace("_", " ")
    words = candidate_words(plan.candidate)
    return request["model"], request["gpus"], batch, words, f"{seconds:.3g} s", f"{bound.seconds:.3g} s", limit, reached


if __name__ == "__main__":
    main()
