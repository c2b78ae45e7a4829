"""Names, docstrings, comments and pages use the field's words: removed words stay out."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PERSONS = ("nobody", "somebody", "whoever", "whose turn")
RIDDLES = ("dealt in turn", "straight road", "ways around", "hangs together")
BANNED = re.compile(r"\b(?:" + "|".join((*PERSONS, *RIDDLES)) + r")\b", re.IGNORECASE)
IN_CODE = re.compile(
    BANNED.pattern + r"|\b(?:is told|are told|says so|(?:is|are) taken as|fences off|(?:a|the) desk)\b", re.IGNORECASE
)
MODULES = re.compile(
    "ways|instants|standing|testimony|blame|contenders|handfuls|adopted|capability_adopted|desk|room|keeper|spelled|drawn|watched|adopt|"
    "finals|overview|settle|react|acting|saved|view|events|held|belief|hopeless|patience|beside|outlook|prospects|keeps|salvage|"
    "meeting|ends|wording|learned|warm|sheet|scene"
)
"""Old names of modules."""
NAMES = re.compile(
    r"(?:^|_)(?:nobody|somebody|whoever|desk|keeper|patience|wording|sheet|shelves|shelf|voices?|late_update|testimony|"
    "blame|hopeless|contenders?|salvaged?|purse|laggard|scenes?|belief|unjudged|adopted|walks)(?:_|$)"
)
"""Words of old names of classes and functions."""
RIDDLE_WORDS = {
    "said", "told", "asked", "stands", "stood", "beside", "besides", "alike", "apart", "theirs", "ours", "whose", "what",
    "which", "heard", "fullest",
}  # fmt: skip
"""Words that no identifier contains as a whole word."""
DOCUMENT_FIELDS = {"strategist/contract/listings.py: what"}
"""Identifiers with such a word that are fields of published JSON documents."""
SETTINGS = re.compile(r"\b(?:late_update|postpone_gradient_sync|recompute:? alternate)\b")
"""Old names of settings and of their values."""


def _texts(path: Path, source: str) -> Iterator[str]:
    """Docstrings, also those of constants, and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _sources() -> list[tuple[Path, str]]:
    halves = ("strategist", "runtime", "benchmarks", "examples")
    return [(path, path.read_text()) for half in halves for path in sorted((ROOT / half).rglob("*.py"))]


def test_code_and_messages_use_no_removed_word() -> None:
    lines = [(path, line) for path, source in _sources() for line in source.splitlines()]
    assert [f"{path.relative_to(ROOT)}: {line}" for path, line in lines if BANNED.search(line)] == []


def test_docstrings_and_comments_use_no_removed_word() -> None:
    suspects = [(path, source) for path, source in _sources() if IN_CODE.search(" ".join(source.split()))]
    assert [
        f"{path.relative_to(ROOT)}: {text}" for path, source in suspects for text in _texts(path, source) if IN_CODE.search(text)
    ] == []


def test_no_module_class_or_function_has_a_removed_name() -> None:
    defined = re.compile(r"^\s*(?:class|(?:async )?def) (\w+)", re.MULTILINE)
    snake = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
    assert [path.relative_to(ROOT) for path, _ in _sources() if MODULES.fullmatch(path.stem)] == []
    found = [(path, name) for path, source in _sources() for name in defined.findall(source)]
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in found if NAMES.search(snake.sub("_", name).lower())] == []


def _identifiers(tree: ast.AST) -> Iterator[str]:
    """Names that a module defines: variables, parameters, attributes, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield name


def test_identifiers_have_no_riddle_words() -> None:
    found = {f"{path.relative_to(ROOT)}: {name}": name for path, source in _sources() for name in _identifiers(ast.parse(source))}
    words = {where: set(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower().split("_")) for where, name in found.items()}
    assert {where for where in found if words[where] & RIDDLE_WORDS} == DOCUMENT_FIELDS


def test_pages_use_no_removed_word() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert [f"{path.name}: {line}" for path in pages for line in path.read_text().splitlines() if BANNED.search(line)] == []


def test_no_setting_has_a_removed_name() -> None:
    places = ("strategist", "runtime", "cards", "profiles", "docs")
    files = [
        path
        for place in places
        for path in sorted((ROOT / place).rglob("*"))
        if path.suffix in (".py", ".yaml", ".json", ".md") and ROOT / "docs" / "reference" not in path.parents
    ]
    assert [str(path.relative_to(ROOT)) for path in files if SETTINGS.search(path.read_text())] == []


def test_names_of_tests_have_no_pronoun_riddles() -> None:
    riddles = re.compile(r"def (test_\w*_(?:told|said|speaks|whoever|whatever|nobody|somebody|says_so)(?:_\w*)?)\(")
    sources = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}
    assert [f"{path}: {name}" for path, source in sources.items() for name in riddles.findall(source)] == []
