"""Devices compared: steps of one candidate differ by no more than the rates of the hardware."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.stack import NATIVE
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats
from strategist.cost.price import price
from strategist.cost.shipped_calibrations import calibration_for
from strategist.expr.columns import Columns
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.profiles.stacks import load_stack
from strategist.programs.backends import load_backend
from strategist.search.candidate_tables import candidate_table
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

SIZES = np.logspace(7, 15, 200)
WORKLOAD = Workload(seq_len=4096, global_batch=256)
PAIRS = (
    ("H100", "H200"), ("A100-40GB", "A100-80GB"), ("B200", "B300"), ("H100", "A100-80GB"), ("H100", "B200"), ("H200", "MI300X"),
    ("GB200", "GB300"), ("V100-32GB", "A100-80GB"), ("RTX4090", "RTX5090"),
)  # fmt: skip
SPEED = 1.25


def cluster(device: str, nodes: int = 2) -> Cluster:
    """Nodes of eight devices, whatever the device's usual node."""
    return replace(resolve_cluster(f"{nodes}x8x{device}"), gpus_per_node=8, nodes=nodes)


def candidates(model: str, on: Cluster, count: int, seed: int = 0) -> Columns:
    """Random candidates; memory does not matter here."""
    generator = np.random.default_rng(seed)
    blocks = space(resolve_model(model).shape, on, WORKLOAD, SpaceConstraints(fix={}, allow=(), backend=load_backend("any")))
    columns = candidate_table(blocks.take(generator.choice(len(blocks), min(len(blocks), 40), replace=False)))
    return columns.take(generator.choice(columns.rows, min(columns.rows, count), replace=False))


def seconds(model: str, on: Cluster, columns: Columns, workload: Workload = WORKLOAD) -> Floats:
    return price(resolve_model(model).shape, on, workload, columns, calibration_for(NATIVE), NATIVE).step_seconds


def rates(on: Cluster) -> dict[str, Floats]:
    """All rates that a step depends on, and 1 for parts that do not depend on hardware."""
    device = on.device
    types = {"bf16": device.peak("bf16"), "fp32": device.peak("fp32")}
    matmuls = {name: np.array([peak * device.matmul.at(size) for size in SIZES]) for name, peak in types.items()}
    gain = device.float8_gain or device.peak_flops.get("fp8", device.peak("bf16")) / device.peak("bf16")
    quick = {"fp8": np.array([gain * device.peak("bf16") * device.matmul.at(size / gain) for size in SIZES])}
    ones = {
        "attention": device.peak("bf16") * device.attention_efficiency,
        "memory": device.memory_bytes_per_second * device.memory_efficiency,
        "launch": 1 / device.launch_seconds, "host": on.host_bytes_per_second, "host optimizer": on.host_optimizer_bytes_per_second,
        "else": 1.0,
    }  # fmt: skip
    links = chain.from_iterable(
        [
            (f"{link.fabric} bandwidth {at}", link.bytes_per_second), (f"{link.fabric} pair {at}", link.pair_bytes_per_second),
            (f"{link.fabric} all-reduce {at}", link.reduce_bytes_per_second or link.bytes_per_second),
            (f"{link.fabric} latency {at}", 1 / link.latency_seconds),
        ]
        for at, link in enumerate((on.intra, on.inter))
    )  # fmt: skip
    named = [value for _, value in links]
    return {**matmuls, **quick, **{name: np.array([value]) for name, value in ones.items()}, "links": np.array(named)}


@pytest.mark.parametrize("model", ["8b", "mixtral-8x7b"])
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda name: name)
def test_step_times_on_two_devices_differ_by_no_more_than_their_rates(model: str, one: str, other: str) -> None:
    here, there = cluster(one), cluster(other)
    columns = candidates(model, here, 300)
    ratios = seconds(model, here, columns) / seconds(model, there, columns)
    before, after = rates(here), rates(there)
    extremes = np.concatenate([after[name] / before[name] for name in before])
    assert ratios.min() >= extremes.min() * (1 - 1e-9)
    assert ratios.max() <= extremes.max() * (1 + 1e-9)


@pytest.mark.parametrize(("one", "other"), [("H100", "H200"), ("A100-40GB", "A100-80GB"), ("A100-80GB", "A800-80GB")])
def test_devices_with_the_same_chip_share_their_curves(one: str, other: str) -> None:
    here, there = cluster(one).device, cluster(other).device
    assert (here.matmul.points, here.attention_efficiency) == (there.matmul.points, there.attention_efficiency)


def with_higher_rates(device: Device, **shares: float) -> Device:
    """The device with some rates multiplied."""
    return replace(device, **{name: getattr(device, name) * share for name, share in shares.items()})


def faster(link: Link) -> Link:
    """A link with each bandwidth a quarter higher."""
    names = ("bytes_per_second", "pair_bytes_per_second", "reduce_bytes_per_second", "line_bytes_per_second")
    return replace(link, **{name: SPEED * value for name in names if (value := getattr(link, name))})


@pytest.mark.parametrize(("device", "kernels"), [("H100", "portable"), ("B200", "tuned"), ("GB300", "tuned")])
def test_torchtitan_of_2025_prefers_tuned_attention_from_blackwell_on(device: str, kernels: str) -> None:
    """But not for documents, which it masks by FlexAttention."""
    model, on = resolve_model("8b").shape, cluster(device, nodes=1)
    columns = candidates("8b", on, 4)

    def steps(kernels: str, workload: Workload) -> list[float]:
        stack = replace(NATIVE, attention_kernels=kernels)
        found: list[float] = price(model, on, workload, columns, stack=stack).step_seconds.tolist()
        return found

    packed = replace(WORKLOAD, document_tokens=1024)
    assert steps("tuned_on_blackwell", WORKLOAD) == steps(kernels, WORKLOAD)
    assert steps("tuned_on_blackwell", packed) == steps("portable", packed)
    assert load_stack("torchtitan-2025").attention_kernels == "tuned_on_blackwell"


def test_faster_hardware_never_makes_a_step_longer() -> None:
    on = cluster("H100")
    device = on.device
    peaks = {name: SPEED * peak for name, peak in device.peak_flops.items()}
    curve = Curve(points=tuple((size, SPEED * share) for size, share in device.matmul.points), origin="")
    better = {
        "memory": replace(on, device=with_higher_rates(device, memory_bytes_per_second=SPEED)),
        "peak": replace(on, device=replace(device, peak_flops=peaks)),
        "matmul": replace(on, device=replace(device, matmul=curve)),
        "attention": replace(on, device=with_higher_rates(device, attention_efficiency=SPEED)),
        "launch": replace(on, device=with_higher_rates(device, launch_seconds=1 / SPEED)),
        "links in a node": replace(on, intra=faster(on.intra)),
        "links between nodes": replace(on, inter=faster(on.inter)),
        "latency": replace(on, inter=replace(on.inter, latency_seconds=on.inter.latency_seconds / SPEED)),
        "host": replace(on, host_bytes_per_second=SPEED * on.host_bytes_per_second),
    }
    for model in ("8b", "mixtral-8x7b"):
        columns = candidates(model, on, 400)
        before = seconds(model, on, columns)
        longer = {name: (seconds(model, there, columns) / before).max() for name, there in better.items()}
        assert {name: worst for name, worst in longer.items() if worst > 1 + 1e-9} == {}


def test_doubling_nodes_and_batch_never_shortens_a_step() -> None:
    few, many = cluster("H100"), cluster("H100", nodes=4)
    columns = candidates("8b", few, 400)
    doubled = replace(columns, values={**columns.values, "layout.dp_replicate": 2 * columns.values["layout.dp_replicate"]})
    before = seconds("8b", few, columns)
    after = seconds("8b", many, doubled, replace(WORKLOAD, global_batch=2 * WORKLOAD.global_batch))
    assert (after / before).min() >= 1 - 1e-9
