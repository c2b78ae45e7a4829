"""Published JSON Schemas equal the generated ones, each with its version."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contract.samples import CLUSTER, MEASUREMENT, PLAN
from strategist.api.documents import DOCUMENTS, schema_of
from strategist.contract import codec
from strategist.contract.codec import VERSION

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "schemas"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_published_schema_is_the_generated_one(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:strategist:schema:{name}:{VERSION}"
    assert json.loads((PUBLISHED / f"{name}.schema.json").read_text()) == schema, "make docs"


def test_no_other_schema_is_published() -> None:
    assert {path.name for path in PUBLISHED.glob("*.json")} == {f"{name}.schema.json" for name in DOCUMENTS}


@pytest.mark.parametrize("value", [MEASUREMENT, PLAN, CLUSTER], ids=lambda value: type(value).__name__)
def test_values_validate_against_their_schemas(value: Any) -> None:
    by_type = {kind: name for name, (kind, _) in DOCUMENTS.items()}
    jsonschema.validate(json.loads(codec.dumps(value)), schema_of(by_type[type(value)]))


def test_schema_definitions_with_one_name_are_equal() -> None:
    """Otherwise a document that contains both types would be ambiguous."""
    types: dict[str, Any] = {}
    for name in DOCUMENTS:
        for kind, found in schema_of(name).get("$defs", {}).items():
            assert types.setdefault(kind, found) == found, (name, kind)
