"""Hub ids of known models: variants, copies and hints, without a network."""

from dataclasses import replace

import pytest

from strategist.errors import InputError
from strategist.profiles import model_names
from strategist.profiles.models import find_preset, hub_name, presets, resolve_model


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(
    ("hub_id", "preset"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("NousResearch/Meta-Llama-3.1-8B", "llama3-8b"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
    ],
)
def test_variants_and_copies_of_known_models_need_no_network(hub_id, preset):
    resolved = resolve_model(hub_id)
    named = preset if hub_id == hub_name(preset) else hub_id  # exports load weights by this name
    assert resolved.shape == replace(resolve_model(preset).shape, name=named)
    assert preset in resolved.note


def test_a_model_with_images_has_a_note_on_what_is_planned():
    resolved = resolve_model("google/gemma-3-27b-it")
    assert "preset gemma-3-27b" in resolved.note
    assert "only the text part" in resolved.note


@pytest.mark.parametrize("hub_id", ["someone/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct-long", "meta-llama/Llama-3.1-8B-reward"])
def test_another_organisation_or_ending_is_another_model(hub_id):
    assert find_preset(hub_id) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("someone/Llama-3.1-8B-Instruct", "did you mean llama3-8b?"),
        ("someone/Qwen2.5-Math-7B-RoPE-300k", "did you mean qwen2.5-7b?"),
        ("/data/Qwen2.5-VL-3B-Instruct", "did you mean qwen2.5-3b?"),
        ("someone/DeepSeek-R1-tiny", None),
    ],
)
def test_an_unknown_id_or_folder_gets_a_hint_by_its_name(name, hint):
    with pytest.raises(InputError) as error:
        resolve_model(name)
    assert (hint or "config.json") in str(error.value)
    assert ("did you mean" in str(error.value)) == bool(hint)


def test_copies_of_ids_with_equal_base_names_have_one_shape():
    for owners in model_names._ids_by_base_name().values():
        assert len({model_names.hub_presets()[hub_id] for hub_id in owners.values()}) == 1


def test_the_hub_id_of_a_preset_is_known_to_have_its_shape():
    ids = {preset: hub_name(preset) for preset in presets()}
    for preset, hub_id in ids.items():
        if "/" in hub_id:
            assert resolve_model(hub_id).shape == resolve_model(preset).shape
