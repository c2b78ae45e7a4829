"""Models by name, and shape files."""

import json

import pytest

from strategist.errors import FileError, InputError, StrategistError
from strategist.files import yaml_file
from strategist.profiles import catalog
from strategist.profiles.models import hub_name, presets, resolve_model

SHAPE = "layers: 2\nhidden_size: 64\nheads: 4\nkv_heads: 2\nhead_size: 16\nffn_size: 128\nvocab_size: 100\n"


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("qwen2.5-32b", "qwen2.5-32b"),
        ("Qwen2.5-32B", "qwen2.5-32b"),
        ("qwen_2.5_32b", "qwen2.5-32b"),
        ("LLaMA-3-8B", "llama3-8b"),
        ("llama3.1-8b", "llama3-8b"),
        ("gptoss20b", "gpt-oss-20b"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("DeepSeek V3", "deepseek-v3"),
    ],
)
def test_model_names_are_matched_loosely(name, preset):
    assert resolve_model(name).shape.name == preset


def test_a_bare_size_resolves_to_the_documented_preset_with_a_note():
    resolved = resolve_model("32b")
    assert resolved.shape.name == "qwen2.5-32b"
    assert "32b is resolved to qwen2.5-32b" in resolved.note
    assert resolve_model("32B").shape == resolved.shape


def test_every_size_and_alias_resolves_to_a_preset():
    names = yaml_file.load(catalog.profile_path("models", "names")).data
    for name, preset in {**names["sizes"], **names["aliases"], **names["text_parts"]}.items():
        assert preset in presets()
        assert resolve_model(name).shape.name == (name if "/" in name and name != hub_name(preset) else preset)


def test_every_preset_is_in_the_file_named_after_its_prefix():
    for stem in catalog.profile_stems("models"):
        document = yaml_file.load(catalog.profile_path("models", stem))
        assert document.data["source"]
        for preset in document.data["presets"]:
            assert catalog.normalized_name(preset).startswith(catalog.normalized_name(stem))


def test_normalized_model_names_are_unique():
    names = yaml_file.load(catalog.profile_path("models", "names")).data
    spelled = [catalog.normalized_name(name) for name in (*presets(), *names["sizes"], *names["aliases"], *names["text_parts"])]
    assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize("name", ["qwen2-57b", "llama3-9b", "lama3-8b", "33b"])
def test_an_unknown_name_gets_similar_names_and_accepted_forms(name):
    with pytest.raises(InputError, match=r"did you mean .*config\.json") as error:
        resolve_model(name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_separators_between_digits_are_part_of_the_name():
    with pytest.raises(InputError):
        resolve_model("qwen25-7b")


def test_a_name_without_similar_ones_gets_the_accepted_forms():
    with pytest.raises(InputError, match="YAML shape"):
        resolve_model("zzzzzz")


def test_the_hub_id_of_a_preset_needs_no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    resolved = resolve_model("Qwen/Qwen2.5-32B")
    assert resolved.shape == resolve_model("qwen2.5-32b").shape
    assert "preset qwen2.5-32b" in resolved.note


def test_a_shape_file_defines_a_model(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(SHAPE + "source: my head\n")
    shape = resolve_model(str(file)).shape
    assert (shape.name, shape.layers, shape.tied_embeddings) == ("mine", 2, False)
    file.write_text(SHAPE + "name: other\nmoe: {experts: 4, experts_per_token: 2, expert_ffn_size: 32}\n")
    shape = resolve_model(str(file)).shape
    assert shape.name == "other"
    assert shape.moe is not None
    assert shape.moe.experts == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers: 2\n", "'ffn_size' is missing"),
        (SHAPE + "colour: red\n", "unknown key 'colour'"),
        (SHAPE.replace("layers: 2", "layers: two"), "int is needed"),
        (SHAPE.replace("kv_heads: 2", "kv_heads: 3"), "must divide heads"),
        (SHAPE.replace("layers: 2", "layers: 0"), "at least 1"),
        ("- 1\n", "must be a mapping"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_an_invalid_shape_file_raises_one_line_with_its_name(tmp_path, text, words):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(FileError, match=words) as error:
        resolve_model(str(file))
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


def test_a_config_file_and_its_folder_give_the_same_shape(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 96, "vocab_size": 100}
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    assert resolve_model(str(folder)).shape == resolve_model(str(folder / "config.json")).shape
    assert resolve_model(str(folder)).shape.name == "model"


def test_a_preset_has_priority_over_a_folder_unless_given_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert resolve_model("tiny").shape.name == "tiny"
    with pytest.raises(FileError, match=r"config\.json"):
        resolve_model("./tiny")


@pytest.mark.parametrize("name", ["", "  ", "nothing/here/at-all", "/nowhere/model", "nothing.json", "nothing.yaml"])
def test_a_missing_model_raises_a_one_line_error(name):
    with pytest.raises(StrategistError) as error:
        resolve_model(name)
    assert "\n" not in str(error.value)
