"""Prints the flags that Megatron-LM accepts: those of its parser, and those of earlier releases.

Needs a checkout, since Megatron-LM is not on PyPI:
``python megatron_lm_names.py CHECKOUT TAG... > profiles/formats/names/megatron-lm.txt``.

Its kernels cannot be imported without CUDA; empty modules replace them, since they are not called.
"""

import argparse
import ast
import importlib.abc
import importlib.machinery
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from unittest.mock import MagicMock

import torch._inductor.compile_fx  # noqa: F401  (before triton seems to be there)

from strategist.formats.megatron_lm import LAUNCHERS

ARGUMENTS = "megatron/training/arguments.py"


class Kernels(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that provides an empty module for any module of triton."""

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "triton":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__, module.__version__ = [], "3.0"
        return typing.cast(types.ModuleType, module)

    def exec_module(self, module: types.ModuleType) -> None:
        """Runs nothing."""


def accepted(checkout: str) -> Iterator[str]:
    """The flags of the parser."""
    sys.path.insert(0, checkout)
    sys.meta_path.append(Kernels())
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    from megatron.training.arguments import add_megatron_arguments

    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_megatron_arguments(parser)
    for action in parser._actions:
        yield from action.option_strings


def released(checkout: str, tag: str) -> Iterator[str]:
    """The flags that a release adds to its parser."""
    text = subprocess.run(["git", "-C", checkout, "show", f"{tag}:{ARGUMENTS}"], capture_output=True, text=True, check=True).stdout
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            yield from (value.value for value in node.args if isinstance(value, ast.Constant) and isinstance(value.value, str))


if __name__ == "__main__":
    checkout, *tags = sys.argv[1:]
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    found = {*accepted(checkout), *(flag for tag in tags for flag in released(checkout, tag))}
    print(f"# Flags of Megatron-LM at {commit} (core 0.20) and of {', '.join(tags)}.")
    print("# Printed by tests/formats/frameworks/megatron_lm_names.py, whose docstring says how.")
    print("\n".join((*sorted(LAUNCHERS), *sorted(flag[2:] for flag in found if flag.startswith("--")))))
