"""Weights in Hugging Face's layout: the loss equals that of transformers, and invalid weights are refused."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.weights import seeded, source

from strategist.errors import FileError, InputError
from strategist.profiles.huggingface import read_config

from ..hugging_face import SIZES, loss, save_model

CPU = torch.device("cpu")
TOKENS = 24
pytestmark = pytest.mark.torch


def decoder(folder, shape=None):
    shape = shape or read_config(folder)
    with torch.device("meta"):
        model = Decoder(shape)
    seeded.materialise(model, shape, TOKENS, 0, CPU, str(folder))
    return model


def own_loss(model, tokens):
    with torch.no_grad():
        logits = model(tokens)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).item()


@pytest.mark.parametrize("name", SIZES)
def test_the_decoder_has_the_loss_of_transformers(name, tmp_path):
    theirs = save_model(name, tmp_path)
    tokens = torch.randint(64, (2, TOKENS))
    assert own_loss(decoder(tmp_path), tokens) == pytest.approx(loss(theirs, tokens), rel=1e-5)


def test_weights_in_several_files_are_loaded(tmp_path):
    theirs = save_model("llama", tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    tokens = torch.randint(64, (2, TOKENS))
    assert own_loss(decoder(tmp_path), tokens) == pytest.approx(loss(theirs, tokens), rel=1e-5)


def test_rows_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "BLOCK_ROWS", 5)
    save_model("gpt2", tmp_path)
    shape, name = read_config(tmp_path), "layers.1.attention.key.weight"  # the second of three in one tensor
    whole = dict(decoder(tmp_path).named_parameters())[name]
    blocks = list(source.rows_of(str(tmp_path), shape)(name, 32, range(3, 20)))
    assert [start for start, _ in blocks] == [3, 8, 13, 18]
    assert torch.equal(torch.cat([values for _, values in blocks]), whole[3:20])


def changed(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_a_missing_tensor_is_reported(tmp_path):
    save_model("llama", tmp_path)
    changed(tmp_path, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(FileError, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        decoder(tmp_path)


def test_a_tensor_with_another_shape_is_reported(tmp_path):
    save_model("gpt2", tmp_path)
    shape = replace(read_config(tmp_path), ffn_size=100)
    with pytest.raises(FileError, match=r"mlp\.c_fc\.weight has the shape \[32, 128\], .* needs \[32, 100\]"):
        decoder(tmp_path, shape)


def test_a_parameter_that_the_folders_model_type_does_not_have_is_reported(tmp_path):
    save_model("gpt2", tmp_path)
    with pytest.raises(
        InputError, match=r"have no place for layers\.0\.attention\.query_norm\.weight of model .*; plan that folder"
    ):
        decoder(tmp_path, replace(read_config(tmp_path), qk_norm=True))


def test_unsupported_model_types_and_dtypes_are_reported(tmp_path):
    save_model("llama", tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "gemma"}))
    with pytest.raises(InputError, match=r"model_type 'gemma'.*llama"):
        decoder(tmp_path, replace(read_config(tmp_path), activation=""))
    changed(tmp_path, lambda tensors: tensors.update({"model.norm.weight": tensors["model.norm.weight"].to(torch.float8_e4m3fn)}))
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "llama"}))
    with pytest.raises(FileError, match=r"model\.norm\.weight is of type F8_E4M3"):
        decoder(tmp_path)


def test_a_folder_without_valid_weights_is_an_error(tmp_path):
    save_model("llama", tmp_path)
    shape = read_config(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(FileError, match="cannot be read"):
        decoder(tmp_path, shape)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has neither model\.safetensors nor"):
        decoder(tmp_path, shape)
