"""Training data: a file or folder of samples, and its weight in a mixture."""

import shlex

from strategist.errors import InputError
from strategist.frozen import frozen

EXAMPLES_SUFFIX = ".jsonl"
"""Files with this suffix hold one example per line: text, prompt and response, or messages."""


@frozen
class DataSource:
    """A file of tokens (``.bin``, ``.npy``), a folder written by ``datasets.save_to_disk``, or a file of examples (``.jsonl``).

    weight: relative share of samples from this source; None for a share in proportion to its size.
    """

    path: str
    weight: float | None = None

    def __post_init__(self) -> None:
        if not self.path:
            raise InputError("--data", "names no file", "give a file of tokens or examples, or a data set's folder")
        if self.weight is not None and not 0 < self.weight < 1e9:
            raise InputError(
                f"--data {self.path}={self.weight}", "a weight is above 0", f"write e.g. --data {shlex.quote(self.path)}=0.5"
            )

    @property
    def holds_examples(self) -> bool:
        """Whether it is a file of examples, which needs a tokenizer."""
        return self.path.endswith(EXAMPLES_SUFFIX)


Data = str | tuple[DataSource, ...]
"""One path, or several sources; empty for none."""


def sources_of(data: Data, option: str = "--data") -> tuple[DataSource, ...]:
    """List of sources in ``data``; ``option`` names it in errors.

    Raises:
        InputError: some sources have weights and others have none.
    """
    if isinstance(data, str):
        return (DataSource(path=data),) if data else ()
    weights = [source.weight is not None for source in data]
    if any(weights) and not all(weights):
        law = "has no weight, and other sources have one"
        raise InputError(f"{option} {data[weights.index(False)].path}", law, "give all sources a weight, or none")
    return data
