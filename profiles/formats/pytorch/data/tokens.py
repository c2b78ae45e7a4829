import json
from pathlib import Path

import numpy as np
import torch


class Synthetic:
    """Text that can be learned: each sample counts up by a small step of its own, modulo the vocabulary."""

    def sample(self, number):
        drawn = scramble(scramble(SEED) ^ number)
        return (drawn % VOCAB_SIZE + (1 + (drawn >> 48) % 4) * torch.arange(SEQ_LEN + 1)) % VOCAB_SIZE


class Tokens:
    """One text of token ids, read from the disk as it is needed, in samples of SEQ_LEN + 1 that overlap by one token."""

    def __init__(self, path, dtype=None):
        self.chunks = open_chunks(Path(path), dtype)
        self.ends = np.cumsum([len(chunk) for chunk in self.chunks])
        self.samples = (int(sum(map(len, self.chunks))) - 1) // SEQ_LEN
        if self.samples < 1:
            raise SystemExit(f"{path} has fewer than {SEQ_LEN + 1} tokens")

    def sample(self, number):
        first = SEQ_LEN * shuffle(number % self.samples, self.samples, number // self.samples)
        last, parts = first + SEQ_LEN + 1, []
        for index in range(*np.searchsorted(self.ends, (first, last - 1), side="right") + (0, 1)):
            begin = self.ends[index] - len(self.chunks[index])
            parts.append(self.chunks[index][max(0, first - begin) : last - begin])
        found = np.concatenate(parts).astype(np.int64)
        if found.min() < 0 or found.max() >= VOCAB_SIZE:
            raise SystemExit(f"token {found.max()} is not in the vocabulary of {VOCAB_SIZE}: check tokenizer and --data-type")
        return torch.from_numpy(found)


def open_chunks(path, dtype):
    """Arrays of token ids: of a folder of ``Dataset.save_to_disk`` with input_ids, of a .npy file, or of a file of numbers."""
    if path.is_dir():
        import pyarrow

        files = [path / item["filename"] for item in json.loads((path / "state.json").read_text())["_data_files"]]
        tables = [pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all() for file in files]
        chunks = [chunk for table in tables for chunk in table["input_ids"].chunks]
        return [(chunk.flatten() if hasattr(chunk, "flatten") else chunk).to_numpy() for chunk in chunks]
    if path.suffix == ".npy":
        return [np.load(path, mmap_mode="r")]
    beside = path.with_suffix(".json")
    said = json.loads(beside.read_text()).get("dtype") if beside.is_file() else None
    return [np.memmap(path, dtype=dtype or said or ("uint16" if VOCAB_SIZE <= 2**16 else "uint32"), mode="r")]


def read_rows(text, first, count):
    """``count`` samples from the ``first`` of the training on: tokens and the tokens that follow them, [count, SEQ_LEN] each."""
    rows = torch.stack([text.sample(number) for number in range(first, first + count)])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
