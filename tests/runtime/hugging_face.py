"""Tiny transformers models with random weights, as folders."""

from pathlib import Path

import torch
import transformers
from torch import nn

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "pad_token_id": 0, "attn_implementation": "eager",
}  # fmt: skip
GPT2 = {
    "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 64, "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0, "attn_implementation": "eager",
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 10000.0}
LATENT = {
    "kv_lora_rank": 10, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6, "num_key_value_heads": 4,
    "moe_intermediate_size": 16, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2,
}  # fmt: skip
SIZES = {
    "llama": SMALL,
    "llama stretched": {**SMALL, "rope_parameters": {**LLAMA3, "rope_theta": 500000.0}, "tie_word_embeddings": True},
    "llama biased": {**SMALL, "attention_bias": True, "mlp_bias": True, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    "mistral": {**SMALL, "sliding_window": 5, "head_dim": 16},
    "qwen2": {**SMALL, "tie_word_embeddings": True},
    "qwen3": {**SMALL, "head_dim": 16, "rope_parameters": YARN},
    "phi3": {**SMALL, "sliding_window": None},
    "gpt2": GPT2,
    "mixtral": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **SMALL, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True,
    },
    "deepseek_v3": {**SMALL, **LATENT, "q_lora_rank": 12, "first_k_dense_replace": 1},
    "deepseek_v3 stretched": {
        **SMALL, **LATENT, "q_lora_rank": None, "first_k_dense_replace": 1,
        "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
    },
}  # fmt: skip
"""By model type and special feature."""


def save_model(name: str, folder: Path, **save: object) -> nn.Module:
    """Saves the model of this name; every weight is random, also those that transformers initialises with 0 or 1."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name.split()[0], **SIZES[name])
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for path, buffer in model.named_buffers():
            if path.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
    model.save_pretrained(folder, **save)
    return model.eval()


def loss(model: nn.Module, tokens: torch.Tensor) -> float:
    """The next-token loss."""
    with torch.no_grad():
        return model(tokens, labels=tokens).loss.item()
