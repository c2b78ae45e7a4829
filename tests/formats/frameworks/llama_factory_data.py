"""Writes a tiny Llama with random weights, a tokenizer with few words and a data set of them into the given folder, without a
network.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def write(folder: Path) -> None:
    """Writes model, tokenizer and data set."""
    words = [*SPECIAL.values(), *(f"w{number}" for number in range(250))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder / "model")
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=2, **shape)).save_pretrained(folder / "model")
    text = [" ".join(f"w{(row + word) % 250}" for word in range(40)) for row in range(400)]
    (folder / "data.json").write_text(json.dumps([{"instruction": line, "input": "", "output": line} for line in text]))
    (folder / "dataset_info.json").write_text(json.dumps({"words": {"file_name": "data.json"}}))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
