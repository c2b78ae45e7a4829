"""Formats by name, and detection of a source's format."""

import re
from importlib import import_module

from strategist.errors import FileError
from strategist.formats import native
from strategist.formats.format import Format
from strategist.formats.source import Source
from strategist.profiles import catalog
from strategist.programs.backends import load_backend
from strategist.rules.backend import Backend

MODULES = (
    "pytorch", "deepspeed", "megatron_lm", "torchtitan", "llama_factory", "axolotl", "nanotron", "accelerate", "hf_trainer",
    "lightning",
)  # fmt: skip
"""Modules that hold a FORMAT, imported on demand. Formats with the most distinctive files come first: the first match is taken."""

_SWIFT = re.compile(r"^[^#\n]*?(?<![\w-])(swift[ \t]+(?:sft|pt|rlhf))(?!\S)", re.MULTILINE)
"""Start of a training with ms-swift, some of whose flags have the same names as those of transformers."""


def formats() -> tuple[str, ...]:
    """Names of all formats of other systems."""
    return tuple(name.replace("_", "-") for name in MODULES)


def find_format(name: str) -> Format:
    """The format of that name.

    Raises:
        InputError: no format has the name.
    """
    known = catalog.find(name, formats())
    if known is None:
        raise catalog.unknown(f"format {name}", "is not known", name, formats(), f"choose one of {', '.join(formats())}")
    found: Format = import_module(f"strategist.formats.{known.replace('-', '_')}").FORMAT
    return found


def recognise(source: Source) -> Format:
    """The format of a source, detected by its content: a plan of strategist, or another system's format.

    Raises:
        FileError: no format matches.
    """
    if source.language == "command" and (swift := _SWIFT.search(source.text)):
        law = f"is a `{swift[1]}` script, which is none of the formats that are read ({', '.join(formats())})"
        raise FileError(source.path, f"{law}; give --model and the settings to strategist plan")
    if native.FORMAT.recognises(source):
        return native.FORMAT
    for name in formats():
        if (found := find_format(name)).recognises(source):
            return found
    raise FileError(source.path, f"is of no format that is known ({', '.join(formats())}); name one with --format")


def backend(found: Format) -> Backend:
    """The back end of a format, which lists the settings that it supports."""
    return load_backend(found.name)
