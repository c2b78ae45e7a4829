"""Nanotron's dataclasses, read from their source: ``nanotron.py check FILE...`` prints the missing names of each file; its package
cannot be imported. ``nanotron.py names [CHECKOUT]`` prints the names that it has, those of a checkout's newer classes too."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDERS = [Path(folder) / "nanotron" / "config" for folder in sys.path if (Path(folder) / "nanotron" / "config").is_dir()]
Schema = dict[str, dict[str, tuple[str, bool]]]


def classes(folder: Path) -> Schema:
    """Fields by class, each with its type and whether it is required; inherited fields come first."""
    found: Schema = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                items = [item for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
                own = {item.target.id: (ast.unparse(item.annotation), item.value is None) for item in items}  # type: ignore[union-attr]
                above = [found.get(base.id, {}) for base in node.bases if isinstance(base, ast.Name)]
                found[node.name] = {name: kind for fields in (*above, own) for name, kind in fields.items()}
    return found


def names(schema: Schema, kind: str = "Config", prefix: str = "") -> Iterator[str]:
    """The dotted names below a class; for a union type those of all its classes."""
    for name, (inner, _) in schema[kind].items():
        yield prefix + name
        if "list" not in inner.lower():
            for found in _within(schema, inner):
                yield from names(schema, found, f"{prefix}{name}.")


def _within(schema: Schema, text: str) -> list[str]:
    text = "LlamaConfig Qwen2Config Starcoder2Config" if "NanotronConfigs" in text else text
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()
    return [word for word in words if word in schema and word not in ("Config", "Path")]


def missing(schema: Schema, data: dict[str, Any], kind: str = "Config", prefix: str = "") -> Iterator[str]:
    """Required names that are missing from sections of the file."""
    for name, (inner, needed) in schema[kind].items():
        value = data.get(name)
        if name not in data and needed and "Optional" not in inner:
            yield prefix + name
        choices = _within(schema, inner) if isinstance(value, dict) else []
        if choices:
            lacks = [list(missing(schema, value, choice, f"{prefix}{name}.")) for choice in choices]
            yield from min(lacks, key=len)


if __name__ == "__main__":
    schema = classes(FOLDERS[0])
    if sys.argv[1] == "names":
        newer = [Path(folder) / "src" / "nanotron" / "config" for folder in sys.argv[2:]]
        print(json.dumps(sorted({name for each in (schema, *map(classes, newer)) for name in names(each)})))
    else:
        files = (yaml.safe_load(Path(path).read_text(encoding="utf-8")) for path in sys.argv[2:])
        print(json.dumps([list(missing(schema, data)) for data in files]))
