"""Symbols of cards are resolved against the installed torch; undecidable ones are reported as unknown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from strategist.contract import codec
from strategist.contract.torch_symbol import Reference, ReferenceOutcome, References

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

FSDP = "torch.distributed.fsdp"
FOUND, UNKNOWN, NO_SYMBOL, NO_PARAMETER = (
    ReferenceOutcome.FOUND, ReferenceOutcome.UNKNOWN, ReferenceOutcome.NO_SYMBOL, ReferenceOutcome.NO_PARAMETER,
)  # fmt: skip
SYMBOLS = {
    "function": (f"{FSDP}.fully_shard", "reshard_after_forward", FOUND),
    "method": (f"{FSDP}.FSDPModule.set_requires_gradient_sync", "requires_gradient_sync", FOUND),
    "private method": ("torch.distributed.device_mesh.DeviceMesh._unflatten", "mesh_sizes", FOUND),
    "property": ("torch.distributed.device_mesh.DeviceMesh.ndim", "", FOUND),
    "field": (f"{FSDP}.MixedPrecisionPolicy", "reduce_dtype", FOUND),
    "re-exported class": (f"{FSDP}.MixedPrecisionPolicy", "", FOUND),
    "switch of a module": ("torch._functorch.config", "activation_memory_budget", FOUND),
    "constant": ("torch.float8_e4m3fn", "", FOUND),
    "name of a module and of a function": ("torch.utils.checkpoint.checkpoint", "use_reentrant", FOUND),
    "in a program": ("torch.distributed.run.main", "args", FOUND),
    "missing symbol": (f"{FSDP}.fully_shrad", "", NO_SYMBOL),
    "missing module": ("torch.distributed.fsdpp.fully_shard", "", NO_SYMBOL),
    "missing method": (f"{FSDP}.FSDPModule.set_requires_gradient_snc", "", NO_SYMBOL),
    "missing parameter": (f"{FSDP}.fully_shard", "reshard_after_foward", NO_PARAMETER),
    "missing field": (f"{FSDP}.MixedPrecisionPolicy", "reduce_type", NO_PARAMETER),
    "missing switch": ("torch._functorch.config", "no_such_switch", NO_PARAMETER),
    "written in C": ("torch.empty", "size", UNKNOWN),
    "any keyword": ("torch.utils.checkpoint.checkpoint", "anything", UNKNOWN),
    "overloaded": ("torch.nn.functional.max_pool2d", "no_such", UNKNOWN),
    "open namespace": ("torch.ops.aten.mm", "", UNKNOWN),
    "missing in a program": ("torch.distributed.run.no_such", "", UNKNOWN),
    "another package": ("os.system", "", UNKNOWN),
    "by a path": ("torch.../os", "", UNKNOWN),
}


def look_up(names: list[tuple[str, str]], folder: Path | None = None) -> tuple[References, str]:
    command = [sys.executable, "-m", "strategist_runtime.deck.torch_symbols"]
    done = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, check=True, cwd=folder)
    return codec.loads(References, done.stdout), done.stderr


@pytest.fixture(scope="module")
def found() -> dict[str, Reference]:
    references, _ = look_up([(symbol, parameter) for symbol, parameter, _ in SYMBOLS.values()])
    assert references.torch_version[0].isdigit()
    return dict(zip(SYMBOLS, references.references, strict=True))


@pytest.mark.parametrize("name", SYMBOLS)
def test_each_symbol_has_its_outcome(found: dict[str, Reference], name: str) -> None:
    symbol, parameter, outcome = SYMBOLS[name]
    assert (found[name].symbol, found[name].parameter, found[name].outcome) == (symbol, parameter, outcome)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("missing symbol", f"{FSDP}.fully_shard"),
        ("missing module", "torch.distributed.fsdp"),
        ("missing method", f"{FSDP}.FSDPModule.set_requires_gradient_sync"),
        ("missing parameter", "reshard_after_forward"),
        ("missing field", "reduce_dtype"),
    ],
)
def test_the_most_similar_name_is_suggested_first(found: dict[str, Reference], name: str, near: str) -> None:
    assert found[name].near[0] == near


@pytest.mark.parametrize(
    ("name", "file", "first"),
    [
        ("function", "torch/distributed/fsdp/_fully_shard/_fully_shard.py", "def fully_shard("),
        ("method", "torch/distributed/fsdp/_fully_shard/_fully_shard.py", "def set_requires_gradient_sync("),
        ("property", "torch/distributed/device_mesh.py", "def ndim("),
        ("re-exported class", "torch/distributed/fsdp/_fully_shard/_fsdp_api.py", "class MixedPrecisionPolicy"),
        ("in a program", "torch/distributed/run.py", "def main("),
    ],
)
def test_line_numbers_are_those_of_the_definition(found: dict[str, Reference], name: str, file: str, first: str) -> None:
    reference = found[name]
    assert reference.file == file
    assert reference.first_line is not None
    assert reference.last_line is not None
    lines = source(file)[reference.first_line - 1 : reference.last_line]
    head = next(line for line in lines if not line.lstrip().startswith("@"))
    assert head.strip().startswith(first)


def test_names_outside_torch_are_not_imported(tmp_path: Path) -> None:
    """Neither from the working directory nor by a name with torch as prefix."""
    (tmp_path / "trap.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "torchtrap.py").write_text("raise SystemExit('it ran')")
    references, errors = look_up([("trap.f", ""), ("torchtrap.f", ""), ("torch.trap.f", "")], tmp_path)
    assert [item.outcome for item in references.references] == [UNKNOWN, UNKNOWN, NO_SYMBOL]
    assert "it ran" not in errors


def source(file: str) -> list[str]:
    code = f"import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parents[1] / {file!r})"
    path = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return Path(path).read_text(encoding="utf-8").splitlines()
