"""Link rates from logs of nccl-tests: known rates are recovered, and invalid logs raise a one-line error."""

from math import log2
from pathlib import Path

import pytest

from strategist.errors import FileError, InputError
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.nccl_tests import write

SIZES = (0, 8, 2**16, 2**20, 2**26, 2**30, 2**33)


def log(
    folder: Path, collective: str, nodes: int, rate: float, hop: float, *, named: bool = True, gpu: str = "NVIDIA H100 80GB HBM3"
) -> Path:
    """The output of nccl-tests for ``nodes`` x 8 ranks with ``hop`` seconds per hop and ``rate`` bytes/s."""
    ranks, word = 8 * nodes, "none" if collective == "all_gather" else "sum"
    twice = 2 if collective == "all_reduce" else 1
    hops = 2 * min(ranks - 1, 2 * log2(ranks)) if twice == 2 else ranks - 1
    lines = [f"# Collective test starting: {collective}_perf"] if named else []
    lines += ["# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20", "# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid {99 + rank} on node-{rank // 8} device {rank % 8:2} [0x1b] {gpu}" for rank in range(ranks)
    ]
    lines += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    ]
    for size in SIZES:
        share = twice * (ranks - 1) / ranks
        seconds = hops * hop + share * size / rate
        found = f"{seconds * 1e6:8.2f} {size / seconds / 1e9:7.2f} {share * size / seconds / 1e9:7.2f}      0"
        lines.append(f"{size:12} {size // 4:13}     float    {word}      -1 {found} {found}")
    path = folder / f"{collective}-{nodes}.log"
    path.write_text("\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 81.9", ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize("named", [True, False])
def test_rates_and_latencies_are_recovered_from_logs(tmp_path: Path, named: bool) -> None:
    """A ring over 16 nodes has 15 hops between nodes and 112 inside; two doublings beyond four nodes cost 3 % each."""
    inside, between, scaling_loss = 3e-6, 12e-6, 0.97**2
    hop = (15 * between + 112 * inside) / 127
    logs = [
        log(tmp_path, "all_gather", 1, 360e9, inside, named=named),
        log(tmp_path, "all_reduce", 1, 470e9, inside, named=named),
        log(tmp_path, "all_gather", 16, 8 * 45e9 * scaling_loss, hop, named=named),
        log(tmp_path, "all_gather", 4, 8 * 45e9, (3 * between + 28 * inside) / 31, named=named),
    ]
    target = tmp_path / "cluster.yaml"
    write(logs, target)
    found = resolve_cluster(str(target))
    assert (found.nodes, found.gpus_per_node, found.device.name) == (16, 8, "H100-SXM")
    assert found.intra.bytes_per_second == pytest.approx(360e9, rel=0.01)
    assert found.intra.reduce_bytes_per_second == pytest.approx(470e9, rel=0.01)
    assert found.intra.latency_seconds == pytest.approx(inside, rel=0.02)
    assert found.inter.bytes_per_second == pytest.approx(45e9, rel=0.01)
    assert found.inter.latency_seconds == pytest.approx(between, rel=0.05)
    assert found.inter.lost_per_doubling == pytest.approx(0.03, abs=0.003)
    assert found.inter.line_bytes_per_second == 50e9


def test_an_all_reduce_log_does_not_change_the_gather_rate(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    write([log(tmp_path, "all_reduce", 1, 470e9, 3e-6)], target)
    found = resolve_cluster(str(target))
    usual = resolve_cluster("8xH100")
    assert found.intra.bytes_per_second == usual.intra.bytes_per_second
    assert found.inter == usual.inter


def test_a_link_faster_than_the_profiles_line_rate_has_no_line_rate(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    write([log(tmp_path, "all_gather", 2, 8 * 90e9, 5e-6)], target)
    assert resolve_cluster(str(target)).inter.line_bytes_per_second is None


def test_invalid_logs_raise_a_one_line_error(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("all is well\n", encoding="utf-8")
    good, other = log(tmp_path, "all_gather", 1, 360e9, 3e-6), tmp_path / "others"
    other.mkdir()
    for wrong, words in (
        ([tmp_path / "missing.log"], "cannot be read"),
        ([text], "has no lines '# Rank 0"),
        ([log(other, "alltoall", 1, 360e9, 3e-6)], "is of no collective that prices take"),
        ([good, log(other, "all_gather", 2, 360e9, 3e-6, gpu="NVIDIA A100-SXM4-80GB")], "give logs of the same nodes"),
        ([log(other, "all_gather", 1, 360e9, 3e-6, gpu="Abacus 3000")], "Abacus 3000"),
    ):
        with pytest.raises((InputError, FileError), match=words):
            write(wrong, tmp_path / "out.yaml")
    with pytest.raises(InputError, match=r"ends in \.yaml"):
        write([good], tmp_path / "out.txt")
