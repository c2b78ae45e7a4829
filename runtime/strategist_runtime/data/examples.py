"""Examples, one JSON object a line, tokenised into samples: {"text"}, {"prompt", "response"} or {"messages"}.

The loss counts all tokens of a text, the response to a prompt, and the assistant's messages; all other tokens are input only.
"""

import json
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strategist.errors import FileError, InputError
from strategist_runtime.data.sample import Sample
from strategist_runtime.data.token_datasets import check_vocabulary
from strategist_runtime.data.tokenizer import Tokenizer

RESPONSES = ("response", "completion")
KINDS = "text, prompt and response, or messages"
TURN = ("role", "content")


@dataclass(frozen=True, kw_only=True)
class Example:
    """Token ids ``ids`` [N], and ``trained`` [N]: which of them the loss counts as targets."""

    ids: Tensor
    trained: Tensor

    def __len__(self) -> int:
        return len(self.ids)


class Examples:
    """Samples of T + 1 tokens made of whole examples: as many as fit if ``packed``, otherwise one each."""

    def __init__(self, path: str, examples: Sequence[Example], seq_len: int, *, packed: bool) -> None:
        self.size, self.packed = seq_len + 1, packed
        self.examples = [example for example in examples if example.trained[1:].any()]
        if not self.examples:
            law = f"has no example with a token to learn within {seq_len} tokens"
            raise InputError(f"--data {path}", law, "give it examples, or plan with a longer --seq-len")
        lengths = [len(example) for example in self.examples]
        self.rows = packed_rows(lengths, self.size) if packed else [[index] for index in range(len(lengths))]
        self.counts = [sum(int(self.examples[index].trained[1:].sum()) for index in row) for row in self.rows]

    @property
    def samples(self) -> int:
        return len(self.rows)

    def trained(self, number: int) -> int:
        """Targets in the loss of a sample; the first token of an example is never one."""
        return self.counts[number]

    def sample(self, number: int) -> Sample:
        """Examples one after the other, then padding."""
        ids, documents = torch.zeros(self.size, dtype=torch.int64), torch.zeros(self.size, dtype=torch.int64)
        trained = torch.zeros(self.size, dtype=torch.bool)
        begin = 0
        for document, example in enumerate(self.examples[index] for index in self.rows[number]):
            end = begin + len(example)
            ids[begin:end], trained[begin + 1 : end], documents[begin:] = example.ids, example.trained[1:], document
            begin = end
        documents[begin:] += 1  # padding
        return Sample(ids=ids, trained=trained, documents=documents if self.packed else None)


def packed_rows(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Indices of the lengths that share each row of ``size``: the longest first, each into the fullest row with enough space
    (best fit decreasing).
    """
    rows: list[list[int]] = []
    free_space: list[tuple[int, int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        position = bisect_left(free_space, (lengths[index], -1))
        free_tokens, row = free_space.pop(position) if position < len(free_space) else (size, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        insort(free_space, (free_tokens - lengths[index], row))
    return rows


def open_examples(path: str, tokenizer: Tokenizer, *, seq_len: int, vocab_size: int, packed: bool) -> Examples:
    """The examples in a file.

    Raises:
        InputError, FileError: a line is not an example, or the file has no token to train on.
    """
    file = Path(path)
    found = list(_examples(file, list(_lines(file)), tokenizer, seq_len + 1))
    for example in found:
        check_vocabulary(example.ids, path, vocab_size)
    return Examples(path, found, seq_len, packed=packed)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, f"cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}") from None
    kinds: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError:
            raise FileError(path, "is not JSON: each line is an object", number) from None
        kind = _kind(found)
        if kind is None:
            raise FileError(path, f"holds no {KINDS} as text", number)
        kinds.add(kind)
        if len(kinds) > 1:
            raise FileError(path, f"holds {kind} after lines of another kind: all lines are {KINDS}", number)
        yield found


def _kind(found: Any) -> str | None:
    """The kind of example of an object; None if it is not an example."""
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("prompt"), str) and any(isinstance(found.get(name), str) for name in RESPONSES):
        return "prompt"
    if isinstance(found.get("text"), str):
        return "text"
    turns = found.get("messages")
    is_conversation = isinstance(turns, list) and turns and all(
        isinstance(turn, dict) and all(isinstance(turn.get(name), str) for name in TURN) for turn in turns
    )  # fmt: skip
    return "messages" if is_conversation else None


def _examples(path: Path, lines: Sequence[dict[str, Any]], tokenizer: Tokenizer, size: int) -> Iterator[Example]:
    """All examples of a file. Texts longer than ``size`` are split into pieces that overlap by one token; other examples are
    truncated.
    """
    if not lines:
        raise FileError(path, "holds no example")
    end = [] if tokenizer.end is None else [tokenizer.end]
    kind = _kind(lines[0])
    if kind == "text":
        for ids in tokenizer.ids([line["text"] for line in lines], special=True):
            tokens = torch.tensor([*ids, *end], dtype=torch.int64)
            for begin in range(0, max(1, len(tokens) - 1), size - 1):
                chunk = tokens[begin : begin + size]
                yield Example(ids=chunk, trained=torch.ones(len(chunk), dtype=torch.bool))
    elif kind == "prompt":
        prompts = tokenizer.ids([line["prompt"] for line in lines], special=True)
        responses = [next(line[name] for name in RESPONSES if isinstance(line.get(name), str)) for line in lines]
        for prompt, response in zip(prompts, tokenizer.ids(responses, special=False), strict=True):
            yield _truncated_example([(prompt, False), ([*response, *end], True)], size)
    else:
        for line in lines:
            yield _truncated_example(list(_turns(line["messages"], tokenizer)), size)


def _turns(messages: Sequence[dict[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[list[int], bool]]:
    """The parts of a conversation, and whether the loss counts them: it counts the tokens that each message of the assistant adds
    to its generation prompt.

    Raises:
        InputError: the chat template changes the beginning of a conversation when more messages follow.
    """
    previous: list[int] = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = tokenizer.chat(messages[:index], add_generation_prompt=True)
        complete = tokenizer.chat(messages[: index + 1], add_generation_prompt=False)
        if prompt[: len(previous)] != previous or complete[: len(prompt)] != prompt:
            law = "writes the beginning of a conversation otherwise when it goes on, so no token can be assigned to a turn"
            raise InputError("the chat template", law, "give one answer a line, or prompt and response")
        yield prompt[len(previous) :], False
        yield complete[len(prompt) :], True
        previous = complete


def _truncated_example(parts: Sequence[tuple[list[int], bool]], size: int) -> Example:
    ids = [token for tokens, _ in parts for token in tokens][:size]
    trained = [is_target for tokens, is_target in parts for _ in tokens][:size]
    return Example(ids=torch.tensor(ids, dtype=torch.int64), trained=torch.tensor(trained, dtype=torch.bool))
