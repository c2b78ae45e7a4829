"""The page of documents contains all fields of their schemas."""

from docs.schemas import pages
from strategist.api.documents import DOCUMENTS, schema_of


def test_every_field_of_every_document_is_on_the_page() -> None:
    [text] = pages().values()
    for name in DOCUMENTS:
        assert text.count(f"\n| [{name}](../schemas/{name}.schema.json) |") == 1
        schema = schema_of(name)
        own = {schema["title"]: schema} if "properties" in schema else {}
        for kind, found in {**own, **schema.get("$defs", {})}.items():
            part = text.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
            assert [field for field in found["properties"] if f"| `{field}` |" not in part] == []
