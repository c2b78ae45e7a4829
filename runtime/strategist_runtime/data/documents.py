"""Packed documents: a sequence has several, each up to its end token, and no token attends to another document (arXiv
2107.02027).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strategist_runtime.data.sample import Sample
from strategist_runtime.data.shuffle import mixed
from strategist_runtime.data.token_datasets import STRIDES, SyntheticTokens


@dataclass(frozen=True, kw_only=True)
class SyntheticDocuments(SyntheticTokens):
    """Samples of synthetic documents. Each document counts up by its own small stride and ends with the vocabulary's last token.
    Lengths are uniform around ``mean_tokens``, from 1 on.
    """

    mean_tokens: int

    @property
    def end(self) -> int:
        """The token that ends a document."""
        return self.vocab_size - 1

    def sample(self, number: int) -> Sample:
        """A sample of packed documents."""
        documents: list[Tensor] = []
        missing_tokens, random_bits = self.seq_len + 1, mixed(self.seed, number)
        while missing_tokens > 0:
            random_bits = mixed(random_bits, number)
            document = self._document(random_bits)[:missing_tokens]
            documents.append(document)
            missing_tokens -= len(document)
        return Sample.of(torch.cat(documents), end=self.end)

    def _document(self, random_bits: int) -> Tensor:
        length, start, stride = random_bits % (2 * self.mean_tokens - 1), random_bits >> 32, 1 + (random_bits >> 16) % STRIDES
        tokens = (start + stride * torch.arange(length)) % self.end
        return torch.cat((tokens, torch.tensor([self.end])))
