"""The names that a TOML file of TorchTitan 0.2.2 may set. Its job_config.py is loaded alone."""

import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def below(prefix: str, config: Any) -> Iterator[str]:
    """Names of the fields of a configuration."""
    for item in fields(config):
        value = getattr(config, item.name)
        yield from below(f"{prefix}{item.name}.", value) if is_dataclass(value) else (f"{prefix}{item.name}",)


if __name__ == "__main__":
    path = next(place for place in (Path(place) / "torchtitan" for place in sys.path) if place.is_dir())
    package = types.ModuleType("torchtitan")
    package.__path__ = [str(path)]  # without imports of the package itself
    sys.modules["torchtitan"] = package
    specification = importlib.util.spec_from_file_location("job_config", path / "config" / "job_config.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["job_config"] = module
    specification.loader.exec_module(module)
    print(json.dumps(sorted(below("", module.JobConfig()))))
