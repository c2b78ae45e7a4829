"""Prints transformers' loss for the model of each folder on the first synthetic samples; arguments: their length, FOLDER..."""

import sys

import torch
import torch.nn.functional as F
import transformers
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.token_datasets import SyntheticTokens
from strategist_runtime.rank_process import leave


def loss(folder: str, seq_len: int) -> float:
    """The mean loss of eight samples."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    text = SyntheticTokens(seed=0, seq_len=seq_len, vocab_size=model.config.vocab_size)
    rows = Reader(dataset=text, rank=0, ranks=1).read(0, 8)
    with torch.no_grad():
        return F.cross_entropy(model(rows.tokens).logits.flatten(0, 1), rows.targets.flatten()).item()


if __name__ == "__main__":
    print(*(loss(folder, int(sys.argv[1])) for folder in sys.argv[2:]))
    leave()
