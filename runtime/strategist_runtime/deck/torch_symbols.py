"""Looks up symbols of torch and their parameters: ``python -m strategist_runtime.deck.torch_symbols``, JSON [[symbol, parameter],
...] in, a ``References`` document out.

Cards are untrusted data, so a name in a card imports modules of torch only. Of these, programs and tests are not imported: their
source is parsed.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from strategist.contract import codec
from strategist.contract.torch_symbol import Reference, ReferenceOutcome, References

ROOT = Path(torch.__file__).parent
PROGRAMS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.testing._internal",
    "torch.utils.benchmark.examples",
    "torch.utils.hipify",
)
"""Modules that are parsed instead of imported, with all of their submodules; so is every ``__main__`` and ``conftest``."""
DYNAMIC_NAMESPACES = ("torch.ops", "torch.classes")
"""Namespaces that create attributes on access, so that any name exists."""
SUGGESTIONS = 3
Definition = ast.ClassDef | ast.FunctionDef


def look_up(symbol: str, parameter: str = "") -> Reference:
    """Whether, and where, the installed torch has the symbol and its parameter."""
    unknown = Reference(symbol=symbol, parameter=parameter, outcome=ReferenceOutcome.UNKNOWN)
    parts = symbol.split(".")
    if parts[0] != "torch" or not all(part.isidentifier() for part in parts) or symbol.startswith(DYNAMIC_NAMESPACES):
        return unknown
    missing: Reference | None = None
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        file = _module_file(parts[1:length])
        if file is None:
            continue
        if _is_program(name):
            return _read(unknown, file, parts[length:])
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit):  # any error, for example of a missing optional library: the result is unknown
            return replace(unknown, file=_relative(file))
        found = _walk(unknown, module, name, parts[length:])
        if found.outcome is not ReferenceOutcome.NO_SYMBOL:
            return found
        missing = missing or found
    return missing or unknown


def _module_file(parts: Sequence[str]) -> Path | None:
    """The source file of torch's module, found without importing anything; ``parts`` are its names below torch."""
    base = ROOT.joinpath(*parts)
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def _is_program(name: str) -> bool:
    below = any(name == program or name.startswith(f"{program}.") for program in PROGRAMS)
    return below or name.endswith((".__main__", ".conftest"))


def _walk(reference: Reference, module: types.ModuleType, name: str, parts: Sequence[str]) -> Reference:
    """Follows attributes from a module to the symbol, then looks for the parameter."""
    value: Any = module
    for part in parts:
        try:
            value = getattr(value, part)
        except AttributeError:
            near = tuple(f"{name}.{found}" for found in _near(part, _names(value)))
            return replace(reference, outcome=ReferenceOutcome.NO_SYMBOL, near=near)
        name = f"{name}.{part}"
    return _with_parameter(_with_source(reference, value), value)


def _names(value: Any) -> list[str]:
    submodules = (module.name for module in pkgutil.iter_modules(getattr(value, "__path__", ())))
    return [*dir(value), *(submodules if isinstance(value, types.ModuleType) else ())]


def _with_parameter(reference: Reference, value: Any) -> Reference:
    """Looks for the parameter: in the signature of a callable; of a class, module or object also among its attributes."""
    found, parameter = replace(reference, outcome=ReferenceOutcome.FOUND), reference.parameter
    if not parameter or (not inspect.isroutine(value) and (hasattr(value, parameter) or parameter in _annotations(value))):
        return found
    if not callable(value):
        return replace(found, outcome=ReferenceOutcome.NO_PARAMETER, near=_near(parameter, dir(value)))
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):  # written in C
        return replace(found, outcome=ReferenceOutcome.UNKNOWN)
    if parameter in parameters:
        return found
    if any(item.kind in (item.VAR_KEYWORD, item.VAR_POSITIONAL) for item in parameters.values()):
        return replace(found, outcome=ReferenceOutcome.UNKNOWN)
    return replace(found, outcome=ReferenceOutcome.NO_PARAMETER, near=_near(parameter, parameters))


def _annotations(value: Any) -> Iterable[str]:
    """Fields that a class and its bases declare; a field without a default is not an attribute of the class."""
    return {name for base in getattr(value, "__mro__", ()) for name in vars(base).get("__annotations__", ())}


def _near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    return tuple(get_close_matches(name, set(known), n=SUGGESTIONS))


def _with_source(reference: Reference, value: Any) -> Reference:
    """Adds the place of the value's definition. A class whose ``__module__`` was changed is looked up in that module's imports."""
    value = value.fget if isinstance(value, property) else inspect.unwrap(value)
    try:
        file = inspect.getsourcefile(value)
        lines, first = inspect.getsourcelines(value)
    except (TypeError, OSError):  # a constant, written in C, or a class with a changed __module__
        defining_module = sys.modules.get(getattr(value, "__module__", None) or "")
        node = (
            _definition(Path(defining_module.__file__), [value.__qualname__])
            if isinstance(value, type) and defining_module and defining_module.__file__
            else None
        )
        return _with_location(reference, *node) if node else reference
    if file is None or not Path(file).is_relative_to(ROOT):
        return reference
    return replace(reference, file=_relative(Path(file)), first_line=max(first, 1), last_line=max(first, 1) + len(lines) - 1)


def _with_location(reference: Reference, file: Path, node: Definition) -> Reference:
    first = min(part.lineno for part in (node, *node.decorator_list))
    return replace(reference, file=_relative(file), first_line=first, last_line=node.end_lineno)


def _relative(file: Path) -> str:
    return file.relative_to(ROOT.parent).as_posix()


def _read(reference: Reference, file: Path, parts: Sequence[str]) -> Reference:
    """The definition in a file that is parsed, not imported."""
    if not parts:
        return replace(reference, file=_relative(file), outcome=ReferenceOutcome.FOUND)
    found = _definition(file, parts)
    if found is None:
        return replace(reference, file=_relative(file))
    node = found[1]
    known = [item.arg for item in (*node.args.args, *node.args.kwonlyargs)] if isinstance(node, ast.FunctionDef) else []
    is_known = not reference.parameter or reference.parameter in known
    return replace(_with_location(reference, *found), outcome=ReferenceOutcome.FOUND if is_known else ReferenceOutcome.UNKNOWN)


def _definition(file: Path, parts: Sequence[str], follow: int = 8) -> tuple[Path, Definition] | None:
    """The file and the definition of a name in ``file``, or in a file from which it imports the name."""
    body: Sequence[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    node: ast.stmt | None = None
    for part in parts:
        node = next((item for item in body if isinstance(item, Definition) and item.name == part), None)
        if node is None:
            break
        body = node.body
    if isinstance(node, Definition):
        return file, node
    for item in [item for item in body if isinstance(item, ast.ImportFrom)] if follow else []:
        for alias in item.names:
            source = _module_file(_imported(file, item)) if (alias.asname or alias.name) == parts[0] else None
            if source is not None:
                return _definition(source, [alias.name, *parts[1:]], follow - 1)
    return None


def _imported(file: Path, statement: ast.ImportFrom) -> list[str]:
    """The module below torch, as a list of names, from which a statement of the file imports."""
    names = (statement.module or "").split(".") if statement.module else []
    if not statement.level:
        return names[1:] if names[:1] == ["torch"] else ["?"]
    return [*file.parents[statement.level - 1].relative_to(ROOT).parts, *names]


def main() -> None:
    """Reads symbols from standard input and writes the document to standard output; output of imports goes to standard error."""
    requests = json.load(sys.stdin)
    output, sys.stdout = sys.stdout, sys.stderr
    with warnings.catch_warnings(action="ignore"):
        references = tuple(look_up(symbol, parameter) for symbol, parameter in requests)
    output.write(codec.dumps(References(torch_version=torch.__version__, references=references)))


if __name__ == "__main__":
    main()
