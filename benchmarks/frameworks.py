"""Which framework at which scale: python benchmarks/frameworks.py [docs/frameworks.md]

Each is asked for the best plan that it can say, priced as its own system runs it.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from between import put

from strategist import api
from strategist.contract.estimate import Estimate
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.formats.catalog import formats
from strategist.programs.backends import load_backend
from strategist.report.setting_text import candidate_words, tokens_range

FRAMEWORKS = ("native", *formats())
SITUATIONS = {
    "8B on one 24 GB card, QLoRA": Request(
        model="8b", gpus="1x24GB", workload=Workload(seq_len=4096, global_batch=16, train="qlora")
    ),
    "32B on 8 x 24 GB, LoRA": Request(model="32b", gpus="8x24GB", workload=Workload(seq_len=4096, global_batch=64, train="lora")),
    "32B on 8 x 24 GB, whole": Request(model="32b", gpus="8x24GB", workload=Workload(seq_len=4096, global_batch=64)),
    "8B on 8 H100": Request(model="8b", gpus="8xH100", workload=Workload(seq_len=8192, global_batch=128)),
    "8B on 8 H100, 128k tokens": Request(model="8b", gpus="8xH100", workload=Workload(seq_len=131072, global_batch=8)),
    "70B on 64 H100": Request(model="70b", gpus="8x8xH100", workload=Workload(seq_len=8192, global_batch=512)),
    "30B of experts on 16 H100": Request(model="qwen3-30b-a3b", gpus="2x8xH100", workload=Workload(seq_len=4096, global_batch=512)),
    "405B on 512 H100": Request(model="llama3-405b", gpus="64x8xH100", workload=Workload(seq_len=8192, global_batch=1024)),
}
ALSO = ("micro_batch", "recompute", "offload")
AXES = {"pp": "PP", "tp": "TP", "cp": "CP", "ep": "EP", "dp_replicate": "replicas"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a framework comes to in a situation: its best plan, or why there is none."""

    plan: Plan | None
    why: str = ""

    @property
    def tokens_per_second(self) -> float:
        return self.plan.estimate.tokens_per_second if self.plan else 0.0


@cache
def cell(situation: str, framework: str) -> Cell:
    """Asked as ``strategist plan --backend`` is."""
    try:
        answer = api.plan(replace(SITUATIONS[situation], backend=framework))
    except InputError as error:
        return Cell(plan=None, why=error.law.removeprefix(f"{framework} ").partition(";")[0])
    return Cell(plan=answer.plans[0]) if answer.plans else Cell(plan=None, why="runs out of memory with every setting")


def support() -> Iterator[str]:
    """A row a framework: which axes and techniques it can be told, and whose published runs price it."""
    yield "What a plan may say to each beside shards, and whose published runs its prices come from:"
    yield ""
    yield "| framework | axes | recomputation | offload | trains | experts | priced by the runs of |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in FRAMEWORKS:
        backend = load_backend(name)
        axes = ", ".join(word for axis, word in AXES.items() if backend.allows(f"layout.{axis}", 2)) or "shards only"
        kept = _taken(backend.limits.get("knobs.recompute"), ("none", "selective", "full"))
        offload = _taken(backend.limits.get("knobs.offload"), ("none", "optimizer", "parameters", "all", "streamed"))
        trains = _taken(backend.limits.get("workload.train"), ("full", "lora", "qlora"))
        experts = "yes" if backend.allows("model.moe", True) else "no"
        stacks = ", ".join((backend.stack or "torch", *(item.stack for item in backend.stacks)))
        yield f"| {name} | {axes} | {kept} | {offload} | {trains} | {experts} | {stacks} |"


def _taken(allowed: tuple[object, ...] | None, every: tuple[str, ...]) -> str:
    return ", ".join(str(value) for value in every if allowed is None or value in allowed)


def shares() -> Iterator[str]:
    """A row a situation: tokens/s of each framework's best plan as a share of the best."""
    yield "Tokens/s of the best plan as a share of the best, `-` where there is none:"
    yield ""
    yield f"| | {' | '.join(FRAMEWORKS)} |"
    yield f"| --- |{' ---: |' * len(FRAMEWORKS)}"
    for situation in SITUATIONS:
        cells = [cell(situation, framework) for framework in FRAMEWORKS]
        most = max(one.tokens_per_second for one in cells)
        row = (f"{one.tokens_per_second / most:.0%}" if one.plan else "-" for one in cells)
        yield f"| {situation} | {' | '.join(row)} |"


def plans(situation: str) -> Iterator[str]:
    """The best plan of each framework in one situation, fastest first, and what the others lack."""
    request = SITUATIONS[situation]
    yield f"## {situation}"
    yield ""
    workload = request.workload
    train = "" if workload.train == "full" else f" --train {workload.train}"
    sizes = f"--seq-len {workload.seq_len} --global-batch {workload.global_batch}"
    yield f"`strategist plan --model {request.model} --gpus {request.gpus} {sizes}{train} --backend NAME`"
    yield ""
    yield "| framework | tokens/s | 90% interval | peak, GiB | best plan |"
    yield "| --- | ---: | --- | ---: | --- |"
    ranked = sorted(FRAMEWORKS, key=lambda framework: -cell(situation, framework).tokens_per_second)
    for framework in ranked:
        found = cell(situation, framework)
        if found.plan is None:
            yield f"| {framework} | - | | | {found.why} |"
            continue
        estimate = found.plan.estimate
        rate, peak = f"{estimate.tokens_per_second:,.0f}", f"{estimate.peak_memory_bytes / 2**30:.1f}"
        yield f"| {framework} | {rate} | {_range(estimate)} | {peak} | {candidate_words(found.plan.candidate, ALSO)} |"


def _range(estimate: Estimate) -> str:
    """Tokens/s of nine steps of ten."""
    least, most = tokens_range(estimate)
    return f"{least:,.0f} to {most:,.0f}"


def whole() -> str:
    """All tables."""
    tables = [support(), shares(), *(plans(situation) for situation in SITUATIONS)]
    return "\n\n".join("\n".join(table) for table in tables)


if __name__ == "__main__":
    put(Path(sys.argv[1]), "frameworks", whole(), "which") if len(sys.argv) > 1 else print(whole())
