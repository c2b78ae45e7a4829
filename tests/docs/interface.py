"""Reference page of the Python interface: every function with its types and docstring."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType

import strategist
from strategist import api
from strategist.report.reference.markdown import bullets, fence, page, prose

SECTIONS = re.compile(r"^(Args|Raises):\n", re.MULTILINE)


def pages() -> dict[str, str]:
    """The page: names of `strategist`, and every function."""
    return {"python.md": page(*_blocks())}


def _blocks() -> Iterator[str]:
    yield "# Python interface"
    yield "[Python](../api.md) leads through it by examples."
    yield "## What `strategist` hands out"
    yield bullets(f"`strategist.{name}`: {_where(name)}" for name in sorted(strategist.__all__))
    yield "## All use-cases"
    yield "Of `strategist.api`. `cards` are folders beside the shipped ones, `calibration` is the file of what a study taught."
    for name in sorted(set(api.__all__) | set(strategist.__all__)):
        found = inspect.unwrap(getattr(api, name, None))  # some are cached
        if isinstance(found, FunctionType):
            yield from _function(name, found)


def _where(name: str) -> str:
    """A link to a function below, or the first sentence of the docstring."""
    found = getattr(strategist, name)
    if isinstance(found, FunctionType):
        return f"[a use-case](#{name.lower()})"
    description = " ".join((found.__doc__ or "").split()).replace("``", "`")
    return prose(re.split(r"(?<=[.:;]) ", description)[0].rstrip(".:;"))


def _function(name: str, function: FunctionType) -> Iterator[str]:
    yield f"### {name}"
    yield fence(_signature(name, function), "python")
    words, _, example = (inspect.getdoc(function) or "").partition("\n>>> ")
    description, *sections = SECTIONS.split(words)
    yield _plain(description)
    for title, entries in zip(sections[::2], sections[1::2], strict=True):
        items = re.split(r"\n(?=\S)", textwrap.dedent(entries).strip())
        yield {"Args": "Arguments:"}.get(title, f"{title}:")
        yield bullets(_plain(item) for item in items)
    if example:
        yield fence(f">>> {example}", "python")


def _signature(name: str, function: FunctionType) -> str:
    """The signature in the source, wrapped to the page's width."""
    [found] = [node for node in ast.parse(textwrap.dedent(inspect.getsource(function))).body if isinstance(node, ast.FunctionDef)]
    arguments = re.sub(
        r"'([^']*[A-Z][^']*)'", r"\1", ast.unparse(found.args)
    )  # unquotes names that are imported for type checking only
    returned = ast.unparse(found.returns).strip("'") if found.returns else "None"
    line = f"{name}({arguments}) -> {returned}"
    return line if len(line) <= 120 else "\n".join(textwrap.wrap(line, 120, subsequent_indent="    ", break_long_words=False))


def _plain(text: str) -> str:
    """A docstring as Markdown."""
    return prose(re.sub(r":func:`(\w+)`", r"`\1`", text.replace("``", "`")))
