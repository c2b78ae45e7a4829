"""Assembles the files of the exported PyTorch script from blocks; only blocks that a plan needs are written.

The blocks are in ``profiles/formats/pytorch``: a folder for each file of the script, with a block for each technique. A block is
Python source. Lines between ``# if: NAME`` and ``# end: NAME`` are kept if the condition holds; ``not NAME`` and ``NAME and
NAME`` are conditions too. A block imports libraries only; imports of the script's other files and of the plan's constants are
generated.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache

from strategist.frozen import frozen
from strategist.paths import data_dir

WIDTH = 132
FILES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "model": (
        "A decoder like Llama's (arXiv 2302.13971), whole or a pipeline stage of it.",
        {
            "loss_scale": "fp16", "nf4": "qlora", "attention": "", "feed_forward": "feed_forward", "lora": "lora", "experts": "moe",
            "router": "moe", "chunked_loss": "chunked_loss", "decoder": "",
        },
    ),
    "data": ("Samples of token ids, in the order of ``strategist run``.", {"order": "", "tokens": ""}),
    "checkpoint": (
        "First weights, weights of Hugging Face, and checkpoints from which any plan of the same model can resume.",
        {"names": "hugging_face", "first_weights": "", "hugging_face": "hugging_face and not qlora", "save": ""},
    ),
    "train": (
        "Trains the model of model.py with the parallelism of plan.py; train.sh starts it.",
        {
            "tensor_parallel": "tp", "expert_parallel": "expert_mesh", "context_parallel": "cp_gathered", "recompute": "selective",
            "build": "", "pipeline": "pp", "optimizer": "several_meshes", "step": "", "main": "",
        },
    ),
}  # fmt: skip
"""Each file with its docstring, and its blocks in order with their conditions. A file may import from the files before it."""

_IF, _END = re.compile(r"\s*# if: (.+)"), re.compile(r"\s*# end: ")


def assemble(conditions: Set[str], constants: Set[str]) -> tuple[dict[str, str], set[str]]:
    """The text of each file under these conditions, and the subset of ``constants`` (names in ``plan.py``) that they use."""
    files, used, defined = {}, set[str](), {"plan": set(constants)}
    for name, (docstring, blocks) in FILES.items():
        selected = [block for block, condition in blocks.items() if not condition or holds(condition, conditions)]
        parsed = [_parsed(selected_lines(block_text(name, block), conditions)) for block in selected]
        body = re.sub(r"\n{4,}", "\n\n\n", "\n\n\n".join(block.body for block in parsed))
        names = frozenset[str]().union(*(block.names for block in parsed))
        gap = "\n\n" if parsed[0].starts_with_assignment else "\n\n\n"
        imports = [node for block in parsed for node in block.imports]
        files[name] = f'"""{docstring}"""\n\n{_imports(imports, names, defined)}{gap}{body}\n'
        defined[name] = set().union(*(block.defined for block in parsed))
        used |= names & constants
    return files, used


@cache
def block_text(name: str, block: str) -> str:
    """A block of a file, with all its conditional lines."""
    return (data_dir("profiles") / "formats" / "pytorch" / name / f"{block}.py").read_text(encoding="utf-8")


def selected_lines(text: str, conditions: Set[str]) -> str:
    """The lines of a block whose conditions hold."""
    holding: list[bool] = []
    lines = []
    for line in text.splitlines():
        if match := _IF.fullmatch(line):
            holding.append(holds(match[1], conditions))
        elif _END.match(line):
            holding.pop()
        elif all(holding):
            lines.append(line)
    return "\n".join(lines)


def holds(condition: str, conditions: Set[str]) -> bool:
    """Whether a condition is true: ``NAME``, ``not NAME``, or several of these joined by ``and``."""
    return all((part.removeprefix("not ") in conditions) != part.startswith("not ") for part in condition.split(" and "))


@frozen
class _Block:
    """The imports of a block and the code after them, with the ``names`` that this code uses and those that it defines."""

    imports: tuple[ast.Import | ast.ImportFrom, ...]
    body: str
    names: frozenset[str]
    defined: frozenset[str]
    starts_with_assignment: bool


@cache
def _parsed(text: str) -> _Block:
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    last = max((node.end_lineno or node.lineno for node in imports), default=0)
    code = [node for node in tree.body if node.lineno > last]
    return _Block(
        imports=tuple(imports),
        body="\n".join(text.splitlines()[last:]).strip("\n"),
        names=frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)),
        defined=frozenset(_defined_names(code)),
        starts_with_assignment=isinstance(code[0], ast.Assign),
    )


def _defined_names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements define."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id


def _imports(nodes: Sequence[ast.Import | ast.ImportFrom], used: Set[str], defined: Mapping[str, Set[str]]) -> str:
    """Import statements of the names in use: standard library, other packages, and the script's own files."""
    imported: dict[str, set[str]] = {}
    for node in nodes:
        names = {ast.unparse(item) for item in node.names if (item.asname or item.name).partition(".")[0] in used}
        if isinstance(node, ast.ImportFrom) and names:
            imported.setdefault(node.module or "", set()).update(names)
        elif isinstance(node, ast.Import):
            imported |= {f"import {item}": set() for item in names}
    groups = (
        {module: names for module, names in imported.items() if _is_standard(module)},
        {module: names for module, names in imported.items() if not _is_standard(module)},
        {module: names & used for module, names in defined.items() if names & used},
    )
    return "\n\n".join("\n".join(_statements(group)) for group in groups if group)


def _is_standard(module: str) -> bool:
    return module.removeprefix("import ").partition(".")[0].partition(" ")[0] in sys.stdlib_module_names


def _statements(group: Mapping[str, Set[str]]) -> Iterator[str]:
    """Import statements in the order of isort; long ones are wrapped."""
    yield from sorted(module for module in group if module.startswith("import "))
    for module in sorted(module for module in group if not module.startswith("import ")):
        names = sorted(group[module], key=lambda name: (not name.isupper(), name[:1].islower(), name))
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield f"from {module} import ("
            yield from textwrap.wrap(", ".join(names) + ",", WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
            yield ")"
