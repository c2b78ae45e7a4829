"""The memory model against the simulator on a grid of plans: python benchmarks/memory.py [--page FILE] [PART-OF-A-NAME ...]

Both give the peak bytes of tensors on the rank with the largest peak: the estimate in arithmetic, the simulation by running the
trainer on tensors without values. Plans are eager, as the simulation is.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import strategist_runtime.simulate.rank as simulator
import torch  # noqa: F401 - once, before the processes that simulate are forked
from strategist_runtime.rank_process import leave

from strategist import api
from strategist.contract import codec
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import KnobValue, Options
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.contract.simulation import MEMORY_PARTS, SimulatedRank
from strategist.contract.workload import Workload
from strategist.errors import StrategistError
from strategist.planning import planner
from strategist.profiles.situation import situation

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "vocab_size": 32768,
    "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816, "tie_word_embeddings": False,
}  # fmt: skip
GPT = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 8, "n_embd": 1024, "n_head": 16, "vocab_size": 50304,
    "n_positions": 2048,
}  # fmt: skip
MODELS = {"llama": LLAMA, "gpt": GPT}
SEQ_LEN = 2048
SMALL = "8xH100"
Settings = Mapping[str, KnobValue]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan to compare, by name; ``model`` is one of ``MODELS`` or a known one."""

    name: str
    model: str
    gpus: str
    layout: Layout
    knobs: Settings
    workload: Workload


TP: Settings = {"sequence_parallel": True}
LAYOUTS: dict[str, tuple[Layout, Settings]] = {
    "fsdp": (Layout(dp_shard=8), {}),
    "fsdp kept": (Layout(dp_shard=8), {"reshard_after_forward": False}),
    "hsdp": (Layout(dp_replicate=2, dp_shard=4), {}),
    "tp": (Layout(tp=4, dp_shard=2), {}),
    "tp sp": (Layout(tp=4, dp_shard=2), TP),
    "tp sp loss": (Layout(tp=4, dp_shard=2), {**TP, "loss_parallel": True}),
    "tp sp chunked loss": (Layout(tp=4, dp_shard=2), {**TP, "loss_parallel": True, "chunked_loss": True}),
    "fsdp chunked loss": (Layout(dp_shard=8), {"chunked_loss": True}),
    "pp chunked loss": (Layout(pp=4, dp_shard=2), {"pp_schedule": "1f1b", "no_sync": True, "chunked_loss": True}),
    "pp gpipe chunked loss": (Layout(pp=4, dp_shard=2), {"pp_schedule": "gpipe", "no_sync": True, "chunked_loss": True}),
    "ddp chunked loss": (Layout(dp_replicate=8), {"chunked_loss": True}),
    "cp": (Layout(cp=4, dp_shard=2), {}),
    "pp 1f1b": (Layout(pp=4, dp_shard=2), {"pp_schedule": "1f1b", "no_sync": True}),
    "pp gpipe": (Layout(pp=4, dp_shard=2), {"pp_schedule": "gpipe", "no_sync": True}),
    "pp interleaved": (
        Layout(pp=4, dp_shard=2),
        {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, "no_sync": True},
    ),
    "pp one round": (
        Layout(pp=4, dp_shard=2),
        {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, "no_sync": True},
    ),
    "pp looped bfs": (
        Layout(pp=4, dp_shard=2),
        {"pp_schedule": "looped_bfs", "pp_virtual_stages": 2, "no_sync": True},
    ),
    "pp zbv": (
        Layout(pp=4, dp_shard=2),
        {"pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False, "no_sync": True},
    ),
    "pp tp": (Layout(pp=2, tp=2, dp_shard=2), {**TP, "pp_schedule": "1f1b", "no_sync": True}),
    "pp replicas": (Layout(pp=4, dp_replicate=2), {"pp_schedule": "1f1b", "no_sync": True}),
    "pp alone": (Layout(pp=8), {"pp_schedule": "1f1b", "no_sync": True}),
    "ddp": (Layout(dp_replicate=8), {}),
}
RECOMPUTE: dict[str, Settings] = {
    "none": {},
    "full": {"recompute": "full"},
    "every_second_layer": {"recompute": "every_second_layer"},
    "selective": {"recompute": "selective"},
    "every second matmul": {"recompute": "selective", "saved_operations": "every_second_matmul+attention"},
}
BATCHES = {"1x1": (1, 1), "2x1": (2, 1), "1x4": (1, 4)}
"""Rows of a micro-batch, and micro-batches; a pipeline has eight times as many, or ROUND."""

ROUND = {"pp one round": 4}

STAGES: Settings = {**TP, "loss_parallel": True, "no_sync": True}
INTERLEAVED: Settings = {**STAGES, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2}
LARGE: dict[str, tuple[str, str, Layout, Settings, tuple[int, int, int]]] = {
    "tp 8": ("llama3-8b", "2x8xH100", Layout(tp=8, dp_shard=2), {**TP, "loss_parallel": True}, (8192, 4, 1)),
    "tp 8 whole": ("llama3-8b", "2x8xH100", Layout(tp=8, dp_shard=2), {"loss_parallel": True}, (8192, 1, 1)),
    "fsdp chunked loss": ("llama3-8b", "8xH100", Layout(dp_shard=8), {"chunked_loss": True}, (8192, 1, 1)),
    "tp 8 pp 4 chunked loss": (
        "llama3-70b",
        "8x8xH100",
        Layout(pp=4, dp_shard=2, tp=8),
        {**STAGES, "chunked_loss": True},
        (8192, 2, 16),
    ),
    "fsdp large batch": ("llama3-8b", "8xH100", Layout(dp_shard=8), {}, (8192, 4, 1)),
    "tp 8 short": ("llama3-70b", "8x8xH100", Layout(tp=8, dp_shard=8), {**TP, "loss_parallel": True}, (2048, 1, 1)),
    "tp 2 pp 2": ("llama3-8b", "8xH100", Layout(pp=2, dp_shard=2, tp=2), STAGES, (8192, 2, 8)),
    "tp 8 pp 4": ("llama3-70b", "8x8xH100", Layout(pp=4, dp_shard=2, tp=8), STAGES, (8192, 2, 16)),
    "tp 8 pp 4 interleaved": ("llama3-70b", "8x8xH100", Layout(pp=4, dp_shard=2, tp=8), INTERLEAVED, (8192, 2, 16)),
    "tp 8 pp 8": ("llama3-405b", "64x8xH100", Layout(pp=8, dp_shard=8, tp=8), STAGES, (8192, 4, 8)),
    "tp 8 pp 8 one round": ("llama3-405b", "64x8xH100", Layout(pp=8, dp_shard=8, tp=8), INTERLEAVED, (8192, 4, 8)),
}
"""Known models in large layouts, by name: model, devices, layout, settings; tokens of a sequence, rows of a micro-batch, and
micro-batches."""


def cases() -> Iterator[Case]:
    """The grid: every layout and recomputation in bf16, and some in fp32 and of another model."""
    for layout_name, (layout, further) in LAYOUTS.items():
        for recompute, recomputing in RECOMPUTE.items():
            for batch, (rows, count) in BATCHES.items():
                for model, precision in (("llama", "bf16"), ("llama", "fp32"), ("gpt", "bf16")):
                    plain = (model, precision) == ("llama", "bf16")
                    if (not plain and recompute not in ("none", "full")) or (batch != "1x1" and layout.pp > 1):
                        continue
                    if batch == "2x1" and not (plain and recompute == "none"):
                        continue
                    many = count * (ROUND.get(layout_name, 8) if layout.pp > 1 else 1)
                    workload = Workload(seq_len=SEQ_LEN, global_batch=rows * many * layout.data_ranks, precision=precision)
                    knobs = {"micro_batch": rows, **further, **recomputing}
                    name = f"{model} {precision}, {layout_name}, {recompute}, {batch}"
                    yield Case(name=name, model=model, gpus=SMALL, layout=layout, knobs=knobs, workload=workload)
    yield from large_cases()


def large_cases() -> Iterator[Case]:
    """Each of the large layouts, with all that is kept and with nothing, at tp 8 alone selectively, too."""
    for layout_name, (model, gpus, layout, further, (seq_len, rows, count)) in LARGE.items():
        for recompute in ("none", "selective", "full") if (model, layout.tp) == ("llama3-8b", 8) else ("none", "full"):
            workload = Workload(seq_len=seq_len, global_batch=rows * count * layout.data_ranks)
            knobs = {"micro_batch": rows, **further, **RECOMPUTE[recompute]}
            name = f"{model}, {layout_name}, {recompute}, {rows}x{count}"
            yield Case(name=name, model=model, gpus=gpus, layout=layout, knobs=knobs, workload=workload)


def plan_of(case: Case, folder: Path) -> Plan:
    """The case as a plan, priced."""
    model = case.model
    if model in MODELS:
        config = folder / model / "config.json"
        config.parent.mkdir(exist_ok=True)
        config.write_text(json.dumps(MODELS[model]), encoding="utf-8")
        model = str(config)
    request = Request(model=model, gpus=case.gpus, workload=case.workload)
    options = Options(gradient_as_bucket_view=True, optimizer_kernel="fused")
    candidate = with_settings(Candidate(layout=case.layout, knobs=Knobs(), options=options), case.knobs)
    return planner.price_candidate(situation(request), candidate, deck=api.load_cards())


def simulated(plan: Plan, rank: int, folder: Path) -> SimulatedRank | str:
    """The simulation of a rank in a process forked from this one, or its error."""
    out = folder / "rank.json"
    out.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            codec.save(simulator.simulate(plan, rank), out)
        except Exception as error:  # the process ends here, and its parent shows what was wrong
            out.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
            leave(1)
        leave(0)
    _, status = os.waitpid(child, 0)
    return codec.load(SimulatedRank, out) if status == 0 else out.read_text(encoding="utf-8").splitlines()[0]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A case with both figures, in bytes, and by part."""

    case: Case
    estimated: float
    simulated: float
    parts: dict[str, tuple[float, float]]
    moment: str

    @property
    def error(self) -> float:
        return self.estimated / self.simulated - 1


def compared(case: Case, folder: Path) -> Found | str:
    """Both figures of the first or the last stage, whichever has the larger simulated peak."""
    try:
        plan = plan_of(case, folder)
    except StrategistError as error:
        return str(error)
    layout = plan.candidate.layout
    ranks = []
    for stage in dict.fromkeys((0, layout.pp - 1)):
        rank = simulated(plan, layout.first_rank(stage), folder)
        if isinstance(rank, str):
            return rank
        ranks.append(rank)
    peak_rank = max(ranks, key=lambda rank: rank.peak_memory_bytes)
    predicted = plan.estimate.memory
    parts = {part: (getattr(predicted, part, 0.0), float(peak_rank.memory.get(part, 0))) for part in MEMORY_PARTS}
    return Found(
        case=case,
        estimated=predicted.allocated,
        simulated=float(peak_rank.peak_memory_bytes),
        parts=parts,
        moment=f"{peak_rank.moment.phase} {peak_rank.moment.module} of rank {peak_rank.rank}",
    )


TOLERANCE = 0.03
INTRODUCTION = f"""# The memory model against the simulator

Made by `make memory`. Each of {{plans}} plans is priced by the estimate's arithmetic and simulated as `strategist simulate`
does, which runs the trainer on tensors without values; both say what tensors take at most on the fullest of the first and the last
stage. Two models of 8 layers (Llama-like with grouped queries, GPT-2-like), {SEQ_LEN:,} tokens a sequence, 8
devices; and Llama 3 of 8B, 70B and 405B in large layouts, most of 8,192 tokens a sequence, on up to 512. Eager, without the
allocator's share. Error: estimate / simulation - 1.

"""


def line(found: Found) -> str:
    sizes = f"{found.estimated / 2**20:9.1f} {found.simulated / 2**20:9.1f} MiB"
    return f"{found.case.name:50} {sizes} {found.error:+6.1%} {found.moment}"


def summary(results: list[Found]) -> Iterator[str]:
    """A table of layouts, and one of the plans that are further off than the tolerance."""
    by_layout: dict[str, list[float]] = defaultdict(list)
    for found in results:
        by_layout[found.case.name.split(", ")[1]].append(found.error)
    yield f"| layout | plans | within {TOLERANCE:.0%} | median | worst |"
    yield "| --- | --- | --- | --- | --- |"
    for layout, errors in {**by_layout, "**all**": [found.error for found in results]}.items():
        within = sum(abs(error) <= TOLERANCE for error in errors)
        worst = max(errors, key=abs)
        yield f"| {layout} | {len(errors)} | {within} | {statistics.median(errors):+.1%} | {worst:+.1%} |"
    far = sorted((found for found in results if abs(found.error) > TOLERANCE), key=lambda found: -abs(found.error))
    if far:
        yield from ("", "| further off | estimate MiB | simulated MiB | error | fullest at |", "| --- | --- | --- | --- | --- |")
    for found in far:
        sizes = f"{found.estimated / 2**20:,.0f} | {found.simulated / 2**20:,.0f}"
        yield f"| {found.case.name} | {sizes} | {found.error:+.1%} | {found.moment} |"


def main() -> None:
    """One line a plan, and what they amount to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases with all of these in their names")
    parser.add_argument("--parts", action="store_true", help="show parts, too")
    parser.add_argument("--page", type=Path, help="where to write the tables")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        for case in cases():
            if not all(part in case.name for part in options.names):
                continue
            found = compared(case, Path(name))
            if isinstance(found, str):
                print(f"{case.name:50} {found}", flush=True)
                continue
            results.append(found)
            print(line(found), flush=True)
            if options.parts:
                print(
                    "   ", {part: tuple(round(size / 2**20, 1) for size in both) for part, both in found.parts.items() if any(both)}
                )
    tables = "\n".join(summary(results))
    print(tables)
    if options.page is not None:
        options.page.write_text(INTRODUCTION.format(plans=len(results)) + tables + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
