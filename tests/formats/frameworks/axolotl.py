"""Axolotl's own validation of its configurations: ``axolotl.py check FILE...`` prints the settings of each file;
``axolotl.py names`` the accepted names. Also needs the packages of LLaMA-Factory."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import axolotl
import yaml
from axolotl.utils.config import validate_config
from axolotl.utils.dict import DictDefault
from axolotl.utils.schemas.config import AxolotlInputConfig
from axolotl.utils.schemas.fsdp import FSDPConfig
from pydantic import BaseModel

ABLE = {"bf16": True, "fp8": False, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90", "tf32": True}
PRINTED = (
    "micro_batch_size", "gradient_accumulation_steps", "sequence_len", "dp_shard_size", "dp_replicate_size", "tensor_parallel_size",
    "context_parallel_size", "adapter", "lora_r", "load_in_4bit", "gradient_checkpointing", "activation_offloading", "bf16",
    "fsdp_version", "fsdp_config",
)  # fmt: skip


def validated(path: str) -> dict[str, Any]:
    """The validated settings of one file; raises if Axolotl refuses it."""
    data = DictDefault(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    found = validate_config(data, capabilities=dict(ABLE), env_capabilities={"torch_version": "2.13.0"})
    return {name: found.get(name) for name in PRINTED}


def names(model: type[BaseModel] = AxolotlInputConfig, prefix: str = "") -> list[str]:
    """The names of a schema; a pattern for a section with free keys."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        inner = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
        aliases = getattr(field.validation_alias, "choices", [])
        found += [prefix + name, *(f"{prefix}{alias}" for alias in aliases)]
        if inner is not None and inner is not model:
            found += names(inner, f"{prefix}{name}.")
        elif "dict" in str(field.annotation):
            found.append(f"{prefix}{name}.*")
    return sorted(set(found))


def added() -> Iterator[str]:
    """The names that its plugins add, and FSDP's with their old prefix, which Axolotl removes."""
    for path in sorted(Path(axolotl.__file__).parent.glob("integrations/*/args.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Args"):
                fields = (item for item in node.body if isinstance(item, ast.AnnAssign))
                yield from (item.target.id for item in fields if isinstance(item.target, ast.Name))
    yield from (f"fsdp_config.fsdp_{name}" for name in (*FSDPConfig.model_fields, "sharding_strategy"))


if __name__ == "__main__":
    print(json.dumps(sorted({*names(), *added()}) if sys.argv[1] == "names" else [validated(path) for path in sys.argv[2:]]))
