"""Reading of tokens: each sample once per epoch in an order given by the seed, for any number of ranks; and supported file
formats.
"""

from dataclasses import dataclass

import numpy
import pytest
import torch
from arrow_folder import save_to_disk
from hypothesis import given, strategies as st
from strategist_runtime.data.mixture import Shuffled
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.sample import Sample
from strategist_runtime.data.shuffle import shuffled
from strategist_runtime.data.token_datasets import STRIDES, SyntheticTokens, Tokens, open_tokens
from strategist_runtime.data.token_files import TokenFile

from strategist.errors import FileError, InputError, StrategistError

pytestmark = pytest.mark.torch

NUMPY = b"\x93NUMPY\x01\x00\x43\x00{'descr': %b, 'fortran_order': False}             "
"""A header of numpy.save with a placeholder for type and shape."""


@dataclass(frozen=True)
class Numbered:
    """A text in which each sample is its own number."""

    samples: int

    def sample(self, number: int) -> Sample:
        return Sample(ids=torch.tensor([number, number]))

    def trained(self, number: int) -> int:
        return 1


def read_step(text, first, count, ranks, seed=0):
    """The samples that all ranks read in one step, in rank order."""
    endless = Shuffled(dataset=text, seed=seed)
    batches = [Reader(dataset=endless, rank=rank, ranks=ranks).read(first, count) for rank in range(ranks)]
    return torch.cat([rows.tokens for rows in batches]), torch.cat([rows.targets for rows in batches])


@given(
    st.integers(1, 60),
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=6),
)
def test_resuming_with_other_numbers_of_ranks_reads_each_sample_once(samples, seed, sessions):
    """Each session has its own number of ranks, rows per rank and steps, and begins where the previous one ended."""
    text, position, seen = Numbered(samples), 0, []
    for ranks, rows, steps in sessions:
        for _ in range(steps):
            tokens, _ = read_step(text, position, ranks * rows, ranks, seed)
            seen += tokens.flatten().tolist()
            position += ranks * rows
    alone, _ = read_step(text, 0, position, 1, seed)
    assert seen == alone.flatten().tolist()
    for epoch in range(0, position, samples):
        whole = seen[epoch : epoch + samples]
        assert len(set(whole)) == len(whole)


@given(st.integers(1, 300), st.integers(0, 2**40), st.integers(0, 5))
def test_an_epoch_is_a_permutation_of_the_samples(count, seed, epoch):
    assert sorted(shuffled(place, count, seed, epoch) for place in range(count)) == list(range(count))


def test_epochs_and_seeds_have_different_orders():
    orders = {tuple(shuffled(place, 50, seed, epoch) for place in range(50)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert tuple(range(50)) not in orders


def test_shuffling_is_uniform():
    """Every sample of a short text is the first of an epoch about equally often."""
    first = [shuffled(0, 8, 0, epoch) for epoch in range(4000)]
    assert all(400 < first.count(place) < 600 for place in range(8))


def test_synthetic_text_is_predictable_and_differs_between_steps():
    text = SyntheticTokens(seed=3, seq_len=16, vocab_size=50)
    tokens, targets = read_step(text, 0, 8, 4)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    strides = (targets - tokens) % 50
    assert strides.min() >= 1
    assert strides.max() <= STRIDES
    assert (strides == strides[:, :1]).all()
    assert not torch.equal(tokens, read_step(text, 8, 8, 4)[0])
    assert not torch.equal(tokens, read_step(SyntheticTokens(seed=4, seq_len=16, vocab_size=50), 0, 8, 4)[0])


def open_file(path, vocab_size=100, seq_len=4, token_type=""):
    return open_tokens(str(path), token_type, seq_len=seq_len, vocab_size=vocab_size)


def tokens_of(text):
    return [text.sample(number).ids.tolist() for number in range(text.samples)]


WINDOWS = [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]
"""Samples of the tokens 0 to 14 for sequences of 4; the remainder is dropped."""


@pytest.mark.parametrize("name", ["uint16", "uint32", "int32"])
def test_a_token_file_is_split_into_samples(tmp_path, name):
    path = tmp_path / "tokens.bin"
    path.write_bytes(bytes(torch.arange(15).to(getattr(torch, name)).view(torch.uint8).tolist()))
    assert tokens_of(open_file(path, token_type=name)) == WINDOWS


def test_the_token_dtype_comes_from_a_json_file_or_the_vocabulary_size(tmp_path):
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"".join(number.to_bytes(4, "little") for number in range(15)))
    assert tokens_of(open_file(path, vocab_size=70_000)) == WINDOWS
    (tmp_path / "tokens.json").write_text('{"dtype": "uint32"}', encoding="utf-8")
    assert tokens_of(open_file(path, vocab_size=100)) == WINDOWS
    (tmp_path / "tokens.json").write_text('{"dtype": "float"}', encoding="utf-8")
    with pytest.raises(FileError, match="float is not one of"):
        open_file(path)


@pytest.mark.parametrize("name", ["uint16", "uint32", "int32", "int64"])
def test_a_numpy_file_contains_its_token_dtype(tmp_path, name):
    path = tmp_path / "tokens.npy"
    numpy.save(path, numpy.arange(15).astype(name))
    assert tokens_of(open_file(path)) == WINDOWS


def test_samples_can_span_chunks():
    text = SyntheticTokens(seed=0, seq_len=9, vocab_size=100)
    whole = text.sample(0).ids.to(torch.int32)
    chunks = [
        TokenFile(memory=memoryview(bytes(part.view(torch.uint8).tolist())), dtype=torch.int32)
        for part in (whole[:1], whole[1:1], whole[1:7], whole[7:])
    ]
    split_text = Tokens("here", chunks, 3, 100)
    assert tokens_of(split_text) == [whole[first : first + 4].tolist() for first in (0, 3, 6)]


def test_an_arrow_data_set_is_read_row_by_row(tmp_path):
    rows = [[0, 1, 2], [], [3, 4, 5, 6], [7], [8, 9, 10, 11, 12, 13, 14]]
    assert tokens_of(open_file(save_to_disk(tmp_path / "set", {"input_ids": rows}))) == WINDOWS


def test_a_data_set_without_token_ids_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no column input_ids, but text; tokenize it first"):
        open_file(save_to_disk(tmp_path / "set", {"text": ["a", "b"]}))
    with pytest.raises(FileError, match="lists of whole numbers are needed"):
        open_file(save_to_disk(tmp_path / "floats", {"input_ids": [[0.5]]}))


def test_a_folder_with_several_splits_is_refused(tmp_path):
    save_to_disk(tmp_path / "train", {"input_ids": [[1]]})
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    with pytest.raises(InputError, match="holds several data sets: train; name one"):
        open_file(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokens.bin", b"", "is empty"),
        ("tokens.bin", b"123", "no whole tokens of 2"),
        ("tokens.bin", b"1234", "its 2 tokens make no sample of 5"),
        ("tokens.npy", b"1234567890", "is not a whole file of numpy.save"),
        ("tokens.npy", b"\x93NUMPY\x01\x00\x08\x00__import", "is not a whole file of numpy.save"),
        (
            "tokens.npy",
            b"\x93NUMPY\x01\x00\x44\x00{'descr': '<f4', 'shape': (3,), 'fortran_order': False}             " + bytes(12),
            "holds <f4",
        ),
        (
            "tokens.npy",
            b"\x93NUMPY\x01\x00\x44\x00{'descr': '<u2', 'shape': (9,), 'fortran_order': False}             ",
            "is not a whole file of numpy.save",
        ),
    ],
)
def test_invalid_token_files_raise_a_one_line_error(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StrategistError, match=words):
        open_file(tmp_path / name)


def test_missing_files_raise_a_one_line_error(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        open_file(tmp_path / "nothing.bin")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="not a folder of Dataset"):
        open_file(tmp_path / "folder")


def test_a_token_outside_the_vocabulary_is_an_error(tmp_path):
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"".join(number.to_bytes(2, "little") for number in range(15)))
    with pytest.raises(InputError, match="holds the token 12, the model knows 12"):
        tokens_of(open_file(path, vocab_size=12))
