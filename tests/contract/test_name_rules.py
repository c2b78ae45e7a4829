"""Names and ids in documents are validated when read, so that they are safe in generated scripts."""

import json
from pathlib import Path

import pytest
from formats.hostile_texts import HOSTILE
from formats.plans import a_plan

from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.errors import FileError, InputError
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model

NAMES = (("model", "name"), ("cluster", "name"), ("cluster", "device", "name"))


def with_name(place: tuple[str, ...], text: str) -> str:
    """A plan's document in which the value at ``place`` is ``text``."""
    data = json.loads(codec.dumps(a_plan("pytorch")))
    inside = data
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = text
    return json.dumps(data)


def error(document: str) -> str:
    """The reason that a document is not a valid plan; empty if it is one."""
    try:
        codec.parse(Plan, document, "plan.json")
    except FileError as found:
        return str(found)
    return ""


def test_names_with_unprintable_characters_are_refused() -> None:
    found = {(place, text): error(with_name(place, text)) for text in HOSTILE for place in NAMES}
    refused = {key: message for key, message in found.items() if message}
    assert {text for _, text in refused} == {text for text in HOSTILE if not text.isprintable()}
    for key, message in refused.items():
        assert "another character that cannot be shown; write the name in printable characters" in message, key
        assert "\n" not in message, key


@pytest.mark.parametrize("text", [text for text in HOSTILE if set(text) & set(" \n$`;&|<>(){}'\"\\#*~=")])
def test_ids_with_shell_characters_are_refused(text: str) -> None:
    with pytest.raises(FileError, match="is not an id: it has up to 64 letters"):
        codec.parse(Plan, with_name(("id",), text), "plan.json")


def test_names_in_model_and_cluster_files_are_validated(tmp_path: Path) -> None:
    model, cluster = tmp_path / "model.yaml", tmp_path / "cluster.yaml"
    shape = "layers: 2, hidden_size: 64, heads: 4, kv_heads: 4, head_size: 16, ffn_size: 128, vocab_size: 256"
    model.write_text(f'{{name: "a\\nb", {shape}}}\n')
    cluster.write_text('name: "a\\nb"\ndevice: h100\nnodes: 1\ngpus_per_node: 2\n')
    with pytest.raises((FileError, InputError), match=r"model name 'a.nb': holds a line break"):
        resolve_model(str(model))
    with pytest.raises((FileError, InputError), match=r"cluster name 'a.nb': holds a line break"):
        resolve_cluster(str(cluster))
