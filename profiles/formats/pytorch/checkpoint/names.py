HUGGING_FACE = {  # words of parameter names, and Hugging Face's
    "embedding": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "attention": "self_attn", "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    # if: qk_norm
    "query_norm": "q_norm", "key_norm": "k_norm",
    # end: qk_norm
    # if: moe
    "router": "gate", "experts": "experts.{}",
    # end: moe
    # if: mixtral
    "feed_forward": "block_sparse_moe", "gate": "w1", "up": "w3", "down": "w2",
    # end: mixtral
    # if: not mixtral
    "feed_forward": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
    # end: not mixtral
}  # fmt: skip
