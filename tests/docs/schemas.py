"""Reference page of JSON documents: each document, and each type with its fields."""

from collections.abc import Iterator
from typing import Any

from strategist.api.documents import DOCUMENTS, schema_of
from strategist.report.reference.markdown import page, prose, table

Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """The page, by its path."""
    schemas = {name: schema_of(name) for name in DOCUMENTS}
    types = {kind: schema for found in schemas.values() for kind, schema in found.get("$defs", {}).items()}
    types |= {schema["title"]: schema for schema in schemas.values() if "properties" in schema}
    documents = (
        [f"[{name}](../schemas/{name}.schema.json)", _holds(schema), DOCUMENTS[name][1]] for name, schema in schemas.items()
    )
    text = page(
        "# Documents",
        "The fields of what commands print with `--json` and leave in files, by their [JSON Schemas](../schemas/README.md).",
        table(("schema", "type", "comes from"), documents),
        "A field marked *later* may be missing: it came later, and is written only where it says something.",
        *(block for kind in sorted(types) for block in _type(kind, types[kind], set(types))),
    )
    return {"documents.md": text}


def _holds(schema: Schema) -> str:
    """The type of a document's value, or of its items."""
    return _words({"$ref": schema["title"]} if "properties" in schema else schema)


def _type(kind: str, schema: Schema, known: set[str]) -> Iterator[str]:
    yield f"## {kind}"
    yield prose(schema["description"].replace("``", "`"))
    required = schema["required"]
    yield table(
        ("field", "is", ""),
        ([f"`{name}`", _words(field), "" if name in required else "*later*"] for name, field in schema["properties"].items()),
    )


def _words(field: Schema) -> str:
    """The type of a field in words, with links."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_words(one) for one in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"always `{field['const']}`"
    match field.get("type"):
        case "array" if "prefixItems" in field:
            return f"({', '.join(_words(one) for one in field['prefixItems'])})"
        case "array":
            return f"list of {_words(field['items'])}"
        case "object":
            return f"by name: {_words(field['additionalProperties'])}"
        case kind:
            return str(kind or "anything")
