"""Cases of a day on a GPU: each is one process on the device, made from a plan or from a command line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import titan
from gpu.case import LIMIT_SECONDS, Case

from strategist.accuracy.case import case_of
from strategist.accuracy.row import read_rows
from strategist.cards.deck import load_deck
from strategist.contract.knobs import Candidate, Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import MoEShape
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.contract.workload import Workload
from strategist.paths import data_dir
from strategist.planning import planner
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.profiles.situation import Situation, situation

COMPILED_LIMIT_SECONDS = 120
START_SECONDS = 12
"""Python, torch's import, CUDA's context and a process group of one rank."""

KERNELS = ("matmuls", "attention", "layers", "copies", "host_update")
PYTEST = (
    "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-q", "--durations=5", "--tb=short", "--show-capture=no", "-n", "12",
    "-k", "not published",
)  # fmt: skip
"""Tests in parallel; those of published runs take most of the device's memory, and are cases of their own."""
TESTS = Path(__file__).resolve().parents[2] / "tests"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the cases are made of: the device's name, and models small enough for it. A rehearsal has a CPU's."""

    gpu: str
    kind: str
    base: str
    layers: int
    seq_len: int


def sizes(gpu: str) -> Sizes:
    """4 of an 8B's layers on a GPU (1.9 B parameters, 30 GB with their optimizer), a tiny model on a CPU."""
    kind = resolve_cluster(f"1x{gpu}").device.kind
    if kind == "cpu":
        return Sizes(gpu=gpu, kind=kind, base="tiny", layers=2, seq_len=64)
    return Sizes(gpu=gpu, kind=kind, base="llama3-8b", layers=4, seq_len=4096)


def all_cases(chosen: Sizes) -> tuple[Case, ...]:
    """Those of each session, in order of their worth."""
    return (*first(chosen), *grid(chosen), *shadows(chosen))


def first(chosen: Sizes) -> Iterator[Case]:
    """Whether anything runs at all, then what the device and its host can do."""
    yield Case(name="smoke", session="first", plan=_plan(chosen, {}, model="tiny"))
    marked = sorted(
        str(path.relative_to(TESTS.parent)) for path in TESTS.rglob("test_*.py") if "mark.gpu" in path.read_text(encoding="utf-8")
    )
    yield _command("gpu tests", "first", (*PYTEST, *marked), expected_seconds=90, limit_seconds=200)
    machine = ("-m", "strategist_runtime.machine.profile", "--out", "{out}", "--device", chosen.kind)
    yield _command("machine profile", "first", machine, expected_seconds=60, limit_seconds=100)
    yield _command("doctor", "first", ("-m", "strategist.cli.main", "doctor"), expected_seconds=15)
    for name in KERNELS:
        arguments = ("benchmarks/gpu/kernels.py", name, "--device", chosen.kind, "--out", "{out}/result.json")
        yield _command(name, "first", arguments, expected_seconds=40, limit_seconds=75)


def _command(
    name: str, session: str, arguments: tuple[str, ...], *, expected_seconds: float, limit_seconds: float = LIMIT_SECONDS
) -> Case:
    return Case(name=name, session=session, arguments=arguments, expected_seconds=expected_seconds, limit_seconds=limit_seconds)


Settings = Mapping[str, KnobValue]
VARIATIONS: dict[str, tuple[Settings, Mapping[str, Any]]] = {
    "base": ({}, {}),
    "recompute full": ({"recompute": "full"}, {}),
    "compiled": ({"compile": True}, {}),
    "offload optimizer": ({"offload": "optimizer"}, {}),
    "streamed 4": ({"offload": "streamed", "recompute": "full"}, {"global_batch": 4}),
    "float8 compiled": ({"compile": True, "float8": "tensorwise"}, {}),
    "activation offload": ({"activation_offload": True}, {}),
    "micro-batch 2": ({"micro_batch": 2}, {"global_batch": 2}),
    "recompute selective": ({"recompute": "selective"}, {}),
    "in backward": ({"optimizer_in_backward": True}, {}),
    "offload all": ({"offload": "all"}, {}),
    "expandable segments": ({"expandable_segments": True}, {}),
    "qlora": ({}, {"train": "qlora"}),
    "lora": ({}, {"train": "lora"}),
    "packed": ({}, {"document_tokens": 1024}),
    "recompute full 4": ({"recompute": "full"}, {"global_batch": 4}),
    "streamed 8": ({"offload": "streamed", "recompute": "full"}, {"global_batch": 8}),
    "streamed 1": ({"offload": "streamed", "recompute": "full"}, {}),
    "streamed 4 late": ({"offload": "streamed", "recompute": "full", "async_optimizer_step": True}, {"global_batch": 4}),
    "adamw8bit": ({}, {"optimizer": "adamw8bit"}),
    "muon": ({}, {"optimizer": "muon"}),
    "bf16 true": ({}, {"precision": "bf16-true", "optimizer": "adamw_bf16"}),
    "budget": ({"recompute": "budget", "compile": True}, {}),
    "recompute every_second_layer": ({"recompute": "every_second_layer"}, {}),
    "offload optimizer in backward": ({"offload": "optimizer", "optimizer_in_backward": True}, {}),
    "selective with activation offload": ({"recompute": "selective", "activation_offload": True}, {}),
    "every second matmul": ({"recompute": "selective", "saved_operations": "every_second_matmul+attention"}, {}),
    "float8 rowwise": ({"compile": True, "float8": "rowwise"}, {}),
    "foreach update": ({"optimizer_kernel": "foreach"}, {}),
    "fp16": ({}, {"precision": "fp16"}),
}
"""By name what differs from the base: settings, and the workload."""

EXPERTS = MoEShape(experts=8, experts_per_token=2, expert_ffn_size=1792)
"""Of the base's feed-forward an eighth each."""

PROBES = {"memory limit above need": 1 / 0.95, "memory limit below need": 1 / 1.05}
"""Devices of so many times what is simulated as reserved: one has room, the other runs out of memory."""


def grid(chosen: Sizes) -> Iterator[Case]:
    """One setting at a time, on one device."""
    for name, (settings, workload) in VARIATIONS.items():
        yield _trial(name, _plan(chosen, settings, **workload))
    yield _trial("grouped experts", _plan(chosen, {"grouped_gemm": True}, moe=EXPERTS))
    for name in PROBES if chosen.kind == "cuda" else ():
        yield _trial(name, _plan(chosen, {}))


def _trial(name: str, plan: Plan) -> Case:
    compiled = plan.candidate.knobs.compile or plan.workload.document_tokens > 0
    return Case(
        name=name,
        session="grid",
        plan=plan,
        expected_seconds=START_SECONDS + (45 if compiled else 10),
        limit_seconds=COMPILED_LIMIT_SECONDS if compiled else LIMIT_SECONDS,
    )


def with_memory_limit(case: Case) -> Case:
    """A probe's device gets the memory that its simulation asks for."""
    if case.name not in PROBES or case.plan is None or case.simulated is None or not case.simulated.peak_reserved_bytes:
        return case
    limit = round(PROBES[case.name] * case.simulated.peak_reserved_bytes)
    device = replace(case.plan.cluster.device, memory_bytes=limit, usable_memory_bytes=limit)
    return replace(case, plan=replace(case.plan, cluster=replace(case.plan.cluster, device=device)).identified())


PUBLISHED = ("tt24-t1r1", "tt24-t1r2")
SHADOWED: dict[str, tuple[str, str, Layout, Settings, tuple[int, int, int]]] = {
    "70b fsdp 32 tp 8": (
        "llama3-70b", "32x8xH100", Layout(dp_shard=32, tp=8), {"sequence_parallel": True, "recompute": "full"}, (8192, 1, 1),
    ),
    "405b pp 8 tp 8 fsdp 8": (
        "llama3-405b", "64x8xH100", Layout(pp=8, dp_shard=8, tp=8),
        {"sequence_parallel": True, "no_sync": True, "recompute": "full"}, (8192, 1, 8),
    ),
    "moe ep 8": ("mixtral-8x7b", "2x8xH100", Layout(dp_shard=16, ep=8), {"recompute": "full"}, (4096, 1, 1)),
}  # fmt: skip
"""Model, devices, layout, settings; tokens of a sequence, rows of a micro-batch, and micro-batches."""


LOOPS: dict[str, Settings] = {"eager": {}, "compiled": {"compile": True}, "recomputed": {"recompute": "full"}, "torchtitan": {}}
"""Loops of ``by_hand.py``, with the settings of the plans that they equal."""


def shadows(chosen: Sizes) -> Iterator[Case]:
    """One rank of large runs, and the same steps by other hands."""
    for how, settings in LOOPS.items():
        arguments = ("benchmarks/gpu/by_hand.py", how, "--device", chosen.kind, "--out", "{out}/result.json", "--plan", "{plan}")
        yield Case(
            name=f"beside {how}", session="shadow", arguments=arguments, plan=_plan(chosen, settings),
            expected_seconds=45, limit_seconds=COMPILED_LIMIT_SECONDS,
        )  # fmt: skip
    for name, plan in _published() if chosen.kind == "cuda" else _small():
        yield Case(
            name=name, session="shadow", plan=plan, rank=0, expected_seconds=40, limit_seconds=LIMIT_SECONDS,
            settings=TrialSettings(steps=3, warmup_steps=1),
        )  # fmt: skip


def _published() -> Iterator[tuple[str, Plan]]:
    table = read_rows(data_dir("profiles") / "measurements" / "published" / titan.TABLE)
    for row in table:
        if row.row_id in PUBLISHED:
            yield row.row_id, titan.plan_of(case_of(row), expandable=False)
    for name, (model, gpus, layout, knobs, (seq_len, rows, count)) in SHADOWED.items():
        batch = rows * count * layout.data_ranks
        request_situation = situation(Request(model=model, gpus=gpus, workload=Workload(seq_len=seq_len, global_batch=batch)))
        yield name, _priced(request_situation, with_settings(Candidate(layout=layout, knobs=Knobs(micro_batch=rows)), knobs))


def _small() -> Iterator[tuple[str, Plan]]:
    for name, layout in {"fsdp 4": Layout(dp_shard=4), "tp 2 fsdp 2": Layout(dp_shard=2, tp=2)}.items():
        request_situation = situation(Request(model="tiny", gpus="4xcpu", workload=Workload(seq_len=64, global_batch=4)))
        yield name, _priced(request_situation, Candidate(layout=layout, knobs=Knobs()))


def _plan(chosen: Sizes, settings: Settings, model: str = "", moe: MoEShape | None = None, **workload: Any) -> Plan:
    """A plan of one device, the base with some settings changed; it updates in one kernel, as the loops written by hand do."""
    settings = {"optimizer_kernel": "fused", **settings}
    values = {"seq_len": chosen.seq_len, "global_batch": 1, **workload}
    shape = resolve_model(model or chosen.base).shape
    layers = min(shape.layers, chosen.layers)
    request = Request(model=shape.name, gpus=f"1x{chosen.gpu}", workload=Workload(**values))
    shape = replace(shape, layers=layers, name=f"{shape.name} of {layers} layers", moe=moe)
    return _priced(situation(request, shape), with_settings(Candidate(layout=Layout(), knobs=Knobs()), settings))


def _priced(request_situation: Situation, chosen: Candidate) -> Plan:
    return planner.price_candidate(request_situation, chosen, deck=load_deck())
