"""Laws of the code: allowed imports, operations that only one module may do, and the form of files."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = (
    {"errors", "paths", "frozen"},
    {"units", "files"},
    {"contract"},
    {"bound", "profiles", "ledger"},
    {"expr"},
    {"cards"},
    {"rules", "cost"},
    {"programs"},
    {"lint", "search", "alternatives", "accuracy"},
    {"executors", "formats", "report"},
    {"planning"},
    {"tuner", "launch"},
    {"api"},
    {"agent"},
    {"cli"},
)
"""Layers from the bottom up; packages of one layer may not import each other."""
RUNTIME_LAYERS = (
    {"rank_process", "rank_record", "compat", "capability_external_model"},
    {"capability", "rendezvous"},
    {"mesh"},
    {"precision", "model", "data", "measure"},
    {"weights", "compilation", "activation_checkpointing"},
    {"adapters", "parallel"},
    {"builder"},
    {"parallelize", "optimizers"},
    {"training"},
    {"trial", "simulate", "machine", "deck"},
    {"__main__"},
)
"""Layers of the executing half."""
LEVELS = {
    package: {name: level for level, names in enumerate(table) for name in names}
    for package, table in (("strategist", LAYERS), ("strategist_runtime", RUNTIME_LAYERS))
}
MAX_LINES = 400

Modules = dict[str, str]
"""Source texts by path from the root of the repository."""


def tree(modules: Modules) -> Iterator[tuple[str, ast.Module]]:
    for path, source in modules.items():
        yield path, parsed(source)


@cache
def parsed(source: str) -> ast.Module:
    """Syntax tree of a source, cached for all laws."""
    return ast.parse(source)


@cache
def module_name(path: str) -> str:
    """``strategist/cli/main.py`` as ``strategist.cli.main``; the runtime's root folder is not a package."""
    return path.removeprefix("runtime/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def nodes(module: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree, cached for all laws."""
    return tuple(ast.walk(module))


def imports(module: ast.Module, modules: Modules) -> Iterator[str]:
    """Full names of all imported modules, inside functions too."""
    names = {module_name(path) for path in modules}
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in names else base


def package(name: str, within: str = "strategist") -> str:
    """``cli`` for ``strategist.cli.main``; empty for the package itself and for others."""
    parts = name.split(".")
    return parts[1] if parts[0] == within and len(parts) > 1 else ""


def law_layers(modules: Modules) -> Iterator[str]:
    """A package imports only packages of lower layers of its half; all packages are in the tables."""
    for path, module in tree(modules):
        half = module_name(path).split(".")[0]
        own, level = package(module_name(path), half), LEVELS[half]
        if not own:
            continue
        if own not in level:
            yield f"{path}: package {own} has no layer"
            continue
        for name in imports(module, modules):
            seen = package(name, half)
            if name.startswith(".") or name == half or (half == "strategist" and name.startswith("strategist_runtime")):
                yield f"{path} imports {name}"
            elif seen and seen != own and level.get(seen, len(level)) >= level[own]:
                yield f"{path} imports {name}, which does not lie below it"


API_PACKAGES = ("errors", "frozen", "paths", "units", "contract", "report", "api", "agent", "cli")
"""Packages of the deciding half that the command line and agents may import."""

API_EXCEPTIONS = {
    "strategist.files.outputs": "writes every file that a user names, those of commands included",
    "strategist.files.yaml_file": "reads the configuration of the command line itself, and bounds a card that an agent sends",
}


def law_api_only(modules: Modules) -> Iterator[str]:
    """The command line and agents use the API, and values and reports of what it returns."""
    for path, module in tree(modules):
        if path.startswith(("strategist/cli/", "strategist/agent/")):
            for name in imports(module, modules):
                if package(name) and package(name) not in API_PACKAGES and name not in API_EXCEPTIONS:
                    yield f"{path} imports {name}, which is not part of strategist.api"


def law_no_cycles(modules: Modules) -> Iterator[str]:
    """No module reaches itself through imports, whether at its top or inside functions."""
    names = {module_name(path) for path in modules}
    graph = {module_name(path): {name for name in imports(module, modules) if name in names} for path, module in tree(modules)}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += graph[name]
        if start in seen:
            yield f"{start} imports itself in a circle"


def law_runtime(modules: Modules) -> Iterator[str]:
    """The executing half imports only contract, errors and units of the deciding half."""
    for path, module in tree(modules):
        if path.startswith("runtime/"):
            for name in imports(module, modules):
                if name.split(".")[0] == "strategist" and package(name) not in {"contract", "errors", "units"}:
                    yield f"{path} imports {name}"


def law_contract(modules: Modules) -> Iterator[str]:
    """The contract imports the standard library, and of the deciding half errors, frozen, units and files.outputs only."""
    for path, module in tree(modules):
        if path.startswith("strategist/contract/"):
            for name in imports(module, modules):
                ours = name.startswith("strategist.files.outputs") or package(name) in {"contract", "errors", "frozen", "units"}
                if not ours and name.split(".")[0] not in sys.stdlib_module_names:
                    yield f"{path} imports {name}"


def law_libraries(modules: Modules) -> Iterator[str]:
    """Each third-party library is imported only in its places."""
    places: dict[str, Callable[[str], bool]] = {
        "torch": lambda path: path.startswith("runtime/"),
        "optuna": lambda path: path in ("strategist/search/study.py", "strategist/search/sampler.py"),
        "psycopg": lambda path: path == "strategist/ledger/postgres.py",
        "ray": lambda path: path in ("strategist/executors/ray_launcher.py", "strategist/executors/ray_job.py"),
        "pandas": lambda path: path == "strategist/tuner/flat_table.py",
        "yaml": lambda path: path in ("strategist/files/yaml_file.py", "strategist/files/yaml_parser.py"),
        "argparse": lambda path: path.startswith(("strategist/cli/", "runtime/")),
        **dict.fromkeys(
            ("mcp", "mcp_types", "anyio", "starlette", "uvicorn", "pydantic"), lambda path: path.startswith("strategist/agent/")
        ),
        "rich": lambda path: path.startswith(("strategist/cli/", "strategist/report/")),
    }
    for path, module in tree(modules):
        for name in imports(module, modules):
            allowed = places.get(name.split(".")[0])
            if allowed is not None and not allowed(path):
                yield f"{path} imports {name}"


PRIVATE = re.compile("_(?!_)")
"""The begin of a private name."""
USES_A_NAME = ("getattr", "setattr", "hasattr", "delattr", "attrgetter", "import_module", "__import__")
"""Functions that take the name of an attribute or module as text."""


def law_private_names(modules: Modules) -> Iterator[str]:
    """Private names of torch are used only in the runtime's compat package, also by ``getattr`` and the like."""
    for path, module in tree(modules):
        if not path.startswith("runtime/") or path.startswith("runtime/strategist_runtime/compat/"):
            continue
        for name in imports(module, modules):
            if name.split(".")[0] == "torch" and "._" in name:
                yield f"{path} imports {name}"
        for node in nodes(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
                yield from (f"{path} imports {alias.name}" for alias in node.names if alias.name.startswith("_"))
            own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls", "super()", "os")
            if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr) and not own:
                yield f"{path}:{node.lineno} uses {ast.unparse(node)}"
        for name, call in calls(module):
            texts = [value.value for value in call.args if isinstance(value, ast.Constant) and isinstance(value.value, str)]
            if name.split(".")[-1] in USES_A_NAME and any(PRIVATE.match(part) for text in texts for part in text.split(".")):
                yield f"{path}:{call.lineno} uses {texts[0]}"


@cache
def calls(module: ast.Module) -> tuple[tuple[str, ast.Call], ...]:
    """All calls in a syntax tree, each with its function, cached for all laws."""
    return tuple((ast.unparse(node.func), node) for node in nodes(module) if isinstance(node, ast.Call))


PRINTERS = ("strategist/cli/render.py", "strategist/executors/process_supervisor.py", "strategist/executors/ray_launcher.py")
"""Modules that may print; those of executors run as processes of a trial, and print into its log."""


def law_printing(modules: Modules) -> Iterator[str]:
    """Only PRINTERS print."""
    for path, module in tree(modules):
        if path.startswith("strategist/") and path not in PRINTERS:
            yield from (f"{path}:{call.lineno} prints" for name, call in calls(module) if name == "print")


WRITERS = (
    "strategist/files/outputs.py", "strategist/executors/", "strategist/agent/", "strategist/profiles/history.py", "runtime/"
)  # fmt: skip
"""Modules that may write files besides outputs: trials, agents, the history and the runtime."""


def law_outputs(modules: Modules) -> Iterator[str]:
    """Files that a user names are written by files.outputs only."""
    for path, module in tree(modules):
        for name, call in calls(module) if not path.startswith(WRITERS) else ():
            mode = next((ast.unparse(key.value) for key in call.keywords if key.arg == "mode"), "")
            words = [mode, *(ast.unparse(argument) for argument in call.args)] if name.split(".")[-1] == "open" else []
            if name.endswith((".write_text", ".write_bytes")) or any(
                re.fullmatch("'[rwxab+]*[wxa+][rwxab+]*'", word) for word in words
            ):
                yield f"{path}:{call.lineno} writes a file"


RUNS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load",
}  # fmt: skip
PICKLES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle", "code", "codeop", "pty"}
OPENS = {"shell": "False", "weights_only": "True", "allow_pickle": "False"}
"""Arguments with their safe values."""


def law_no_dynamic_code(modules: Modules) -> Iterator[str]:
    """Data are never executed: no eval, exec, pickle or shell, and torch.load with weights only."""
    for path, module in tree(modules):
        for name in imports(module, modules):
            if name.split(".")[0] in PICKLES:
                yield f"{path} imports {name}"
        for name, call in calls(module):
            given = {key.arg: ast.unparse(key.value) for key in call.keywords}
            if name in RUNS or name.startswith("os.spawn") or any(given.get(key, safe) != safe for key, safe in OPENS.items()):
                yield f"{path}:{call.lineno} calls {name}"
            if name == "torch.load" and "weights_only" not in given:
                yield f"{path}:{call.lineno} loads more than weights"


def law_broad_except(modules: Modules) -> Iterator[str]:
    """A handler of all exceptions has a comment with the reason, or raises again."""
    for path, source in modules.items():
        for number, line in enumerate(source.splitlines(), start=1):
            if (
                re.match(r"\s*except( \(?(Base)?Exception\b.*)?:", line)
                and "#" not in line
                and "raise" not in _block(source, number)
            ):
                yield f"{path}:{number} catches everything without a comment on the reason"


def _block(source: str, number: int) -> str:
    """The indented block after a line."""
    lines = source.splitlines()[number:]
    indent = len(source.splitlines()[number - 1]) - len(source.splitlines()[number - 1].lstrip())
    block = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        block.append(line)
    return "\n".join(block)


def law_size(modules: Modules) -> Iterator[str]:
    """Files have at most MAX_LINES lines."""
    for path, source in modules.items():
        if (lines := source.count("\n")) > MAX_LINES:
            yield f"{path} has {lines} lines"


def law_init(modules: Modules) -> Iterator[str]:
    """``__init__.py`` contains only a docstring; those of ``strategist`` and ``strategist.api`` also export names."""
    for path, module in tree(modules):
        if path.endswith("/__init__.py"):
            if ast.get_docstring(module) is None:
                yield f"{path} has no docstring"
            if path not in ("strategist/__init__.py", "strategist/api/__init__.py") and len(module.body) > 1:
                yield f"{path} holds more than a docstring"


def law_docstrings(modules: Modules) -> Iterator[str]:
    """Every module has a docstring."""
    for path, module in tree(modules):
        if not (ast.get_docstring(module) or "").strip():
            yield f"{path} has no docstring"


LAWS = (
    law_layers, law_api_only, law_no_cycles, law_runtime, law_contract, law_libraries, law_private_names, law_printing, law_outputs,
    law_no_dynamic_code, law_broad_except, law_size, law_init, law_docstrings,
)  # fmt: skip

DOC = '"""Text."""\n'
BREACHES: dict[Callable[[Modules], Iterator[str]], tuple[Modules, ...]] = {
    law_layers: (
        {"strategist/cost/a.py": "from strategist.search.space import x"},
        {"strategist/rules/a.py": "from strategist import cost"},
        {"strategist/rules/a.py": "from strategist import cost", "strategist/cost/__init__.py": ""},
        {"strategist/contract/a.py": "def f():\n    import strategist.profiles.models"},
        {"strategist/units.py": "from . import errors"},
        {"strategist/novel/a.py": ""},
        {"runtime/strategist_runtime/model/a.py": "from strategist_runtime.training import trainer"},
        {"runtime/strategist_runtime/novel/a.py": ""},
    ),
    law_api_only: (
        {"strategist/cli/plan.py": "from strategist.planning import planner"},
        {"strategist/agent/plans.py": "def f():\n    from strategist.search.space import x"},
        {"strategist/cli/plan.py": "from strategist.files import cache", "strategist/files/cache.py": ""},
    ),
    law_no_cycles: (
        {
            "strategist/cost/a.py": "from strategist.cost import b",
            "strategist/cost/b.py": "def f():\n    from strategist.cost.a import x",
        },
    ),
    law_runtime: ({"runtime/strategist_runtime/a.py": "from strategist.profiles import models"},),
    law_contract: (
        {"strategist/contract/a.py": "import numpy"},
        {"strategist/contract/a.py": "from strategist.files.yaml_file import load"},
    ),
    law_libraries: (
        {"strategist/cost/a.py": "import torch.nn"},
        {"strategist/tuner/a.py": "def f():\n    from optuna import study"},
        {"strategist/cards/a.py": "import yaml"},
        {"strategist/ledger/ledger.py": "import psycopg"},
        {"strategist/api/__init__.py": "import argparse"},
        {"strategist/cost/a.py": "import rich"},
        {"strategist/cli/mcp.py": "from mcp.server import Server"},
    ),
    law_private_names: (
        {"runtime/strategist_runtime/a.py": "import torch._dynamo"},
        {"runtime/strategist_runtime/a.py": "from torch.utils._pytree import tree_map"},
        {"runtime/strategist_runtime/a.py": "from torch.distributed.distributed_c10d import _world"},
        {"runtime/strategist_runtime/model/a.py": "def f(tensor):\n    return tensor._version"},
        {"runtime/strategist_runtime/model/a.py": "def f(module):\n    return getattr(module, '_compiled_call_impl', None)"},
        {"runtime/strategist_runtime/a.py": "import importlib\nimportlib.import_module('torch._dynamo')"},
    ),
    law_printing: ({"strategist/cli/plan.py": "print(1)"},),
    law_outputs: (
        {"strategist/cli/plan.py": "path.write_text('x')"},
        {"strategist/report/trace.py": "open('x', 'w')"},
        {"strategist/api/__init__.py": "path.open(mode='xb')"},
    ),
    law_no_dynamic_code: (
        {"strategist/expr/a.py": "eval('1')"},
        {"runtime/strategist_runtime/a.py": "import pickle"},
        {"strategist/executors/a.py": "import subprocess\nsubprocess.run('ls', shell=True)"},
        {"runtime/strategist_runtime/a.py": "torch.load('x', weights_only=False)"},
        {"runtime/strategist_runtime/a.py": "torch.load('x')"},
        {"strategist/tuner/a.py": "numpy.load('x', allow_pickle=True)"},
        {"strategist/files/yaml_file.py": "import yaml\nyaml.load('x', Loader=yaml.SafeLoader)"},
        {"strategist/executors/a.py": "import subprocess\nsubprocess.getoutput('ls')"},
    ),
    law_broad_except: (
        {"strategist/a.py": "try:\n    f()\nexcept Exception:\n    pass\n"},
        {"strategist/a.py": "try:\n    f()\nexcept:\n    pass\n"},
    ),
    law_size: ({"strategist/a.py": "x = 1\n" * 401},),
    law_init: ({"strategist/cost/__init__.py": DOC + "import os"}, {"strategist/cost/__init__.py": ""}),
    law_docstrings: ({"strategist/cost/a.py": "x = 1"},),
}


@pytest.fixture(scope="module")
def all_modules() -> Modules:
    files = [*(ROOT / "strategist").rglob("*.py"), *(ROOT / "runtime").rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(files)}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_code_keeps_the_laws(law: Callable[[Modules], Iterator[str]], all_modules: Modules) -> None:
    assert len(all_modules) > 50
    assert list(law(all_modules)) == []


@pytest.mark.parametrize(
    ("law", "breach"),
    [(law, breach) for law, breaches in BREACHES.items() for breach in breaches],
    ids=lambda item: getattr(item, "__name__", "breach"),
)
def test_every_law_detects_a_breach(law: Callable[[Modules], Iterator[str]], breach: Modules) -> None:
    assert list(law(breach)) != []


def test_every_law_has_a_breach() -> None:
    assert set(BREACHES) == set(LAWS)
    assert not list((ROOT / "runtime").glob("__init__.py"))


def test_a_handler_with_a_comment_may_catch_everything() -> None:
    commented = "try:\n    f()\nexcept Exception as error:  # a plug-in may raise whatever it likes\n    pass\n"
    passed_on = "try:\n    f()\nexcept BaseException:\n    clean()\n    raise\n"
    assert list(law_broad_except({"strategist/a.py": commented, "strategist/b.py": passed_on})) == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git here")
def test_ignored_files_are_not_tracked() -> None:
    """A tracked link to a checkout's own folder would break other checkouts."""
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == ""
