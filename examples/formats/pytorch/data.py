"""Samples of token ids, in the order of ``strategist run``."""

import json

import numpy as np
import torch

from plan import SEED, SEQ_LEN, VOCAB_SIZE


def scramble(value):
    """64 bits made of 64 bits, by SplitMix64 (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def shuffle(index, count, epoch):
    """The sample number at ``index`` of an epoch: a permutation of ``range(count)`` by a Feistel network, which needs no table."""
    half = 2 ** max(1, ((count - 1).bit_length() + 1) // 2)
    key, (left, right) = scramble(scramble(SEED) ^ epoch), divmod(index, half)
    for round_index in range(6):
        left, right = right, left ^ scramble(key + (round_index << 32) + right) % half
    index = left * half + right
    return index if index < count else shuffle(index, count, epoch)


def open_tokens(path, dtype):
    """Token ids of a folder of ``Dataset.save_to_disk`` with input_ids, a .npy file, or a file of numbers; none is read yet."""
    if path.is_dir():
        import pyarrow
        files = [str(path / item["filename"]) for item in json.loads((path / "state.json").read_text())["_data_files"]]
        rows = pyarrow.concat_tables(pyarrow.ipc.open_stream(pyarrow.memory_map(file)).read_all() for file in files)["input_ids"]
        return pyarrow.chunked_array([chunk.flatten() if hasattr(chunk, "flatten") else chunk for chunk in rows.chunks])
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    metadata = path.with_suffix(".json")
    stated_dtype = json.loads(metadata.read_text()).get("dtype") if metadata.is_file() else None
    return np.memmap(path, dtype=dtype or stated_dtype or ("uint16" if VOCAB_SIZE <= 2**16 else "uint32"), mode="r")


def sample(tokens, number):
    """SEQ_LEN + 1 token ids: samples overlap by one token, and each epoch has an order of its own."""
    if tokens is None:  # synthetic text that can be learned: it counts up by a small step, modulo the vocabulary
        random_bits = scramble(scramble(SEED) ^ number)
        return (random_bits % VOCAB_SIZE + (1 + (random_bits >> 48) % 4) * torch.arange(SEQ_LEN + 1)) % VOCAB_SIZE
    if (samples := (len(tokens) - 1) // SEQ_LEN) < 1:
        raise SystemExit(f"the data has fewer than {SEQ_LEN + 1} tokens")
    first = SEQ_LEN * shuffle(number % samples, samples, number // samples)
    ids = np.array(tokens[first : first + SEQ_LEN + 1], dtype=np.int64)
    if ids.min() < 0 or ids.max() >= VOCAB_SIZE:
        raise SystemExit(f"token {ids.max()} is not in the vocabulary of {VOCAB_SIZE}: check tokenizer and --data-type")
    return torch.from_numpy(ids)
