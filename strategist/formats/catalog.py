"""Formats by name, and detection of a source's format."""

from importlib import import_module

from strategist.errors import FileError
from strategist.formats import native
from strategist.formats.format import Format
from strategist.formats.source import Source
from strategist.formats.unreadable import unread_script, unreadable
from strategist.profiles import catalog
from strategist.programs.backends import load_backend
from strategist.rules.backend import Backend

MODULES = (
    "pytorch", "deepspeed", "megatron_lm", "torchtitan", "llama_factory", "axolotl", "nanotron", "accelerate", "hf_trainer",
    "lightning",
)  # fmt: skip
"""Modules that hold a FORMAT, imported on demand. Formats with the most distinctive files come first: the first match is taken."""

READ_ONLY = ("torchtune", "ms_swift")
"""Modules of formats that are read and never written; their files are distinctive, so they are tried before the others."""


def formats() -> tuple[str, ...]:
    """Names of the formats of other systems that are read and written."""
    return tuple(name.replace("_", "-") for name in MODULES)


def readable_formats() -> tuple[str, ...]:
    """Names of all formats of other systems that are read."""
    return tuple(name.replace("_", "-") for name in (*READ_ONLY, *MODULES))


def find_format(name: str) -> Format:
    """The format of that name.

    Raises:
        InputError: no format has the name.
    """
    known = catalog.find(name, readable_formats())
    if known is None:
        do = f"choose one of {', '.join(readable_formats())}"
        raise catalog.unknown(f"format {name}", "is not known", name, readable_formats(), do)
    found: Format = import_module(f"strategist.formats.{known.replace('-', '_')}").FORMAT
    return found


def recognise(source: Source) -> Format:
    """The format of a source, detected by its content: a plan of strategist, or another system's format.

    Raises:
        FileError: no format matches.
    """
    if found := recognised(source):
        return found
    if error := unread_script(source):
        raise error
    law = f"is of no format that is known ({', '.join(readable_formats())})"
    raise FileError(source.path, f"{law}; name one with --format, or give its model and settings to strategist plan")


def recognised(source: Source) -> Format | None:
    """The format of :func:`recognise`; None if no format matches.

    Raises:
        FileError: the source is of a system whose files are not read.
    """
    if native.FORMAT.recognises(source):
        return native.FORMAT
    unreadable(source)
    return next((found for name in readable_formats() if (found := find_format(name)).recognises(source)), None)


def backend(found: Format) -> Backend:
    """The back end of a format, which lists the settings that it supports."""
    return load_backend(found.name)
