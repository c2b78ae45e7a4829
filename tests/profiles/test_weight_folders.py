"""Folders with weights for the model of a plan."""

import json

import pytest

from strategist.errors import InputError
from strategist.profiles.huggingface import read_config
from strategist.profiles.weight_folders import check_export, check_weights

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 100, "rms_norm_eps": 1e-5,
}  # fmt: skip


def folder(path, **change):
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**LLAMA, **change}), encoding="utf-8")
    return path


def test_weights_of_an_equal_model_with_another_name_are_accepted(tmp_path):
    model = read_config(folder(tmp_path / "a"))
    check_weights(str(folder(tmp_path / "b")), model)


@pytest.mark.parametrize(
    ("change", "name"), [({"num_hidden_layers": 3}, "layers 3"), ({"rms_norm_eps": 1e-6}, "norm_epsilon 1e-06")]
)
def test_weights_of_another_model_are_refused_with_the_difference(tmp_path, change, name):
    model, other = read_config(folder(tmp_path / "a")), str(folder(tmp_path / "b", **change))
    with pytest.raises(InputError, match=rf"{name}, .*plan with --model {other}"):
        check_weights(other, model)


def test_weights_are_not_exported_into_a_folder_with_weights(tmp_path):
    check_export(str(tmp_path / "new"))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match="holds weights already"):
        check_export(str(tmp_path))
