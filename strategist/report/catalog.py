"""Known models and devices, as tables and as single reports."""

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.model import ModelShape, NamedModel
from strategist.report.setting_text import percent
from strategist.report.text_blocks import bullets, columns, heading, pairs, section
from strategist.units import show_bytes, show_count, show_money, show_seconds


def models_report(models: Sequence[NamedModel]) -> Table:
    """A line per model."""
    table = columns("model", "parameters", "active", "layers", "hidden", "heads", "KV heads", "vocab", left=["model"])
    for shape in (model.shape for model in models):
        figures = (shape.layers, shape.hidden_size, shape.heads, shape.kv_heads, shape.vocab_size)
        counts = (show_count(shape.parameters), show_count(shape.active_parameters))
        table.add_row(shape.name, *counts, *(f"{figure:,}" for figure in figures))
    return table


def model_report(model: NamedModel) -> Group:
    """One model: its shape, and the model states of each kind of training."""
    rows = [*_shape(model.shape), *([("assumed", model.note)] if model.note else [])]
    states = pairs((name, show_bytes(size)) for name, size in model.state_bytes.items())
    return Group(
        Text(model.shape.name, "bold"),
        pairs(rows),
        section(heading("Model states", "by training mode, without activations"), states),
    )


def _shape(shape: ModelShape) -> Iterator[tuple[str, str]]:
    yield "parameters", f"{shape.parameters:,}, of which a token uses {shape.active_parameters:,}"
    yield "layers", f"{shape.layers} of width {shape.hidden_size:,}"
    if shape.mla is not None:
        yield "attention", f"{shape.heads} heads, latent keys and values of {shape.mla.key_value_rank}"
    else:
        yield "attention", f"{shape.heads} heads of {shape.head_size}, {shape.kv_heads} of keys and values"
    if shape.sliding_window:
        yield "window", f"{shape.sliding_window:,} tokens"
    gated = "gated" if shape.ffn_matrices == 3 else "two matrices"
    yield "feed-forward", f"{shape.ffn_size:,}, {gated}"
    if shape.moe is not None:
        moe = shape.moe
        shared = f", {moe.shared_experts} shared" if moe.shared_experts else ""
        yield "experts", f"{moe.experts} of {moe.expert_ffn_size:,}, {moe.experts_per_token} a token{shared}"
    yield "vocabulary", f"{shape.vocab_size:,}" + (", head and embedding in one" if shape.tied_embeddings else "")
    learned = f"learned, {shape.learned_positions:,}"
    yield "positions", learned if shape.learned_positions else f"rotary, theta {shape.rope_theta:,.0f}"


def devices_report(clusters: Sequence[Cluster]) -> Table:
    """A line per device, with its usual node: number of GPUs, links, network."""
    titles = ("device", "usable", "bf16 TFLOPS", "mem GB/s", "GPUs", "link GB/s", "net GB/s", "$/h")
    table = columns(*titles, left=["device"])
    for cluster in clusters:
        device = cluster.device
        rates = (device.peak("bf16") / 1e12, device.memory_bytes_per_second / 1e9)
        links = (cluster.intra.bytes_per_second / 1e9, cluster.inter.bytes_per_second / 1e9)
        price = "-" if device.price_per_hour is None else show_money(device.price_per_hour)
        usable = show_bytes(device.usable_memory_bytes)
        figures = (f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", str(cluster.gpus_per_node), *(f"{rate:,.3g}" for rate in links))
        table.add_row(device.name, usable, *figures, price)
    return table


def device_report(cluster: Cluster) -> Group:
    """One device and its usual node, with the source of each figure."""
    return Group(
        Text(cluster.device.name, "bold"),
        pairs(_device(cluster.device)),
        section(heading("Its usual node"), pairs(_node(cluster))),
        section(heading("Assumed"), bullets(cluster.assumed)),
    )


def _device(device: Device) -> Iterator[tuple[str, str]]:
    yield "memory", f"{show_bytes(device.memory_bytes)}, of which {show_bytes(device.usable_memory_bytes)} can be used"
    yield "peak", ", ".join(f"{name} {peak / 1e12:,.4g} TFLOPS" for name, peak in device.peak_flops.items())
    yield "memory rate", f"{device.memory_bytes_per_second / 1e9:,.0f} GB/s, {percent(device.memory_efficiency)} in use"
    yield "matmul", _curve(device.matmul)
    yield "attention", f"{percent(device.attention_efficiency)} of the peak"
    yield "launch", f"{show_seconds(device.launch_seconds)} a kernel"
    if device.power_watts is not None:
        yield "power", f"{device.power_watts:g} W at most"
    if device.price_per_hour is not None:
        yield "price", f"{show_money(device.price_per_hour)} an hour"
    yield "source", device.source


def _curve(curve: Curve) -> str:
    points = ", ".join(f"{percent(share)} at {size:.0e}" for size, share in curve.points)
    return f"of the peak, by FLOPs of a matmul: {points}; {curve.origin}"


def _node(cluster: Cluster) -> Iterator[tuple[str, str]]:
    yield "devices", str(cluster.gpus_per_node)
    for name, link in (("links", cluster.intra), ("between nodes", cluster.inter)):
        yield name, _link(link)
    yield "to the host", f"{cluster.host_bytes_per_second / 1e9:,.3g} GB/s a device"


def _link(link: Link) -> str:
    rate = f"{link.bytes_per_second / 1e9:,.3g} GB/s of a collective, {show_seconds(link.latency_seconds)} a hop"
    return f"{link.name}: {rate}" + (f"; {link.source}" if link.source else "")
