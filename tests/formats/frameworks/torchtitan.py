"""TorchTitan's own reading of its configurations, 0.3.0: of command lines, of what is registered, of names and models.

    python torchtitan.py commands FILE     JSON lists of arguments, number of devices and folder of modules, one a command
    python torchtitan.py registered        all shipped configurations of language models: their settings and names
    python torchtitan.py names             names that a configuration may set
    python torchtitan.py shapes            layers, width and vocabulary of each flavour of each model

Empty modules replace parts that need a GPU: triton's kernels, fla, torchvision. Devices report the newest compute capability,
because some configurations check for it when they are created.
"""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

ABSENT = ("fla", "torchvision", "torchtitan.distributed.minimal_async_ep.kernels")


class Anything(type):
    """A class that has any attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class Empty(types.ModuleType):
    """A module that has any class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook for the absent modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        absent = any(name == known or name.startswith(f"{known}.") for known in ABSENT)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, Absent())
warnings.simplefilter("ignore")
os.environ.setdefault("RUNNER_TEMP", "/")  # one configuration looks for a checkpoint there
with contextlib.redirect_stderr(None):
    import torchtitan.config.configs
    import torchtitan.models.utils
    import torchtitan.tools.utils
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed import ParallelDims

torchtitan.tools.utils.has_cuda_capability = lambda *_: True
torchtitan.config.configs.torch = types.SimpleNamespace(
    cuda=types.SimpleNamespace(is_available=lambda: True, get_device_capability=lambda: (10, 0)),
    version=types.SimpleNamespace(hip=None),
)
CONVERTED: list[Any] = []
"""Converters of the model that was created last."""


def _record_converters(converters: Sequence[Any]) -> None:
    CONVERTED[:] = converters


torchtitan.models.utils.validate_converter_order = _record_converters
ROOT = Path(torchtitan.__file__).parent
SAMPLED = 8
"""One of this many registered configurations is also parsed as a command line, which takes longest."""

POLICIES = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory-budget"}


def parsed(arguments: Sequence[str]) -> Any:
    """The configuration from a command line, with its warnings suppressed."""
    CONVERTED.clear()
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        return ConfigManager().parse_args(list(arguments))


def unchanged(arguments: Sequence[str]) -> Any:
    """The registered configuration, checked like ``parsed`` but without parsing a command line."""
    CONVERTED.clear()
    logging.disable(logging.CRITICAL)
    manager = ConfigManager()
    with contextlib.redirect_stdout(sys.stderr):
        manager.config, _ = manager._load_config(list(arguments))
        manager._validate_config()
    return manager.config


def settings_of(config: Any) -> dict[str, Any]:
    """The plan's settings in a configuration, by the names that the format reads."""
    found: dict[str, Any] = {}
    for section in (TrainingConfig, ParallelismConfig, CompileConfig):
        name = section.__name__.removesuffix("Config").lower()
        part = getattr(config, name)
        found |= {f"{name}.{item.name}": getattr(part, item.name) for item in fields(section)}
    policy = config.activation_checkpoint
    found["activation_checkpoint"] = "none" if policy is None else POLICIES[type(policy).__qualname__.partition(".")[0]]
    if hasattr(policy, "memory_budget"):
        found["activation_checkpoint.memory_budget"] = policy.memory_budget
    found["optimizer.implementation"] = config.optimizer.implementation
    found["optimizer.name"] = [group.optimizer_name for group in config.optimizer.param_groups]
    found["loss"] = type(config.loss).__qualname__.partition(".")[0]
    found["loss.num_chunks"] = getattr(config.loss, "num_chunks", 1)
    if config.model_spec is not None:
        found |= {"model.name": config.model_spec.name.rpartition("/")[2], "model.flavor": config.model_spec.flavor}
        found["model.converters"] = [type(item).__qualname__.partition(".")[0] for item in CONVERTED]
        for item in CONVERTED:
            name = type(item).__qualname__.partition(".")[0]
            found |= {f"{name}.{key}": getattr(item, key) for key in ("recipe_name", "rank") if hasattr(item, key)}
    return found


def registries() -> Iterator[tuple[str, str]]:
    """Modules and functions of all registered configurations of language models that train."""
    for path in sorted(ROOT.rglob("config_registry.py")):
        module = ".".join(path.relative_to(ROOT).parts[1:-1])
        if not module.startswith(("flux", "rl.")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not node.args.args:
                    yield module, node.name
    for path in sorted((ROOT.parent / "torchtitan_recipes" / "tests").glob("*.py")):
        if path.stem not in ("flux", "__init__"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not node.args.args:
                    yield f"torchtitan_recipes.tests.{path.stem}", node.name


def registered() -> dict[str, dict[str, Any]]:
    """The settings of each registered configuration, by module and function; ``names`` are all names in them, ``usual`` are the
    defaults.
    """
    from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC
    from torchtitan.trainer import Trainer

    found: dict[str, dict[str, Any]] = {}
    names = {name for policy in (FullAC, MemoryBudgetAC, SelectiveAC) for name in below("activation_checkpoint.", policy.Config())}
    for index, (module, function) in enumerate(registries()):
        arguments = ["--module", module, "--config", function]
        config = unchanged(arguments)
        names |= set(below("", config))
        found.setdefault(module, {})[function] = settings_of(config)
        if index % SAMPLED == 0:
            assert settings_of(parsed(arguments)) == found[module][function], arguments
    usual = Trainer.Config()
    own = ("activation_checkpoint", "loss", "model.converters", "model.flavor", "model.name", "optimizer.name")
    return {"configurations": found, "usual": settings_of(usual), "names": sorted({*names, *below("", usual), *own})}


def below(prefix: str, config: Any) -> Iterator[str]:
    """Names of the fields of a configuration, without those of the model."""
    for item in fields(config):
        value, name = getattr(config, item.name), f"{prefix}{item.name}"
        if is_dataclass(value) and not isinstance(value, type) and name != "model_spec":
            yield from below(f"{name}.", value)
        elif not item.name.startswith("_"):
            yield name


def names() -> list[str]:
    """Names that a configuration may set."""
    return list(registered()["names"])


def shapes() -> dict[str, dict[str, list[int]]]:
    """Layers, width and vocabulary of each flavour."""
    found: dict[str, dict[str, list[int]]] = {}
    for family in ("llama3", "qwen3", "deepseek_v3", "gpt_oss", "kimi_k2_7"):
        module = importlib.import_module(f"torchtitan.models.{family}")
        flavours = next(value for name, value in vars(module).items() if name.endswith("_configs") and isinstance(value, dict))
        for flavour in flavours:
            model = module.model_registry(flavour).model
            found.setdefault(family, {})[flavour] = [len(model.layers), model.dim, model.vocab_size]
    return found


def commands(path: str) -> list[dict[str, Any]]:
    """The settings of each command line; its degrees are checked against its number of devices."""
    found = []
    for arguments, devices, folder in json.loads(Path(path).read_text(encoding="utf-8")):
        sys.modules.pop("titan_plan", None)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        config = parsed(arguments)
        sys.path.remove(folder)
        dims = ParallelDims.from_config(config.parallelism, devices)
        degrees = {name: getattr(dims, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")}
        model = config.model_spec.model
        found.append({**settings_of(config), **degrees, "shape": [len(model.layers), model.dim, model.vocab_size]})
    return found


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    answers = {"commands": commands, "registered": registered, "names": names, "shapes": shapes}
    print(json.dumps(answers[command](*rest), default=str))
