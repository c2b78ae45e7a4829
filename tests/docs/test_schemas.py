"""The page of documents says all that their schemas say."""

from docs.schemas import PAGE, text
from strategist.api.documents import DOCUMENTS, schema_of


def test_the_published_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "make docs"


def test_every_field_of_every_document_is_there() -> None:
    said = text()
    for name in DOCUMENTS:
        schema = schema_of(name)
        own = {schema["title"]: schema} if "properties" in schema else {}
        for kind, found in {**own, **schema.get("$defs", {})}.items():
            part = said.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
            assert [field for field in found["properties"] if f"| `{field}` |" not in part] == []
