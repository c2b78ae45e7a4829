"""Memory as predicted, simulated, and published or measured here: python benchmarks/proof.py [docs/figures.md]

Published are TorchTitan's runs on H100s, whose figure is what the allocator reserved. Compiled layers and float8 are predicted as
they ran, and simulated as layers are written, in bf16. Measured here are four gloo processes, whose figure is what tensors took at
most on the rank with the largest peak.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import titan
from between import put

from strategist import api
from strategist.accuracy.prediction_errors import price_cases
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.options import KnobValue, Options
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.contract.workload import Workload
from strategist.report.setting_text import layout_words

SETTINGS = TrialSettings(steps=2, warmup_steps=1)
HERE: dict[str, tuple[Layout, Mapping[str, KnobValue]]] = {
    "FSDP2": (Layout(dp_shard=4), {}),
    "FSDP2, all recomputed": (Layout(dp_shard=4), {"recompute": "full"}),
    "DDP": (Layout(dp_replicate=4), {}),
    "TP with sequence and loss parallelism": (Layout(dp_shard=2, tp=2), {"sequence_parallel": True, "loss_parallel": True}),
    "1F1B": (Layout(pp=4), {"pp_schedule": "1f1b", "no_sync": True}),
    "interleaved 1F1B": (
        Layout(pp=2, dp_shard=2),
        {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2, "no_sync": True},
    ),
    "ring attention": (Layout(cp=4), {}),
}
UNITS = {"MiB": 2**20, "GiB": 2**30}
WORKLOAD = Workload(seq_len=256, global_batch=8, precision="fp32")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A plan by its name, and three figures in bytes, the last as published or measured."""

    name: str
    predicted: float
    simulated: float
    truth: float
    source: str

    def cells(self, unit: str) -> str:
        sizes = " | ".join(f"{size / UNITS[unit]:,.1f}" for size in (self.predicted, self.simulated, self.truth))
        return f"| {self.name} | {sizes} | {unit}, {self.source} | {self.simulated / self.truth:.3f} |"


def published() -> Iterator[Row]:
    """What was reserved, GiB."""
    for judged in price_cases(titan.cases(())):
        case = judged.case
        plan, marks = titan.plan_of(case, expandable=False), titan.marks(case)
        peak_rank = titan.peak_rank(plan)
        yield Row(
            name=f"{case.model.name} on {case.cluster.devices}, {layout_words(plan.candidate.layout)}, {marks}",
            predicted=judged.peak_memory_bytes,
            simulated=float(peak_rank.peak_reserved_bytes or 0),
            truth=case.peak_memory_bytes or 0.0,
            source=f"published, {case.row.row_id}",
        )


def measured() -> Iterator[Row]:
    """What tensors took on the rank with the largest peak, MiB."""
    request = Request(model="tiny", gpus="4xcpu", workload=WORKLOAD, backend="native")
    for name, (layout, knobs) in HERE.items():
        plain = Candidate(layout=layout, knobs=Knobs(), options=Options(gradient_as_bucket_view=True))
        plan = api.price(request, with_settings(plain, knobs))
        shown = api.simulate(plan, range(4))
        with tempfile.TemporaryDirectory() as folder:
            measurement = api.run(plan, folder, SETTINGS)
        if measurement.outcome is not Outcome.OK:
            sys.exit(f"{name}: {measurement.evidence.message}")
        yield Row(
            name=f"tiny on 4 CPUs, {name}",
            predicted=plan.estimate.memory.allocated,
            simulated=float(shown.peak_rank.peak_memory_bytes),
            truth=float(max(measurement.peak_memory_bytes)),
            source="measured, gloo",
        )


def lines() -> Iterator[str]:
    """The table, as it comes."""
    yield "| plan | predicted | simulated | published or measured | | simulated / that |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for found in measured():
        yield found.cells("MiB")
    for found in published():
        yield found.cells("GiB")


def main() -> None:
    """Prints it, and writes it into the page that is named."""
    table = []
    for text in lines():
        print(text, flush=True)
        table.append(text)
    for figures in sys.argv[1:]:
        put(Path(figures), "proof", "\n".join(table))


if __name__ == "__main__":
    main()
