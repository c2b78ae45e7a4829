"""Hugging Face configurations: from files, the local cache and the Hub."""

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from strategist.errors import FileError, InputError
from strategist.profiles import huggingface
from strategist.profiles.models import resolve_model

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100, "rope_theta": 500000.0,
}  # fmt: skip


def write(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    for name in ("HF_HOME", "XDG_CACHE_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "hub"


def test_a_missing_required_key_is_named(tmp_path):
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        config = {name: value for name, value in LLAMA.items() if name != key} | {"model_type": "internlm2"}
        with pytest.raises(FileError, match=f"key '{key}' is missing"):
            huggingface.read_config(write(tmp_path / key, config))


def test_sizes_that_transformers_assumes_are_noted(tmp_path):
    config = {name: value for name, value in LLAMA.items() if name not in ("hidden_size", "num_key_value_heads")}
    resolved = resolve_model(str(write(tmp_path / "a", {**config, "num_attention_heads": 32})))
    assert (resolved.shape.hidden_size, resolved.shape.kv_heads) == (4096, 32)
    assert "hidden_size 4096 by default of llama in transformers" in resolved.note
    assert resolve_model(str(write(tmp_path / "b", LLAMA))).note == ""


@pytest.mark.parametrize("part", ["text_config", "llm_config"])
def test_a_model_with_a_text_part_is_read_as_that_part(tmp_path, part):
    folder = write(tmp_path / "m", {"model_type": "llava", part: LLAMA, "vision_config": {}, "tie_word_embeddings": True})
    resolved = resolve_model(str(folder))
    alone = huggingface.read_config(write(tmp_path / "t", {**LLAMA, "tie_word_embeddings": True}))
    assert replace(resolved.shape, name="m") == replace(alone, name="m")
    assert "only the text part of this llava is planned" in resolved.note
    flat = resolve_model(str(write(tmp_path / "f", {**LLAMA, "model_type": "qwen2_vl", "vision_config": {}})))
    assert "only the text part of this qwen2_vl is planned" in flat.note


def test_defaults_follow_the_architecture(tmp_path):
    config = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}
    shape = huggingface.read_config(write(tmp_path / "a", config))
    assert (shape.kv_heads, shape.head_size, shape.tied_embeddings, shape.rope_theta) == (4, 16, False, 500000.0)
    newer = {**config, "head_dim": None, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}
    del newer["rope_theta"]
    shape = huggingface.read_config(write(tmp_path / "b", newer))
    assert (shape.head_size, shape.rope_theta) == (16, 7.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "64"}, "hidden_size.*whole number"),
        ({"hidden_size": 0}, "hidden_size.*whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers.*whole number"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings.*true or false"),
        ({"model_type": "qwen3_moe", "num_experts": 4, "decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"model_type": "kimi_k2"}, "kv_lora_rank.*missing"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [1]}, "mlp_only_layers.*dense layers come first"),
        ({"model_type": "llama4_text", "moe_layers": [0, 2]}, "moe_layers.*dense layers come first"),
        ({"model_type": "deepseek_v3", "moe_layer_freq": 2}, "moe_layer_freq"),
        ({"model_type": "exaone_moe", "mlp_layer_types": ["sparse", "dense"]}, "mlp_layer_types.*dense layers come first"),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 1500}, "shared_expert_intermediate_size.*1408"),
        ({"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 32}, "word_embed_proj_dim"),
        ({"model_type": "opt", "ffn_dim": 96, "do_layer_norm_before": False}, "do_layer_norm_before"),
    ],
)
def test_invalid_values_are_refused_by_key(tmp_path, change, words):
    with pytest.raises(FileError, match=words):
        huggingface.read_config(write(tmp_path / "m", {**LLAMA, **change}))


@pytest.mark.parametrize("kind", ["llamba", None, ["llama"]])
def test_an_unknown_model_type_raises_an_error_with_a_next_step(tmp_path, kind):
    with pytest.raises(InputError, match=r"model_type.*none of the .* that can be read.*YAML") as error:
        huggingface.read_config(write(tmp_path / "m", {**LLAMA, "model_type": kind}))
    assert repr(kind) in str(error.value)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("mamba2", "state-space layers"), ("qwen3_next", "linear attention"), ("lfm2", "convolutions"), ("t5", "an encoder")],
)
def test_a_type_that_no_shape_describes_is_refused_with_the_reason(tmp_path, kind, reason):
    with pytest.raises(InputError, match=f"model_type '{kind}'.*{reason}") as error:
        huggingface.read_config(write(tmp_path / "m", {**LLAMA, "model_type": kind}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '"x"'])
def test_an_invalid_config_file_is_a_file_error(tmp_path, text):
    with pytest.raises(FileError, match=r"config\.json"):
        huggingface.read_config(write(tmp_path / "m", text))


def test_a_binary_config_file_is_a_file_error(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="UTF-8"):
        huggingface.read_config(tmp_path)


def test_the_cached_snapshot_of_the_main_branch_is_used(no_cache):
    repository = no_cache / "models--org--model"
    write(repository / "snapshots" / "bbb", {**LLAMA, "num_hidden_layers": 9})
    write(repository / "snapshots" / "aaa", LLAMA)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("aaa")
    resolved = resolve_model("org/model")
    assert (resolved.shape.name, resolved.shape.layers) == ("org/model", 2)
    assert str(repository) in resolved.note


def test_a_cache_without_branches_uses_any_snapshot(no_cache):
    write(no_cache / "models--org--model" / "snapshots" / "aaa", LLAMA)
    assert resolve_model("org/model").shape.layers == 2


def test_the_cache_folder_follows_environment_variables(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert huggingface.hub_cache() == tmp_path / "home" / "hub"
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert huggingface.hub_cache() == tmp_path / "xdg" / "huggingface" / "hub"


class Hub(BaseHTTPRequestHandler):
    """A fake Hub with one public model and one gated model."""

    def do_GET(self):
        status = {"/org/there/resolve/main/config.json": 200, "/org/gated/resolve/main/config.json": 401}.get(self.path, 404)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(LLAMA).encode() if status == 200 else b"no")

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_the_configuration_is_fetched_from_the_hub(hub):
    resolved = resolve_model("org/there")
    assert (resolved.shape.name, resolved.shape.layers) == ("org/there", 2)
    assert "Hub" in resolved.note


@pytest.mark.parametrize(("name", "status"), [("org/gated", "401"), ("org/absent", "404")])
def test_a_hub_error_is_one_line_with_a_next_step(hub, name, status):
    with pytest.raises(InputError, match=f"{name}.*{status}.*hf download {name}") as error:
        resolve_model(name)
    assert "\n" not in str(error.value)


def test_a_missing_network_is_a_one_line_error(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="cannot be fetched") as error:
        resolve_model("org/model")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("someone/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("someone/OLMo-2-1124-7B-sharp", "olmo2-7b"),
    ],
)
def test_a_missing_fine_tuned_model_suggests_its_base_preset(name, preset, no_cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=f"did you mean {preset}\\? Else run hf download {name}"):
        resolve_model(name)


def test_offline_mode_is_respected(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="HF_HUB_OFFLINE"):
        resolve_model("org/there")


@pytest.mark.parametrize(
    ("quantization", "stored"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes 4-bit"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, "bitsandbytes"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        (None, ""),
    ],
)
def test_a_configuration_states_how_its_weights_are_stored(tmp_path, quantization, stored):
    config = {**LLAMA, **({"quantization_config": quantization} if quantization else {})}
    assert huggingface.read(write(tmp_path / "m", config)).stored == stored
