"""Format interface: reads and writes another system's config file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.formats.commented_text import heading
from strategist.formats.config_entries import Entries
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source
from strategist.frozen import frozen


@frozen
class File:
    """One file of an export. ``runs``: whether it is the start script."""

    name: str
    text: str
    runs: bool = False


_SAFE = re.compile(r"[\w/.][\w/.:@+=,-]*(?<!:)", re.ASCII)


@frozen
class Placeholder:
    """A text in the exported files that the user's weights, data or tokenizer replace.

    input: weights, data or tokenizer.
    filled: the replacement of ``text``, with the user's value for its ``{}``.
    need: the line of ``needs`` that a value resolves.
    """

    input: str
    text: str
    filled: str
    need: str = ""


@frozen
class ExportedFiles:
    """A plan as files of another system.

    files: the file with the settings comes first.
    command: starts the training on each node, in a folder with the files.
    findings: settings of the plan that the system cannot express.
    needs: what the files lack for a training on the user's data: scripts, models, tokenizers, data, learning rates.
    user_files: files of the user that the command runs as well, in the same folder.
    user_folder: variable that may name another folder with ``user_files``; empty if the command knows none.
    placeholders: texts that the user's weights, data and tokenizer replace.
    """

    files: tuple[File, ...]
    command: tuple[str, ...]
    findings: tuple[Diagnostic, ...] = ()
    needs: tuple[str, ...] = ()
    user_files: tuple[str, ...] = ()
    user_folder: str = ""
    placeholders: tuple[Placeholder, ...] = ()

    def with_inputs(self, values: Mapping[str, str]) -> "ExportedFiles":
        """The same files with placeholders replaced by these values; values without a placeholder change nothing.

        Raises:
            InputError: a value has characters that would need quotes.
        """
        for name, value in values.items():
            if not _SAFE.fullmatch(value):
                law = "is written into scripts, so it has letters, digits and / . _ - : @ + = , only"
                raise InputError(f"--{name} {value}", law, "name it by a link without others")
        filled = [item for item in self.placeholders if item.input in values]
        files = list(self.files)
        for item in filled:
            text = item.filled.replace("{}", values[item.input])
            files = [replace(file, text=file.text.replace(item.text, text)) for file in files]
        resolved_needs = {item.need for item in filled}
        return replace(self, files=tuple(files), needs=tuple(need for need in self.needs if need not in resolved_needs))

    def with_remarks(self, after: Sequence[str], lines: Sequence[str]) -> "ExportedFiles":
        """The same files with ``lines`` as further comments behind the comments ``after``, in the first file that has these."""
        head, files = heading(after), list(self.files)
        index = next(index for index, file in enumerate(files) if head in file.text)
        files[index] = replace(files[index], text=files[index].text.replace(head, heading((*after, *lines)), 1))
        return replace(self, files=tuple(files))


def unchanged(source: Source) -> Source:
    """The source, unchanged: the default of ``Format.opened``."""
    return source


@frozen
class Format:
    """Reader and writer of one system's config files.

    name: also that of its back end (``profiles/formats``, ``profiles/programs`` or, of a format that is only read,
        ``profiles/readers``), which lists the supported settings.
    title: name for users, with the version that the format was written for.
    recognises: whether a source has this format; the first format that recognises it reads it.
    opened: the source with the entries that ``read`` expects, if those of its language differ. Raises FileError.
    read: the parsed config. Raises FileError, with the position of the mistake.
    write: exports a plan with a one-line reason by setting. ``read`` restores every setting that the back end supports. None
        where the format is only read.
    ignores: entries, or patterns of them, that no plan depends on.
    scripts_add: whether the scripts that have this format add names of their own.
    listed: file in ``profiles/formats/names`` with the names that the system accepts; empty if it accepts any.
    """

    name: str
    title: str
    recognises: Callable[[Source], bool]
    read: Callable[[Entries], ParsedConfig]
    write: Callable[[Plan, Mapping[str, str]], ExportedFiles] | None = None
    opened: Callable[[Source], Source] = unchanged
    ignores: tuple[str, ...] = field(default=(), repr=False)
    listed: str = ""
    scripts_add: bool = False
