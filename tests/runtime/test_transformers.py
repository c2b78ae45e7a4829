"""Models of transformers train on two ranks like on one, with the weights of their files and their own code."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from strategist_runtime.mesh import Meshes
from strategist_runtime.training.trainer import make_trainer
from transformers import AutoConfig, AutoModelForCausalLM

from strategist.contract.hugging_face import check_architecture, disagreements
from strategist.contract.measurement import TrialSettings
from strategist.errors import FileError, InputError

from .launch import NO_COMPILER, forked
from .plans import WORKLOAD, plan
from .transformers_rank import EXPORTED, SHAPES, cases, shape_of

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]
EXACT = 1e-5
CASES = dict(cases())
IN_EVERY_RUN = ("gemma2 fsdp", "phi3 tp")


def config_of(kind):
    shape = SHAPES[kind]
    config = AutoConfig.for_model(
        kind,
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocab_size,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        **({"n_inner": shape.ffn_size} if kind == "gpt2" else {"intermediate_size": shape.ffn_size}),
    )
    if kind not in ("gpt2", "phi3"):
        config.head_dim = shape.head_size
    return config


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder for each model type; that of Qwen 3 has weights, in several files."""
    path = tmp_path_factory.mktemp("transformers")
    for kind in SHAPES:
        config_of(kind).save_pretrained(path / kind)
    torch.manual_seed(5)
    AutoModelForCausalLM.from_config(config_of("qwen3"), dtype=torch.float32).save_pretrained(
        path / "qwen3", max_shard_size="300KB"
    )
    assert (path / "qwen3" / "model.safetensors.index.json").exists()
    return path


@pytest.fixture(scope="session")
def results(request, folder):
    """Results of each chosen case on one rank and on two; all cases share their processes."""
    items = [item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")]
    chosen = sorted({name for item in items for name in item.callspec.params.values() if name in {*CASES, *EXPORTED}})
    for world in (1, 2):
        done = forked(world, ["runtime.transformers_rank", str(folder), *chosen], **NO_COMPILER)
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{world}.json").read_text(encoding="utf-8")) for world in (1, 2)]


@pytest.mark.parametrize("name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.full) for name in CASES])
def test_two_ranks_train_like_one(name, results):
    wanted, found = (of_world[name] for of_world in results)
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=EXACT)
    np.testing.assert_allclose(found["grad_norms"], wanted["grad_norms"], rtol=EXACT)
    assert found["gradients"].keys() == wanted["gradients"].keys()
    for parameter, gradient in wanted["gradients"].items():
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(found["gradients"][parameter], gradient, rtol=0, atol=EXACT * scale, err_msg=parameter)


@pytest.mark.parametrize("kind", ["gemma2", pytest.param("qwen3", marks=pytest.mark.full)])
@pytest.mark.usefixtures("results")
def test_weights_exported_by_two_ranks_equal_those_exported_by_one(kind, folder):
    single, both = (
        AutoModelForCausalLM.from_pretrained(folder / f"{kind} of {world}", output_loading_info=True) for world in (1, 2)
    )
    assert not single[1]["missing_keys"]
    assert not single[1]["unexpected_keys"]
    wanted = dict(single[0].named_parameters())
    for name, parameter in both[0].named_parameters():
        torch.testing.assert_close(parameter, wanted[name], rtol=EXACT, atol=1e-6)


def test_loaded_weights_give_the_logits_of_transformers(folder):
    place = str(folder / "qwen3")
    settings = TrialSettings(hugging_face=place, weights=place)
    made = make_trainer(plan(model=shape_of("qwen3"), workload=WORKLOAD), settings, Meshes(), torch.device("cpu"))
    tokens = made.batch(0).tokens
    theirs = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
    torch.testing.assert_close(made.parts[0](tokens), theirs(tokens).logits)


def made_of(folder, kind, workload=WORKLOAD, **settings):
    chosen = TrialSettings(hugging_face=str(folder / kind), **settings)
    return make_trainer(plan(model=shape_of(kind), workload=workload), chosen, Meshes(), torch.device("cpu"))


def test_a_folder_without_the_weights_of_its_model_is_refused(folder):
    with pytest.raises(FileError, match=r"holds no tensor|shape"):
        made_of(folder, "gpt2", weights=str(folder / "qwen3"))


def test_lora_is_refused_for_models_without_linear_modules(folder):
    with pytest.raises(InputError, match="finds no linear"):
        made_of(folder, "gpt2", workload=replace(WORKLOAD, train="lora"))


@pytest.mark.parametrize("kind", SHAPES)
def test_a_configuration_matches_its_own_shape(kind, folder):
    assert list(disagreements(shape_of(kind), str(folder / kind))) == []


@pytest.mark.parametrize(
    ("field", "value"), [("layers", 3), ("hidden_size", 64), ("heads", 8), ("ffn_size", 128), ("vocab_size", 65)]
)
def test_a_mismatch_of_shape_and_configuration_is_a_one_line_error(field, value, folder):
    with pytest.raises(InputError) as caught:
        check_architecture(str(folder / "gemma2"), replace(shape_of("gemma2"), **{field: value}))
    assert f"model gemma2 has {field} {value}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_configuration_is_an_error(tmp_path):
    with pytest.raises(FileError, match=r"config\.json"):
        check_architecture(str(tmp_path), shape_of("llama"))
