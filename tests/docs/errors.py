"""Reference page of all user errors, extracted from the code."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from strategist.cli.parser import UsageError
from strategist.contract.codec import CodecError
from strategist.contract.json_document import DocumentError, NoJsonError
from strategist.errors import FileError, InputError
from strategist.expr.parse import ExpressionError
from strategist.programs.log_pattern import PatternError

ROOT = Path(__file__).parents[2]
CLASSES = {
    kind.__name__: kind
    for kind in (InputError, FileError, CodecError, DocumentError, NoJsonError, UsageError, ExpressionError, PatternError)
}
POINTING = ("error", "refuse")
DOCUMENTS = ("document", "self.document", "source", "entries.source", "self")
"""Methods that create an error from a place and a message, and their objects."""
VERBS = """add allow ask begin build change choose close compare copy correct cut describe drop end export fix free give import
install keep leave let log look make mark measure merge move name open pass plan point prove put quote raise read reduce rely remove
rename repair restore return run save say see set shorten simulate split start state stop take tell try tune turn upgrade use wait
write"""
WAYS = "|".join(["did you mean", "known are", "its values are", "there are", "such as", r"strategist \w+", *VERBS.split()])
STEP = re.compile(rf"(?:[;:,?] |^)(?:or |else |and )?(?:(?:{WAYS})\b|…)|…$|: .* is needed")
"""The beginning of a next step; stating what is needed counts as one."""
HEAD = """# Errors

All errors that a person can cause. Each is one line at the shell,
begins with `strategist: ` and the value or the place (`FILE:LINE:COLUMN`), and ends with what to do; the command's exit code is 2.
Through the Python interface each is an exception, of the class that heads its table, below `StrategistError`; its `code` is what
[agents](../agents.md) read too. `…` stands for what was given, or for what is known of it. Findings of cards have codes and
[pages of their own](lint/README.md).
"""


@dataclass(frozen=True, kw_only=True)
class Error:
    """A place in the code that raises an error."""

    kind: str
    file: str
    line: int
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        return "; ".join(self.parts)


@cache
def errors() -> tuple[Error, ...]:
    """All errors that are raised, file by file."""
    return tuple(_errors())


def _errors() -> Iterator[Error]:
    for path in sorted((ROOT / "strategist").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(f"{name}(" in text for name in (*CLASSES, *POINTING)):
            continue
        nodes = [*ast.walk(ast.parse(text))]
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        named = {name.id: node.value for node in assigned for name in node.targets if isinstance(name, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Call) and (found := _message(node)):
                kind, values = found
                texts = tuple(_text(value, named) for value in values)
                yield Error(kind=kind, file=path.relative_to(ROOT).as_posix(), line=node.lineno, parts=texts)


def _message(node: ast.Call) -> tuple[str, list[ast.expr]] | None:
    match node.func:
        case ast.Name(id=name) if name in CLASSES:
            if name == "InputError":
                return name, node.args[:3]
            return name, node.args[1:2] if name == "FileError" else node.args[:1]
        case ast.Attribute(value=owner, attr=name) if name in POINTING and ast.unparse(owner) in DOCUMENTS:
            return "FileError", node.args[1:2]
    return None


def _text(node: ast.expr, named: dict[str, ast.expr], deep: int = 0) -> str:
    """A text in the code, with … for computed parts."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.IfExp(body=one, orelse=other):
            return f"{_text(one, named, deep)}, or: {_text(other, named, deep)}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, named, deep) + _text(right, named, deep)
        case ast.Name(id=name) if name in named and deep < 2:
            return _text(named[name], named, deep + 1)
    return "…"


def without_step(error: Error) -> bool:
    """Whether the error has no next step."""
    return not (len(error.parts) == 3 and error.parts[2]) and not STEP.search(error.text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def pages() -> dict[str, str]:
    """The catalogue: by class, each message once, with its file."""
    found = errors()
    lines = [HEAD]
    for kind in sorted({error.kind for error in found}):
        rows = sorted({(error.text, error.file) for error in found if error.kind == kind and set(error.text) - set("…; ,or:")})
        lines += [f"## {kind}\n", f"Code: `{CLASSES[kind].code}`.\n", "| message | said in |", "| --- | --- |"]
        lines += [f"| {_cell(text)} | `{file}` |" for text, file in rows]
        lines.append("")
    return {"errors.md": "\n".join(lines)}
