"""Models of published rows."""

import pytest

from strategist.accuracy.row_model import shape_of
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.contract.model import MLAShape
from strategist.profiles.models import resolve_model
from tests.accuracy.published import made, row, rows


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("Llama 3(.1) 8B", "llama3-8b"),
        ("Llama 2 7B", "llama2-7b"),
        ("Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("GPT-OSS-20B (MoE)", "gpt-oss-20b"),
        ("phi-1.5 1.3 B", "phi-1.5"),
        ("Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("StableLM Alpha 3 B", "stablelm-base-alpha-3b"),
        ("Falcon 40 B", "falcon-40b"),
        ("Llama2-1B (TinyLlama-like)", "tinyllama-1.1b"),
        ("Llama 4 Scout 17Bx16E truncated to 2 layers", "llama4-scout"),
        ("Kimi K2", "kimi-k2"),
    ],
)
def test_presets_are_found_by_their_common_names(name, preset):
    known = resolve_model(preset).shape
    found = shape_of(made(model=name))
    assert (found.layers, found.hidden_size, found.head_size, found.moe, found.mla) == (
        known.layers, known.hidden_size, known.head_size, known.moe, known.mla,
    )  # fmt: skip
    assert found.parameters == known.parameters


def test_a_row_overrides_layers_and_vocabulary_of_a_preset():
    found = shape_of(made(model="Llama 3 8B", layers=2, hidden=4096, vocab=32000))
    assert (found.layers, found.vocab_size, found.kv_heads) == (2, 32000, 8)
    assert shape_of(made(model="Llama 3 8B", notes="vocabulary of about 50.3k padded")).vocab_size == 50300


def test_a_rows_sizes_override_a_preset_of_another_width():
    found = shape_of(made(model="Llama 3 8B", layers=4, hidden=1024, heads=16, ffn=2816))
    assert (found.hidden_size, found.head_size, found.ffn_matrices, found.tied_embeddings) == (1024, 64, 3, False)


def test_a_rows_heads_override_a_preset_with_others():
    found = shape_of(made(model="Llama 3 8B", layers=32, hidden=4096, heads=16, ffn=14336))
    assert (found.heads, found.head_size) == (16, 256)


@pytest.mark.parametrize("model", ["SmolLM 5B", "GLM-130B", "Phi-4 5B", "Vicuna 5B"])
def test_families_with_gated_feed_forwards_have_three_matrices(model):
    assert shape_of(made(model=model, layers=4, hidden=1024, heads=16, ffn=2816)).ffn_matrices == 3


def test_gpt_models_have_two_ffn_matrices_biases_layer_norms_and_tied_embeddings():
    found = shape_of(row("vtrain_ground_truth", "vt-multi-1"))
    assert (found.ffn_matrices, found.norm, found.tied_embeddings, found.ffn_bias) == (2, "layer", True, True)
    assert found.learned_positions == 2048
    assert found.parameters / 1e9 == pytest.approx(3.6, abs=0.05)


def test_parameter_counts_equal_the_published_ones():
    """MPT's within 0.2 %, those of BLOOM's predecessors as far as their names are rounded (a vocabulary of 250,880 is a few percent
    of all).
    """
    for stem, least, apart in (("mosaicml_llm_foundry", 0.1, 0.002), ("bigscience_bloom", 100, 0.03)):
        stated = [item for item in rows(stem) if item.params_b and item.params_b > least and item.hidden and item.layers]
        assert len(stated) > 100
        for item in stated:
            assert shape_of(item).parameters / 1e9 == pytest.approx(item.params_b, rel=apart), item.row_id


@pytest.mark.parametrize(("size", "tied"), [("1B", True), ("3B", True), ("80B", False)])
def test_notes_list_the_sizes_with_tied_embeddings(size, tied):
    found = next(item for item in rows("hf_ultrascale_playbook") if f" {size} " in item.model)
    assert shape_of(found).tied_embeddings is tied


def test_megatron_pads_the_vocabulary_by_tp():
    assert shape_of(row("vtrain_ground_truth", "vt-multi-1")).vocab_size == 50304
    wide = next(item for item in rows("vtrain_ground_truth") if item.tp == 8)
    assert shape_of(wide).vocab_size == 51200
    assert shape_of(made(model="GPT x", layers=2, hidden=64, vocab=50257)).vocab_size == 50257


def shape_with_args(*line, **cells):
    shape = {"model": "gpt:x", "layers": 12, "hidden": 512, "heads": 8, "ffn": 2048}
    return shape_of(made(**{**shape, "notes": "ARGS: num-layers=12 " + " ".join(line), **cells}))


def test_megatron_arguments_set_the_shape():
    plain = shape_with_args()
    assert (plain.ffn_matrices, plain.tied_embeddings, plain.qkv_bias, plain.learned_positions) == (2, True, True, 4096)
    assert shape_with_args("swiglu=True").ffn_matrices == 3
    assert not shape_with_args("untie-embeddings-and-output-weights=True").tied_embeddings
    assert not shape_with_args("disable-bias-linear=True").ffn_bias
    assert shape_with_args("position-embedding-type=rope").learned_positions == 0
    assert shape_with_args("normalization=RMSNorm").norm == "rms"
    assert shape_with_args("kv-channels=128").head_size == 128


def test_megatron_arguments_set_the_experts():
    moe = shape_with_args(
        "moe-ffn-hidden-size=1024", "moe-shared-expert-intermediate-size=2048", "moe-layer-freq=([0]*3+[1]*9)", experts=8, topk=2
    ).moe
    assert moe is not None
    assert (moe.experts, moe.experts_per_token, moe.expert_ffn_size) == (8, 2, 1024)
    assert (moe.shared_experts, moe.first_dense_layers) == (2, 3)


def test_megatron_arguments_set_latent_attention():
    sizes = "q-lora-rank=192 kv-lora-rank=64 qk-head-dim=16 qk-pos-emb-head-dim=8 v-head-dim=16"
    found = shape_with_args("multi-latent-attention=True", sizes)
    assert found.mla == MLAShape(query_rank=192, key_value_rank=64, rope_head_size=8, nope_head_size=16, value_head_size=16)
    assert found.head_size == 24
    assert shape_with_args("multi-latent-attention=True").mla.query_rank == 0


def test_expert_ffn_size_in_the_notes_overrides_the_column():
    cells = {"model": "some MoE", "layers": 4, "hidden": 512, "heads": 8, "ffn": 2048, "experts": 16, "topk": 4}
    assert shape_of(made(**cells)).moe.expert_ffn_size == 2048
    noted = shape_of(made(**cells, notes="ffn=dense-layer ffn, expert ffn 256, 1 shared expert"))
    assert (noted.moe.expert_ffn_size, noted.moe.shared_experts, noted.ffn_size) == (256, 1, 2048)


def test_profiles_of_attention_or_mlp_alone_have_half_a_layer():
    halves = {
        half: shape_of(next(item for item in rows("galvatron_memory_profiles") if f"_{half}-" in item.row_id and item.layers == 1))
        for half in ("attention", "mlp", "all")
    }
    ends = halves["all"].embedding_parameters + halves["all"].head_parameters
    layer = halves["all"].parameters - ends
    attention, ffn = (halves[half].parameters - ends for half in ("attention", "mlp"))
    assert attention + ffn == pytest.approx(layer, rel=0.001)
    assert attention == pytest.approx(4 * 4096**2, rel=0.001)


def test_unstated_layers_follow_from_the_parameter_count():
    whole = shape_of(made(model="GPT x", layers=40, hidden=6144, heads=48, vocab=50304))
    assert shape_of(made(model="GPT x", hidden=6144, heads=48, vocab=50304, params_b=whole.parameters / 1e9)).layers == 40


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "SDXL 1.0 UNet"}, SkipReason.OTHER_MODEL),
        ({"model": "Nemotron_3_Nano"}, SkipReason.OTHER_MODEL),
        ({"model": "Nemotron V3 Nano 30B"}, SkipReason.OTHER_MODEL),
        ({"model": "gpt:x", "notes": "ARGS: num-layers=12 hybrid-layer-pattern=MEM*"}, SkipReason.OTHER_MODEL),
        ({"model": "my secret model"}, SkipReason.NO_SHAPE),
        ({"model": "my secret model", "hidden": 4096}, SkipReason.NO_SHAPE),
        ({"model": "x", "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 3}, SkipReason.NO_SHAPE),
    ],
)
def test_models_without_a_shape_are_skipped_with_a_reason(cells, reason):
    with pytest.raises(Skipped) as skipped:
        shape_of(made(**cells))
    assert skipped.value.reason is reason


def test_dense_nemotron_models_are_not_skipped_as_hybrids():
    assert shape_of(made(model="Nemotron-340B")).parameters / 1e9 == pytest.approx(341, abs=0.1)


def test_a_folder_with_a_models_name_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(Skipped):
        shape_of(made(model="secret"))
