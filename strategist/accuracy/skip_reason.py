"""Why a published row cannot be priced: a closed list."""

from enum import StrEnum


class SkipReason(StrEnum):
    """Reasons, each the end of the sentence: the row is skipped since ..."""

    FLAGGED = "its source or its reader flags it as unreliable"
    MEASURED_NOTHING = "it has neither time nor memory nor a failure"
    OTHER_MODEL = "it is not a decoder or encoder transformer that a shape describes"
    NO_SHAPE = "the model's shape is not stated and no preset has its name"
    NO_DEVICE = "no profile describes its GPU"
    NO_POWER_LIMIT = "its GPUs are power-limited, and the limit is not stated"
    NO_LAYOUT = "the degrees of parallelism are not stated or do not make up the GPUs"
    NO_BATCH = "batch size or sequence length is not stated"
    OTHER_ARITHMETIC = "its arithmetic has no price"
    IMPOSSIBLE = "its figures break a law of clusters, models or workloads"
    OTHER_TECHNIQUE = "no plan can express the technique"


class Skipped(Exception):  # noqa: N818 - an outcome, not a fault
    """A row cannot be priced; with its reason."""

    def __init__(self, reason: SkipReason) -> None:
        super().__init__(reason.value)
        self.reason = reason
