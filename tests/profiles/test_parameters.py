"""Parameter counts of presets equal the published ones and those of transformers."""

import json
from dataclasses import replace

import pytest

from strategist.profiles import huggingface
from strategist.profiles.models import presets, resolve_model

# Elements of the published safetensors files (tied weights once), and billions per token as the model card rounds them.
PUBLISHED = {
    "llama-7b": (6_738_415_616, None),
    "llama-13b": (13_015_864_320, None),
    "llama-30b": (32_528_943_616, None),
    "llama-65b": (65_285_660_672, None),
    "llama2-7b": (6_738_415_616, None),
    "llama2-13b": (13_015_864_320, None),
    "llama2-70b": (68_976_648_192, None),
    "llama3-8b": (8_030_261_248, None),
    "llama3-70b": (70_553_706_496, None),
    "llama3-405b": (405_853_388_800, None),
    "llama3.2-1b": (1_235_814_400, None),
    "llama3.2-3b": (3_212_749_824, None),
    "qwen2.5-0.5b": (494_032_768, None),
    "qwen2.5-1.5b": (1_543_714_304, None),
    "qwen2.5-3b": (3_085_938_688, None),
    "qwen2.5-7b": (7_615_616_512, None),
    "qwen2.5-14b": (14_770_033_664, None),
    "qwen2.5-32b": (32_763_876_352, None),
    "qwen2.5-72b": (72_706_203_648, None),
    "qwen3-0.6b": (596_049_920, None),
    "qwen3-1.7b": (1_720_574_976, None),
    "qwen3-4b": (4_022_468_096, None),
    "qwen3-8b": (8_190_735_360, None),
    "qwen3-14b": (14_768_307_200, None),
    "qwen3-32b": (32_762_123_264, None),
    "qwen3-30b-a3b": (30_532_122_624, 3.3),
    "qwen3-235b-a22b": (235_093_634_560, 22),
    "mistral-7b": (7_241_732_096, None),
    "mixtral-8x7b": (46_702_792_704, 12.9),
    "mixtral-8x22b": (140_620_634_112, 39),
    "deepseek-v3": (671_026_419_200, 37),
    "gpt-oss-20b": (20_914_757_184, 3.61),
    "gpt-oss-120b": (116_829_156_672, 5.13),
    "gpt3-175b": (174_604_259_328, None),
    "gpt2-small": (124_439_808, None),
    "gpt2-medium": (354_823_168, None),
    "gpt2-large": (774_030_080, None),
    "gpt2-xl": (1_557_611_200, None),
    "pythia-160m": (162_322_944, None),
    "pythia-410m": (405_334_016, None),
    "pythia-1b": (1_011_781_632, None),
    "pythia-1.4b": (1_414_647_808, None),
    "pythia-2.8b": (2_775_208_960, None),
    "pythia-6.9b": (6_857_302_016, None),
    "pythia-12b": (11_846_072_320, None),
    "stablelm-base-alpha-3b": (3_637_321_728, None),
    "tinyllama-1.1b": (1_100_048_384, None),
    "gemma-2b": (2_506_172_416, None),
    "gemma-7b": (8_537_680_896, None),
    "phi-3-mini": (3_821_079_552, None),
    "yi-6b": (6_061_035_520, None),
    "yi-34b": (34_388_917_248, None),
    "kimi-k2": (1_026_408_232_448, 32),
    "moonlight-16b-a3b": (15_960_110_208, 3),
    "smollm2-135m": (134_515_008, None),
    "smollm2-360m": (361_821_120, None),
    "smollm2-1.7b": (1_711_376_384, None),
    "codellama-7b": (6_738_546_688, None),
    "codellama-13b": (13_016_028_160, None),
    "codellama-34b": (33_743_970_304, None),
    "codellama-70b": (68_976_910_336, None),
    "deepseek-7b": (6_910_365_696, None),
    "deepseek-r1-qwen-1.5b": (1_777_088_000, None),
    "mistral-7b-v0.3": (7_248_023_552, None),
    "mistral-nemo-12b": (12_247_782_400, None),
    "mistral-small-24b": (23_572_403_200, None),
    "mistral-large-123b": (122_610_069_504, None),
    "qwen1.5-0.5b": (463_987_712, None),
    "qwen1.5-1.8b": (1_836_828_672, None),
    "qwen1.5-4b": (3_950_369_280, None),
    "qwen1.5-7b": (7_721_324_544, None),
    "qwen1.5-14b": (14_167_290_880, None),
    "qwen1.5-32b": (32_512_218_112, None),
    "qwen1.5-72b": (72_287_920_128, None),
    "qwen1.5-110b": (111_209_914_368, None),
    "gpt-neox-20b": (20_554_567_680, None),
    "phi-3-medium": (13_960_238_080, None),
    "phi-4": (14_659_507_200, None),
    "phi-4-mini": (3_836_021_760, None),
    "apertus-8b": (8_053_338_176, None),
    "baichuan2-7b": (7_505_973_248, None),
    "baichuan2-13b": (13_896_668_160, None),
    "bloom-7b1": (7_069_016_064, None),
    "bloom-176b": (176_247_271_424, None),
    "chatglm3-6b": (6_243_584_000, None),
    "dbrx": (131_596_523_520, 36),
    "deepseek-moe-16b": (16_375_728_128, 2.8),
    "deepseek-v2": (235_741_434_880, 21),
    "deepseek-v2-lite": (15_706_484_224, 2.4),
    "falcon-180b": (179_522_565_120, None),
    "gemma-2-2b": (2_614_341_888, None),
    "gemma-2-27b": (27_227_128_320, None),
    "gemma-3-1b": (999_885_952, None),
    # Without the image encoder of 416,866,032 and the projection of its 1,152 features, which the files of the three hold as well.
    "gemma-3-4b": (4_300_079_472 - 416_866_032 - 1_152 * (2_560 + 1), None),
    "gemma-3-12b": (12_187_325_040 - 416_866_032 - 1_152 * (3_840 + 1), None),
    "gemma-3-27b": (27_432_406_640 - 416_866_032 - 1_152 * (5_376 + 1), None),
    "glm-4-9b": (9_399_951_360, None),
    "glm-4.5-air": (106_852_251_264, 12),
    "gpt-j-6b": (6_050_882_784, None),
    "internlm2-7b": (7_737_708_544, None),
    "internlm2-20b": (19_861_149_696, None),
    "olmo2-1b": (1_484_916_736, None),
    "olmo2-7b": (7_298_617_344, None),
    "olmo2-13b": (13_716_198_400, None),
    "olmo2-32b": (32_234_279_936, None),
    "olmoe-1b-7b": (6_919_161_856, 1.3),
    "opt-1.3b": (1_315_758_080, None),
    "opt-2.7b": (2_651_596_800, None),
    "opt-6.7b": (6_658_473_984, None),
    "opt-13b": (12_853_473_280, None),
    "opt-30b": (29_974_540_288, None),
    "opt-66b": (65_719_701_504, None),
    "seed-oss-36b": (36_151_104_512, None),
    "smollm3-3b": (3_075_098_624, None),
    "starcoder2-3b": (3_030_371_328, None),
    "starcoder2-7b": (7_173_923_840, None),
    "starcoder2-15b": (15_957_889_024, None),
    "gemma-2-9b": (9_241_705_984, None),
    "phi-1.5": (1_418_270_720, None),
    "phi-2": (2_779_683_840, None),
    "falcon-7b": (6_921_720_704, None),
    "falcon-40b": (41_303_293_952, None),
    "llama4-scout": (107_769_861_120, 17),
    "tiny": (918_656, None),
}

# Presets with a rounded published total only: that total, and the tolerance.
NEARLY = {
    "apertus-70b": (70_600_000_000, 1e-4),
    "deepseek-67b": (67_000_000_000, 7e-3),
    "deepseek-coder-33b": (33_300_000_000, 2e-3),
    "glm-4.5": (352_797_829_120, 1e-8),
    "grok-1": (314_000_000_000, 6e-3),
    "mt-nlg-530b": (530_000_000_000, 1e-3),
    "opt-175b": (175_000_000_000, 3e-3),
    "nemotron-8b": (8_500_000_000, 6e-3),
    "nemotron-340b": (341_000_000_000, 2e-4),
}

LLAMA = {"model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128256}
QWEN25 = {"model_type": "qwen2", "num_key_value_heads": 8, "vocab_size": 152064}
QWEN25_SMALL = {**QWEN25, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}
QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
QWEN3_MOE = {
    "model_type": "qwen3_moe", "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False, "norm_topk_prob": True,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_positions": 1024, "vocab_size": 50257}
NEOX = {"model_type": "gpt_neox", "vocab_size": 50304}
GEMMA = {"model_type": "gemma", "head_dim": 256, "vocab_size": 256000}
LATENT = {
    "model_type": "deepseek_v3", "vocab_size": 163840, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "n_group": 1, "topk_group": 1,
}  # fmt: skip
QWEN15 = {"model_type": "qwen2", "vocab_size": 151936, "tie_word_embeddings": False}
CODE = {**LLAMA, "vocab_size": 32016}
SMOL = {"model_type": "llama", "vocab_size": 49152, "tie_word_embeddings": True}
MISTRAL = {"model_type": "mistral", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072}
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "intermediate_size": 2880, "num_experts_per_tok": 4, "vocab_size": 201088, "attention_bias": True,
}  # fmt: skip

GEMMA2 = {"model_type": "gemma2", "head_dim": 256, "vocab_size": 256000}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "vocab_size": 262208, "sliding_window": 1024}
OLMO2 = {"model_type": "olmo2", "vocab_size": 100352}
OPT = {"model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048, "enable_bias": True}
STARCODER2 = {"model_type": "starcoder2", "vocab_size": 49152, "use_bias": True}
BLOOM = {"model_type": "bloom", "vocab_size": 250880}
FALCON = {"model_type": "falcon", "vocab_size": 65024, "bias": False, "multi_query": True, "parallel_attn": True}
INTERNLM2 = {"model_type": "internlm2", "num_key_value_heads": 8, "vocab_size": 92544, "bias": False}
DEEPSEEK_MOE = {
    "model_type": "deepseek", "vocab_size": 102400, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
    "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False,
}  # fmt: skip
DEEPSEEK_V2 = {
    "model_type": "deepseek_v2", "vocab_size": 102400, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "norm_topk_prob": False,
}  # fmt: skip


def sizes(layers: int, hidden: int, heads: int, ffn: int) -> dict[str, int]:
    return {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": ffn}


def opt_sizes(layers: int, hidden: int, heads: int) -> dict[str, int]:
    names = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "word_embed_proj_dim": hidden}
    return {**names, "ffn_dim": 4 * hidden}


REMOTE = ("internlm2", "baichuan", "chatglm", "deepseek", "kimi_k2")
"""Model types whose code is not part of transformers."""

# The shape's keys of the published config.json files.
CONFIGS = {
    "llama-7b": {**LLAMA, **sizes(32, 4096, 32, 11008), "num_key_value_heads": 32, "vocab_size": 32000},
    "llama-13b": {**LLAMA, **sizes(40, 5120, 40, 13824), "num_key_value_heads": 40, "vocab_size": 32000},
    "llama-30b": {**LLAMA, **sizes(60, 6656, 52, 17920), "num_key_value_heads": 52, "vocab_size": 32000},
    "llama-65b": {**LLAMA, **sizes(80, 8192, 64, 22016), "num_key_value_heads": 64, "vocab_size": 32000},
    "llama2-7b": {**LLAMA, **sizes(32, 4096, 32, 11008), "num_key_value_heads": 32, "vocab_size": 32000},
    "llama2-13b": {**LLAMA, **sizes(40, 5120, 40, 13824), "num_key_value_heads": 40, "vocab_size": 32000},
    "llama2-70b": {**LLAMA, **sizes(80, 8192, 64, 28672), "vocab_size": 32000},
    "llama3-8b": {**LLAMA, **sizes(32, 4096, 32, 14336)},
    "llama3-70b": {**LLAMA, **sizes(80, 8192, 64, 28672)},
    "llama3-405b": {**LLAMA, **sizes(126, 16384, 128, 53248)},
    "llama3.2-1b": {**LLAMA, **sizes(16, 2048, 32, 8192), "head_dim": 64, "tie_word_embeddings": True},
    "llama3.2-3b": {**LLAMA, **sizes(28, 3072, 24, 8192), "head_dim": 128, "tie_word_embeddings": True},
    "qwen2.5-0.5b": {**QWEN25_SMALL, **sizes(24, 896, 14, 4864)},
    "qwen2.5-1.5b": {**QWEN25_SMALL, **sizes(28, 1536, 12, 8960)},
    "qwen2.5-3b": {**QWEN25_SMALL, **sizes(36, 2048, 16, 11008)},
    "qwen2.5-7b": {**QWEN25, **sizes(28, 3584, 28, 18944), "num_key_value_heads": 4},
    "qwen2.5-14b": {**QWEN25, **sizes(48, 5120, 40, 13824)},
    "qwen2.5-32b": {**QWEN25, **sizes(64, 5120, 40, 27648)},
    "qwen2.5-72b": {**QWEN25, **sizes(80, 8192, 64, 29568)},
    "qwen3-0.6b": {**QWEN3, **sizes(28, 1024, 16, 3072), "tie_word_embeddings": True},
    "qwen3-1.7b": {**QWEN3, **sizes(28, 2048, 16, 6144), "tie_word_embeddings": True},
    "qwen3-4b": {**QWEN3, **sizes(36, 2560, 32, 9728), "tie_word_embeddings": True},
    "qwen3-8b": {**QWEN3, **sizes(36, 4096, 32, 12288)},
    "qwen3-14b": {**QWEN3, **sizes(40, 5120, 40, 17408)},
    "qwen3-32b": {**QWEN3, **sizes(64, 5120, 64, 25600)},
    "qwen3-30b-a3b": {**QWEN3_MOE, **sizes(48, 2048, 32, 6144), "moe_intermediate_size": 768},
    "qwen3-235b-a22b": {**QWEN3_MOE, **sizes(94, 4096, 64, 12288), "moe_intermediate_size": 1536},
    "mistral-7b": {"model_type": "mistral", **sizes(32, 4096, 32, 14336), "num_key_value_heads": 8, "vocab_size": 32000},
    "mixtral-8x7b": {
        "model_type": "mixtral", **sizes(32, 4096, 32, 14336), "num_key_value_heads": 8, "vocab_size": 32000,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "mixtral-8x22b": {
        "model_type": "mixtral", **sizes(56, 6144, 48, 16384), "num_key_value_heads": 8, "vocab_size": 32000,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", **sizes(61, 7168, 128, 18432), "num_key_value_heads": 128, "vocab_size": 129280,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
        "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
    },
    "gpt-oss-20b": {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32},
    "gpt-oss-120b": {**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128},
    "gpt3-175b": {
        "model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048, "vocab_size": 50257,
    },
    "gpt2-small": {**GPT2, "n_embd": 768, "n_layer": 12, "n_head": 12},
    "gpt2-medium": {**GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {**GPT2, "n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {**GPT2, "n_embd": 1600, "n_layer": 48, "n_head": 25},
    "pythia-160m": {**NEOX, **sizes(12, 768, 12, 3072)},
    "pythia-410m": {**NEOX, **sizes(24, 1024, 16, 4096)},
    "pythia-1b": {**NEOX, **sizes(16, 2048, 8, 8192)},
    "pythia-1.4b": {**NEOX, **sizes(24, 2048, 16, 8192)},
    "pythia-2.8b": {**NEOX, **sizes(32, 2560, 32, 10240)},
    "pythia-6.9b": {**NEOX, **sizes(32, 4096, 32, 16384), "vocab_size": 50432},
    "pythia-12b": {**NEOX, **sizes(36, 5120, 40, 20480), "vocab_size": 50688},
    "stablelm-base-alpha-3b": {**NEOX, **sizes(16, 4096, 32, 16384), "vocab_size": 50688},
    "tinyllama-1.1b": {**LLAMA, **sizes(22, 2048, 32, 5632), "num_key_value_heads": 4, "vocab_size": 32000},
    "gemma-2b": {**GEMMA, **sizes(18, 2048, 8, 16384), "num_key_value_heads": 1},
    "gemma-7b": {**GEMMA, **sizes(28, 3072, 16, 24576), "num_key_value_heads": 16},
    "phi-3-mini": {"model_type": "phi3", **sizes(32, 3072, 32, 8192), "num_key_value_heads": 32, "vocab_size": 32064},
    "yi-6b": {**LLAMA, **sizes(32, 4096, 32, 11008), "num_key_value_heads": 4, "vocab_size": 64000},
    "yi-34b": {**LLAMA, **sizes(60, 7168, 56, 20480), "num_key_value_heads": 8, "vocab_size": 64000},
    "kimi-k2": {
        **LATENT, "model_type": "kimi_k2", "norm_topk_prob": True, **sizes(61, 7168, 64, 18432), "num_key_value_heads": 64,
        "q_lora_rank": 1536, "n_routed_experts": 384,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.827,
    },
    "moonlight-16b-a3b": {
        **LATENT, **sizes(27, 2048, 16, 11264), "num_key_value_heads": 16, "q_lora_rank": None, "n_routed_experts": 64,
        "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "n_shared_experts": 2, "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.446,
    },
    "smollm2-135m": {**SMOL, **sizes(30, 576, 9, 1536), "num_key_value_heads": 3},
    "smollm2-360m": {**SMOL, **sizes(32, 960, 15, 2560), "num_key_value_heads": 5},
    "smollm2-1.7b": {**SMOL, **sizes(24, 2048, 32, 8192), "num_key_value_heads": 32},
    "codellama-7b": {**CODE, **sizes(32, 4096, 32, 11008), "num_key_value_heads": 32},
    "codellama-13b": {**CODE, **sizes(40, 5120, 40, 13824), "num_key_value_heads": 40},
    "codellama-34b": {**CODE, **sizes(48, 8192, 64, 22016), "vocab_size": 32000},
    "codellama-70b": {**CODE, **sizes(80, 8192, 64, 28672)},
    "deepseek-7b": {**LLAMA, **sizes(30, 4096, 32, 11008), "num_key_value_heads": 32, "vocab_size": 102400},
    "deepseek-r1-qwen-1.5b": {**QWEN25_SMALL, **sizes(28, 1536, 12, 8960), "tie_word_embeddings": False},
    "mistral-7b-v0.3": {**MISTRAL, **sizes(32, 4096, 32, 14336), "vocab_size": 32768},
    "mistral-nemo-12b": {**MISTRAL, **sizes(40, 5120, 32, 14336)},
    "mistral-small-24b": {**MISTRAL, **sizes(40, 5120, 32, 32768)},
    "mistral-large-123b": {**MISTRAL, **sizes(88, 12288, 96, 28672), "vocab_size": 32768},
    "qwen1.5-0.5b": {**QWEN15, **sizes(24, 1024, 16, 2816), "num_key_value_heads": 16, "tie_word_embeddings": True},
    "qwen1.5-1.8b": {**QWEN15, **sizes(24, 2048, 16, 5504), "num_key_value_heads": 16},
    "qwen1.5-4b": {**QWEN15, **sizes(40, 2560, 20, 6912), "num_key_value_heads": 20},
    "qwen1.5-7b": {**QWEN15, **sizes(32, 4096, 32, 11008), "num_key_value_heads": 32},
    "qwen1.5-14b": {**QWEN15, **sizes(40, 5120, 40, 13696), "num_key_value_heads": 40, "vocab_size": 152064},
    "qwen1.5-32b": {**QWEN15, **sizes(64, 5120, 40, 27392), "num_key_value_heads": 8, "vocab_size": 152064},
    "qwen1.5-72b": {**QWEN15, **sizes(80, 8192, 64, 24576), "num_key_value_heads": 64, "vocab_size": 152064},
    "qwen1.5-110b": {**QWEN15, **sizes(80, 8192, 64, 49152), "num_key_value_heads": 8, "vocab_size": 152064},
    "gpt-neox-20b": {**NEOX, **sizes(44, 6144, 64, 24576), "vocab_size": 50432},
    "phi-3-medium": {"model_type": "phi3", **sizes(40, 5120, 40, 17920), "num_key_value_heads": 10, "vocab_size": 32064},
    "phi-4-mini": {
        "model_type": "phi3", **sizes(32, 3072, 24, 8192), "num_key_value_heads": 8, "vocab_size": 200064,
        "tie_word_embeddings": True,
    },
    "phi-4": {"model_type": "phi3", **sizes(40, 5120, 40, 17920), "num_key_value_heads": 10, "vocab_size": 100352},
    "apertus-8b": {"model_type": "apertus", **sizes(32, 4096, 32, 21504), "num_key_value_heads": 8, "vocab_size": 131072},
    "baichuan2-7b": {"model_type": "baichuan", **sizes(32, 4096, 32, 11008), "vocab_size": 125696},
    "baichuan2-13b": {"model_type": "baichuan", **sizes(40, 5120, 40, 13696), "vocab_size": 125696},
    "bloom-7b1": {**BLOOM, "hidden_size": 4096, "n_layer": 30, "num_attention_heads": 32},
    "bloom-176b": {**BLOOM, "hidden_size": 14336, "n_layer": 70, "num_attention_heads": 112},
    "chatglm3-6b": {
        "model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128,
        "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "multi_query_attention": True, "multi_query_group_num": 2,
        "add_qkv_bias": True, "add_bias_linear": False, "rmsnorm": True, "layernorm_epsilon": 1e-5,
    },
    "dbrx": {
        "model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352,
        "attn_config": {"kv_n_heads": 8, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    },
    "deepseek-moe-16b": {**DEEPSEEK_MOE, **sizes(28, 2048, 16, 10944), "num_key_value_heads": 16},
    "deepseek-v2": {
        **DEEPSEEK_V2, **sizes(60, 5120, 128, 12288), "q_lora_rank": 1536, "n_routed_experts": 160, "moe_intermediate_size": 1536,
        "n_group": 8, "topk_group": 3, "routed_scaling_factor": 16.0, "num_key_value_heads": 128,
    },
    "deepseek-v2-lite": {
        **DEEPSEEK_V2, **sizes(27, 2048, 16, 10944), "q_lora_rank": None, "n_routed_experts": 64, "moe_intermediate_size": 1408,
        "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "num_key_value_heads": 16,
    },
    "falcon-7b": {**FALCON, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
    "falcon-40b": {
        **FALCON, "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8,
        "new_decoder_architecture": True,
    },
    "falcon-180b": {
        **FALCON, "hidden_size": 14848, "num_hidden_layers": 80, "num_attention_heads": 232, "num_kv_heads": 8,
        "new_decoder_architecture": True, "tie_word_embeddings": False,
    },
    "gemma-2-2b": {**GEMMA2, **sizes(26, 2304, 8, 9216), "num_key_value_heads": 4},
    "gemma-2-9b": {**GEMMA2, **sizes(42, 3584, 16, 14336), "num_key_value_heads": 8},
    "gemma-2-27b": {**GEMMA2, **sizes(46, 4608, 32, 36864), "num_key_value_heads": 16, "head_dim": 128},
    "gemma-3-1b": {**GEMMA3, **sizes(26, 1152, 4, 6912), "num_key_value_heads": 1, "vocab_size": 262144, "sliding_window": 512},
    "gemma-3-4b": {**GEMMA3, **sizes(34, 2560, 8, 10240), "num_key_value_heads": 4},
    "gemma-3-12b": {**GEMMA3, **sizes(48, 3840, 16, 15360), "num_key_value_heads": 8},
    "gemma-3-27b": {**GEMMA3, **sizes(62, 5376, 32, 21504), "num_key_value_heads": 16, "head_dim": 128},
    "glm-4-9b": {"model_type": "glm", **sizes(40, 4096, 32, 13696), "num_key_value_heads": 2, "vocab_size": 151552},
    "glm-4.5-air": {
        "model_type": "glm4_moe", **sizes(46, 4096, 96, 10944), "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552,
        "attention_bias": True, "n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.0, "use_qk_norm": False,
    },
    "gpt-j-6b": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400},
    "internlm2-7b": {**INTERNLM2, **sizes(32, 4096, 32, 14336)},
    "internlm2-20b": {**INTERNLM2, **sizes(48, 6144, 48, 16384)},
    "llama4-scout": {
        "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "vocab_size": 202048,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
    },
    "olmo2-1b": {**OLMO2, **sizes(16, 2048, 16, 8192), "num_key_value_heads": 16},
    "olmo2-7b": {**OLMO2, **sizes(32, 4096, 32, 11008), "num_key_value_heads": 32},
    "olmo2-13b": {**OLMO2, **sizes(40, 5120, 40, 13824), "num_key_value_heads": 40},
    "olmo2-32b": {**OLMO2, **sizes(64, 5120, 40, 27648), "num_key_value_heads": 8},
    "olmoe-1b-7b": {
        "model_type": "olmoe", **sizes(16, 2048, 16, 1024), "num_key_value_heads": 16, "vocab_size": 50304, "num_experts": 64,
        "num_experts_per_tok": 8, "norm_topk_prob": False,
    },
    "opt-1.3b": {**OPT, **opt_sizes(24, 2048, 32)},
    "opt-2.7b": {**OPT, **opt_sizes(32, 2560, 32)},
    "opt-6.7b": {**OPT, **opt_sizes(32, 4096, 32)},
    "opt-13b": {**OPT, **opt_sizes(40, 5120, 40)},
    "opt-30b": {**OPT, **opt_sizes(48, 7168, 56)},
    "opt-66b": {**OPT, **opt_sizes(64, 9216, 72)},
    "phi-1.5": {"model_type": "phi", **sizes(24, 2048, 32, 8192), "vocab_size": 51200},
    "phi-2": {"model_type": "phi", **sizes(32, 2560, 32, 10240), "vocab_size": 51200},
    "seed-oss-36b": {
        "model_type": "seed_oss", **sizes(64, 5120, 80, 27648), "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 155136,
    },
    "smollm3-3b": {"model_type": "smollm3", **sizes(36, 2048, 16, 11008), "num_key_value_heads": 4, "vocab_size": 128256},
    "starcoder2-3b": {**STARCODER2, **sizes(30, 3072, 24, 12288), "num_key_value_heads": 2},
    "starcoder2-7b": {**STARCODER2, **sizes(32, 4608, 36, 18432), "num_key_value_heads": 4},
    "starcoder2-15b": {**STARCODER2, **sizes(40, 6144, 48, 24576), "num_key_value_heads": 4, "tie_word_embeddings": False},
    "tiny": {
        "model_type": "llama", **sizes(4, 128, 8, 384), "num_key_value_heads": 4, "vocab_size": 512,
    },
}  # fmt: skip


def shape_in(config, folder):
    (folder / "config.json").write_text(json.dumps(config))
    return huggingface.read_config(folder)


def test_every_preset_has_a_published_total_and_a_configuration():
    assert set(presets()) == set(PUBLISHED) | set(NEARLY)
    assert set(PUBLISHED) == set(CONFIGS)


@pytest.mark.parametrize("name", NEARLY)
def test_an_approximate_preset_is_near_the_published_total(name):
    total, apart = NEARLY[name]
    assert resolve_model(name).shape.parameters == pytest.approx(total, rel=apart)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_equal_the_published_ones(name):
    shape = resolve_model(name).shape
    total, active = PUBLISHED[name]
    assert shape.parameters == total
    if active is None:
        assert shape.active_parameters == total
        return
    used = shape.active_parameters
    if name.startswith("gpt-oss"):  # its model card excludes the input embedding
        used -= shape.embedding_parameters
    digits = len(str(active).partition(".")[2])
    # Those model cards round down, or leave out embedding and head.
    apart = {"deepseek-v3": 0.6, "qwen3-30b-a3b": 0.06, "kimi-k2": 0.9, "deepseek-v2-lite": 0.3, "glm-4.5-air": 1.5}
    tolerance = apart.get(name, 0.5 * 10**-digits)
    assert used / 1e9 == pytest.approx(active, abs=tolerance)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_preset_and_its_config_file_give_the_same_counts(name, tmp_path):
    read, preset = shape_in(CONFIGS[name], tmp_path), resolve_model(name).shape
    assert read.parameters == preset.parameters
    assert read.active_parameters == preset.active_parameters
    for field in ("layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size", "vocab_size", "mla"):
        assert getattr(read, field) == getattr(preset, field), field
    assert (read.moe is None) == (preset.moe is None)
    if read.moe and preset.moe:  # the balance coefficient belongs to the training
        assert replace(read.moe, balance_coefficient=preset.moe.balance_coefficient) == preset.moe


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if config["model_type"] not in REMOTE])
@pytest.mark.full
def test_transformers_builds_the_same_number_of_parameters(name):
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    keys = dict(CONFIGS[name])
    config = CONFIG_MAPPING[keys.pop("model_type")](**keys)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    built = sum(parameter.numel() for parameter in model.parameters())
    # The bias of DeepSeek's router is in the checkpoint; transformers has it as a buffer.
    built += sum(buffer.numel() for buffer_name, buffer in model.named_buffers() if buffer_name.endswith("correction_bias"))
    assert resolve_model(name).shape.parameters == built
