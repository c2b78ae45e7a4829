"""Shipped devices and their default nodes."""

import pytest

from strategist.errors import FileError
from strategist.files import yaml_file
from strategist.profiles import catalog, hardware
from strategist.units import GIB


@pytest.mark.parametrize("stem", hardware.device_names())
def test_every_device_has_plausible_figures_and_sources(stem):
    device, box = hardware.load_device(stem)
    assert device.source
    assert box.source
    assert box.note
    assert device.matmul.origin.split(":")[0] in ("measured", "fitted", "assumed")
    for link in (box.intra, box.inter):
        assert link.source
        several = link.meshed_devices > 0  # a link between each pair of devices
        assert link.bytes_per_second <= 2 * link.pair_bytes_per_second or several
    shares = [share for _, share in device.matmul.points]
    assert shares == sorted(shares)
    assert shares[-1] <= 1
    assert 0 < device.attention_efficiency <= 1
    assert 0 < device.memory_efficiency <= 1
    assert 0 <= device.allocator_slack < 0.3
    assert 0.25 * GIB <= device.memory_bytes - device.usable_memory_bytes <= 0.16 * device.memory_bytes
    assert device.peak("fp32") <= device.peak("tf32")
    assert box.inter.bytes_per_second <= box.intra.bytes_per_second


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("h100", "h100-sxm"),
        ("H100-80GB", "h100-sxm"),
        ("RTX4090", "rtx4090"),
        ("RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
        ("a100-40gb", "a100-40gb"),
        ("A100", "a100-80gb"),
        ("H100 PCIe", "h100-pcie"),
        ("mi300x", "mi300x"),
        ("cpu", "cpu"),
        ("H200", "h200"),
        ("A100-SXM4-80GB", "a100-80gb"),  # nvidia-smi's spelling
        ("H100 80GB HBM3", "h100-sxm"),
        ("RTX A6000", "a6000"),
        ("V100-SXM2-16GB", "v100-16gb"),
        ("nothing", None),
    ],
)
def test_device_names_are_matched_loosely(name, stem):
    assert hardware.find_device(name) == stem


@pytest.mark.parametrize(
    ("gpu", "memory", "stem"),
    [
        ("A100", 40, "a100-40gb"),
        ("A100", 80.0, "a100-80gb"),
        ("A100", None, "a100-80gb"),
        ("A100 (DGX)", None, "a100-80gb"),
        ("A100 40GB SXM4", 40, "a100-40gb"),
        ("NVIDIA A100-SXM4-40GB", None, "a100-40gb"),
        ("A100 PCIe", 80, "a100-pcie-80gb"),
        ("A100-PCIE-40GB", None, "a100-pcie-40gb"),
        ("A10", 24, "a10"),
        ("A10G", 24, "a10g"),
        ("A800 SXM", 80, "a800-80gb"),
        ("V100", 16, "v100-16gb"),
        ("V100", 32, "v100-32gb"),
        ("V100-SXM2-16GB", 16, "v100-16gb"),
        ("H100", 80, "h100-sxm"),
        ("H100 SXM5", 80, "h100-sxm"),
        ("H100 PCIe", None, "h100-pcie"),
        ("NVIDIA H100 NVL", None, "h100-nvl"),
        ("NVIDIA H20", None, "h20"),
        ("NVIDIA H20-3e", 141, None),  # another memory
        ("NVIDIA GH200 120GB", None, "gh200"),  # nvidia-smi counts the host's memory
        ("NVIDIA L20", 48, "l20"),
        ("NVIDIA L40", 48, "l40"),
        ("H100 SXM HBM2e 96GB 500W (Grand Teton)", 96, "h100-96gb"),
        ("GB200", 192, "gb200"),  # a program sees 184
        ("B300", 288, "b300"),
        ("AMD MI100", None, "mi100"),
        ("AMD W7800", None, "w7800"),
        ("RTX 3090 Ti", 24, "rtx3090ti"),
        ("RTX 4090", 24, "rtx4090"),
        ("RTX 4090 48GB (modified)", 48, "rtx4090-48gb"),
        ("RTX 5060 Ti", 16, "rtx5060ti-16gb"),
        ("RTX 4070 Ti SUPER", 16, "rtx4070ti-super"),
        ("NVIDIA GeForce RTX 4080", 16, "rtx4080"),
        ("RTX PRO 6000 Blackwell", 96, "rtx-pro-6000"),
        ("RTX 6000 Ada", 48, "rtx6000-ada"),
        ("Quadro RTX 6000", 24, "quadro-rtx6000"),
        ("TITAN RTX", 24, "titan-rtx"),
        ("A100", 64, None),  # a variant of one machine without a profile
        ("A10", 40, None),
        ("RTX 4090 Laptop GPU", 16, None),
        ("Ascend 910B", None, None),
        ("", None, None),
    ],
)
def test_devices_of_published_measurements_are_found_by_name_and_memory(gpu, memory, stem):
    assert hardware.find_measured_device(gpu, memory) == stem


def test_every_device_is_found_by_its_own_name_and_memory():
    for stem in hardware.device_names():
        device, _ = hardware.load_device(stem)
        assert hardware.find_measured_device(device.name, device.memory_bytes / GIB) == stem


def test_every_gpu_has_a_power_limit():
    for stem in hardware.device_names():
        device, _ = hardware.load_device(stem)
        assert (device.power_watts is None) == (device.kind == "cpu")
        assert device.power_watts is None or 50 <= device.power_watts <= 1500


def test_aliases_resolve_to_devices_and_are_unique():
    names = hardware.other_names()
    assert set(names["memory"].values()) | set(names["aliases"].values()) <= set(hardware.device_names())
    spelled = [catalog.normalized_name(name) for name in (*hardware.device_names(), *names["aliases"])]
    assert len(spelled) == len(set(spelled))


def test_each_device_is_found_by_its_own_name():
    for stem in hardware.device_names():
        assert hardware.find_device(hardware.load_device(stem)[0].name) == stem


def test_a_memory_size_resolves_to_a_device_of_that_size():
    for size, stem in hardware.other_names()["memory"].items():
        assert hardware.load_device(stem)[0].memory_bytes == int(size.removesuffix("GB")) * GIB


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("memory_bytes: 24GiB", {"memory_bytes": 24 * GIB}),
        ("memory_bytes: 24GB", {"memory_bytes": 24 * GIB}),
        (
            "link: {bytes_per_second: 25 GB/s, latency_seconds: 5 ms}",
            {"link": {"bytes_per_second": 25e9, "latency_seconds": 0.005}},
        ),
        ("peak_flops: {bf16: 2 TFLOPS, fp32: 1e12}", {"peak_flops": {"bf16": 2e12, "fp32": 1e12}}),
        ("name: 24GiB", {"name": "24GiB"}),
        ("power_watts: 1.2 kW", {"power_watts": 1200.0}),
    ],
)
def test_quantities_are_read_by_the_unit_in_their_key(text, data):
    assert hardware.quantities(yaml_file.parse(text), ()) == data


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nmemory_bytes: 24 parrots",
        "a: 1\nbytes_per_second: 25 GB",
        "a: 1\nbytes_per_second: 0",
        "a: 1\nbytes_per_second: 0 GB/s",
        "a: 1\nlatency_seconds: -1",
        "a: 1\npower_watts: 0 W",
        "a: 1\npower_watts: 3 horses",
        "a: 1\nmemory_efficiency: 1.5",
        "a: 1\npeak_flops: {fp32: fast}",
    ],
)
def test_an_invalid_quantity_is_refused_with_its_line(text):
    with pytest.raises(FileError) as error:
        hardware.quantities(yaml_file.parse(text, "my.yaml"), ())
    assert str(error.value).startswith("my.yaml:2:")


def test_fewer_devices_have_more_bandwidth_of_shared_links() -> None:
    box = hardware.load_device("rtx4090")[1]
    assert box.shared_by(8) == box
    four, two = box.shared_by(4), box.shared_by(2)
    assert four.host_bytes_per_second == two.host_bytes_per_second == 2 * box.host_bytes_per_second
    assert four.intra == box.intra
    assert two.intra.bytes_per_second == box.intra.pair_bytes_per_second
    assert hardware.load_device("h100-sxm")[1].shared_by(2).intra == hardware.load_device("h100-sxm")[1].intra


@pytest.mark.parametrize("stem", [stem for stem in hardware.device_names() if stem != "cpu"])
def test_every_shipped_link_states_its_line_rate(stem):
    _, box = hardware.load_device(stem)
    assert box.intra.bytes_per_second <= box.intra.line_bytes_per_second
    assert box.inter.bytes_per_second <= box.inter.line_bytes_per_second
    assert box.host_bytes_per_second <= box.host_line_bytes_per_second
