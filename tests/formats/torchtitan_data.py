"""Our data on TorchTitan: its names, and the settings of its registered configurations.

``python -m formats.torchtitan_data`` from tests/ rewrites both from the installation of ``make frameworks``.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from formats.frameworks import parsed
from formats.names import NAMES

TABLE = NAMES.parent / "registered" / "torchtitan.json"
TELLING = (
    "training.local_batch_size", "training.global_batch_size", "training.seq_len", "training.enable_cpu_offload", "training.dtype",
    "training.disable_cuda_graphs", "training.mixed_precision", "parallelism", "compile.enable", "compile.components",
    "activation_checkpoint", "loss", "model",
    "optimizer", "Float8LinearConverter", "LoRAConverter",
)  # fmt: skip
"""Entries, or prefixes of entries, that affect a plan."""

SILENT = ("parallelism.spmd_backend", "parallelism.context_parallel_ptrr_mask_key")
"""Exceptions, which do not affect a plan."""

LATER = (
    "training.max_context_length", "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step",
    "parallelism.num_pp_microbatches",
)  # fmt: skip
"""Names added after 0.3.0: commit 73aed7f of 2026-08-20."""

HEAD = (
    "# What TorchTitan 0.3.0 accepts, what only 0.2.2 does, and what came later; written by: cd tests && python -m"
    " formats.torchtitan_data\n"
)


@cache
def shipped() -> dict[str, Any]:
    """All registered configurations of the installed package, as TorchTitan reads them."""
    found: dict[str, Any] = parsed("torchtitan", ["registered"])
    return found


def relevant(entries: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that affect a plan and differ from their defaults."""
    return {
        name: value for name, value in sorted(entries.items())
        if name.startswith(TELLING) and name not in SILENT and (name not in usual or usual[name] != value)
    }  # fmt: skip


def table() -> dict[str, dict[str, Any]]:
    """The content of our table: everything except the recipes of TorchTitan's own tests."""
    found, usual = shipped()["configurations"], shipped()["usual"]
    return {
        module: {function: relevant(entries, usual) for function, entries in sorted(functions.items())}
        for module, functions in sorted(found.items())
        if not module.startswith("torchtitan_recipes")
    }


def accepted() -> tuple[str, ...]:
    """Names of both versions, and later ones."""
    older = parsed("torchtitan_older", ["names"])
    return (*shipped()["names"], *(name for name in older if name not in shipped()["names"]), *LATER)


def written() -> str:
    """The table as text, one configuration per line."""
    modules = (
        f"  {json.dumps(module)}: {{\n"
        + ",\n".join(f"    {json.dumps(function)}: {json.dumps(entries)}" for function, entries in functions.items())
        + "\n  }"
        for module, functions in table().items()
    )
    return "{\n" + ",\n".join(modules) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(written(), encoding="utf-8")
    Path(NAMES / "torchtitan.txt").write_text(HEAD + "\n".join(accepted()) + "\n", encoding="utf-8")
