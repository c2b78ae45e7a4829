"""Format interface: reads and writes another system's config file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.formats.commented_text import heading
from strategist.formats.config_entries import Entries
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of an export. ``runs`` says that it is the program's start."""

    name: str
    text: str
    runs: bool = False


_SAFE = re.compile(r"[\w/.][\w/.:@+=,-]*(?<!:)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """A text of the files, in whose place weights, data or tokenizer come: as ``filled``, with the value for its ``{}``.

    need: the line of ``needs`` that a value answers.
    """

    input: str
    text: str
    filled: str
    need: str = ""


@dataclass(frozen=True, kw_only=True)
class ExportedFiles:
    """A plan in another system's words.

    files: the one that says the settings first.
    command: what trains with them on each node, in a folder that holds the files.
    findings: settings of the plan that the system cannot say.
    needs: what the files lack before the command trains on the user's data: scripts, models, tokenizers, data, learning rates.
    user_files: files of the user's that the command runs as well, in the same folder.
    placeholders: where weights, data and tokenizer of the user's come.
    """

    files: tuple[File, ...]
    command: tuple[str, ...]
    findings: tuple[Diagnostic, ...] = ()
    needs: tuple[str, ...] = ()
    user_files: tuple[str, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()

    def with_inputs(self, values: Mapping[str, str]) -> "ExportedFiles":
        """The same with these values in the place of placeholders; those that it has none for change nothing.

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
        done = {item.need for item in filled}
        return replace(self, files=tuple(files), needs=tuple(need for need in self.needs if need not in done))

    def with_remarks(self, after: Sequence[str], lines: Sequence[str]) -> "ExportedFiles":
        """The same with more comments in the head of the first file whose head holds the comments ``after``."""
        head, files = heading(after), list(self.files)
        place = next(index for index, file in enumerate(files) if head in file.text)
        files[place] = replace(files[place], text=files[place].text.replace(head, heading((*after, *lines)), 1))
        return replace(self, files=tuple(files))


def unchanged(source: Source) -> Source:
    """The source itself."""
    return source


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format.

    name: also that of its back end (``profiles/formats`` or ``profiles/programs``), which says what settings it can express.
    title: with the version that it was written for.
    recognises: whether a source is of this format; the first format that does reads it.
    opened: the source with the entries that ``read`` knows, where those of its language are others. Raises FileError.
    read: what a source says. Raises FileError, with the place of what is wrong.
    write: a plan, with one line of reason by setting. Everything that the back end takes comes back from ``read`` as it was.
    ignores: entries, or patterns of them, that say nothing of a plan.
    listed: the file of names in ``profiles/formats/names`` that the system accepts; empty where any is accepted.
    """

    name: str
    title: str
    recognises: Callable[[Source], bool]
    read: Callable[[Entries], ParsedConfig]
    write: Callable[[Plan, Mapping[str, str]], ExportedFiles]
    opened: Callable[[Source], Source] = unchanged
    ignores: tuple[str, ...] = field(default=(), repr=False)
    listed: str = ""
