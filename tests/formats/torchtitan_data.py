"""What strategist knows of TorchTitan as data: its names, and what its registered configurations hold.

``python -m formats.torchtitan_data`` from tests/ writes both again from what ``make frameworks`` installed.
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
"""Entries, or what they begin with, that tell of a plan."""

SILENT = ("parallelism.spmd_backend", "parallelism.context_parallel_ptrr_mask_key")
"""Those among them that tell nothing."""

LATER = (
    "training.max_context_length", "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step",
    "parallelism.num_pp_microbatches",
)  # fmt: skip
"""What came after 0.3.0: commit 73aed7f of 2026-08-20."""

HEAD = (
    "# What TorchTitan 0.3.0 accepts, what only 0.2.2 does, and what came later; written by: cd tests && python -m"
    " formats.torchtitan_data\n"
)


@cache
def shipped() -> dict[str, Any]:
    """All registered configurations of the installed package, as TorchTitan understands them."""
    found: dict[str, Any] = parsed("torchtitan", ["registered"])
    return found


def telling(said: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What tells of a plan, and is not as it is without being said."""
    return {
        name: value for name, value in sorted(said.items())
        if name.startswith(TELLING) and name not in SILENT and (name not in usual or usual[name] != value)
    }  # fmt: skip


def table() -> dict[str, dict[str, Any]]:
    """What our table holds: all but the recipes of TorchTitan's own tests."""
    found, usual = shipped()["configurations"], shipped()["usual"]
    return {
        module: {function: telling(said, usual) for function, said in sorted(functions.items())}
        for module, functions in sorted(found.items())
        if not module.startswith("torchtitan_recipes")
    }


def accepted() -> tuple[str, ...]:
    """Names of both versions, and of what came later."""
    older = parsed("torchtitan_older", ["names"])
    return (*shipped()["names"], *(name for name in older if name not in shipped()["names"]), *LATER)


def written() -> str:
    """The table as its file has it: a configuration a line."""
    modules = (
        f"  {json.dumps(module)}: {{\n"
        + ",\n".join(f"    {json.dumps(function)}: {json.dumps(said)}" for function, said in functions.items())
        + "\n  }"
        for module, functions in table().items()
    )
    return "{\n" + ",\n".join(modules) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(written(), encoding="utf-8")
    Path(NAMES / "torchtitan.txt").write_text(HEAD + "\n".join(accepted()) + "\n", encoding="utf-8")
