"""Parameters without weight decay: norms, biases, embeddings."""

from collections.abc import Collection, Iterable, Iterator

from torch import nn

from strategist_runtime.model.decoder import plain_name

HEAD_NAMES = ("head", "lm_head")
"""Names of the output projection; it counts as an embedding, whether tied or not."""


def no_decay_parameters(parts: Iterable[nn.Module], groups: Collection[str]) -> frozenset[str]:
    """Plain names of the parameters in ``groups``: any of norms, biases and embeddings."""
    return frozenset(name for part in parts for group, name in _names_by_group(part) if group in groups)


def _names_by_group(part: nn.Module) -> Iterator[tuple[str, str]]:
    """The group and the plain name of each parameter that belongs to a group; norms are recognised by their class name."""
    for path, module in part.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            plain = plain_name(f"{path}.{name}")
            if "norm" in type(module).__name__.lower():
                yield "norms", plain
            elif name.endswith("bias"):
                yield "biases", plain
            elif isinstance(module, nn.Embedding) or path.rpartition(".")[2] in HEAD_NAMES:
                yield "embeddings", plain
