"""Tables of published runs for tests: variants of one run of a small Llama on eight H100."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from strategist import api
from strategist.accuracy.prediction_errors import Accuracy

ROW = {
    "row_id": "r", "model": "Llama-like 1B",
    "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 32, "ffn": 8192, "vocab": 131072,
    "seq_len": 4096, "gpu": "H100", "gpu_mem_gb": 80, "n_gpus": 8, "gpus_per_node": 8, "dp_replicate": 1, "dp_shard": 8,
    "zero_stage": 3, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 2, "global_batch": 256, "ac_mode": "none", "precision": "bf16",
    "step_time_s": 5.0, "peak_mem_gib": 40.0, "oom": 0,
}  # fmt: skip
LAYOUTS = tuple({"row_id": f"tp{tp}", "tp": tp, "dp_shard": 8 // tp} for tp in (1, 2, 4, 8))
"""Changes that make a sweep of four layouts."""

Changes = Mapping[str, object]


def write(folder: Path, name: str, rows: Iterable[Changes]) -> Path:
    """Writes a table of the row with changes."""
    file = folder / f"{name}.csv"
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, [*ROW, "mem_kind", "notes"])
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return file


def with_errors(folder: Path, name: str, ratios: Iterable[float], rows: Iterable[Changes] = LAYOUTS) -> Accuracy:
    """Accuracy of runs whose published step times and memory are the predictions divided by ``ratios``."""
    rows = list(rows)
    predicted = api.accuracy(write(folder, name, rows)).priced_cases
    made = [
        {**row, "step_time_s": item.step_seconds / ratio, "peak_mem_gib": item.peak_memory_bytes / 2**30 / ratio}
        for row, item, ratio in zip(rows, predicted, ratios, strict=True)
    ]
    return api.accuracy(write(folder, name, made))
