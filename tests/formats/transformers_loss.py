"""Prints transformers' loss for the model of a folder on the first synthetic samples; arguments: FOLDER, length of a sample."""

import sys

import torch
import torch.nn.functional as F
import transformers
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.token_datasets import SyntheticTokens

if __name__ == "__main__":
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager").eval()
    text = SyntheticTokens(seed=0, seq_len=int(sys.argv[2]), vocab_size=model.config.vocab_size)
    rows = Reader(dataset=text, rank=0, ranks=1).read(0, 8)
    with torch.no_grad():
        print(F.cross_entropy(model(rows.tokens).logits.flatten(0, 1), rows.targets.flatten()).item())
