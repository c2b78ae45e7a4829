"""Data sources of a training: the datasets that its settings name, for training and for evaluation."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from strategist.contract.data_source import Data, DataSource, sources_of
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist_runtime.data.documents import SyntheticDocuments
from strategist_runtime.data.examples import open_examples
from strategist_runtime.data.mixture import mixture
from strategist_runtime.data.sample import Dataset, Sample
from strategist_runtime.data.token_datasets import SyntheticTokens, open_tokens
from strategist_runtime.data.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class SourceOpener:
    """Opens sources for one plan and its settings; the tokenizer is loaded once."""

    plan: Plan
    settings: TrialSettings

    def training_dataset(self) -> Dataset:
        """The training data, as an endless dataset.

        Raises:
            InputError, FileError: a source cannot be read.
        """
        settings, shape = self.settings, {"seq_len": self.plan.workload.seq_len, "vocab_size": self.plan.model.vocab_size}
        if settings.data:
            sources = sources_of(settings.data)
            return mixture([self._open(source) for source in sources], [source.weight for source in sources], settings.seed)
        if mean := settings.mean_document_tokens or self.plan.workload.document_tokens:
            return SyntheticDocuments(seed=settings.seed, mean_tokens=mean, **shape)
        return SyntheticTokens(seed=settings.seed, **shape)

    def evaluation_dataset(self) -> Dataset:
        """The evaluation data: a finite dataset, one source after the other, unshuffled."""
        return ConcatenatedDataset(datasets=tuple(self._open_all(self.settings.evaluation_data)))

    def _open_all(self, data: Data) -> Iterator[Dataset]:
        return (self._open(source) for source in sources_of(data))

    def _open(self, source: DataSource) -> Dataset:
        settings, shape = self.settings, {"seq_len": self.plan.workload.seq_len, "vocab_size": self.plan.model.vocab_size}
        if source.holds_examples:
            return open_examples(source.path, self.tokenizer, packed=settings.packing, **shape)
        return open_tokens(source.path, settings.data_type, end=settings.document_end, **shape)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of examples.

        Raises:
            InputError: no tokenizer is named.
        """
        settings = self.settings
        path = settings.tokenizer or settings.weights or settings.hugging_face
        if not path:
            raise InputError("--data", "of examples are tokenised first", "add --tokenizer DIR, the folder of a tokenizer.json")
        return Tokenizer(path)


@dataclass(frozen=True, kw_only=True)
class ConcatenatedDataset:
    """Finite datasets one after the other."""

    datasets: tuple[Dataset, ...]

    @property
    def samples(self) -> int:
        return sum(dataset.samples or 0 for dataset in self.datasets)

    def sample(self, number: int) -> Sample:
        dataset, position = self._locate(number)
        return dataset.sample(position)

    def trained(self, number: int) -> int:
        dataset, position = self._locate(number)
        return dataset.trained(position)

    def _locate(self, number: int) -> tuple[Dataset, int]:
        for dataset in self.datasets:
            if number < (dataset.samples or 0):
                return dataset, number
            number -= dataset.samples or 0
        raise IndexError(number)
