"""Shipped profiles: their files, and lookup by name in any spelling."""

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from strategist.contract import codec
from strategist.errors import InputError, did_you_mean
from strategist.files import cache, yaml_file
from strategist.paths import data_dir

T = TypeVar("T")
CACHED_FILES = 512
"""Number of recently read profiles that are kept in memory until their text changes."""

_SEPARATORS = re.compile(r"[-_.\s]+")


def profile_path(kind: str, stem: str) -> Path:
    """File of the shipped profile ``stem`` of ``models``, ``hardware`` or another kind."""
    return data_dir("profiles") / kind / f"{stem}.yaml"


def shipped(kind: str, stem: str) -> yaml_file.Document:
    """The shipped profile, from the cache if an earlier run parsed the same file.

    Raises:
        FileError: it cannot be read, or is not within the subset of YAML.
    """
    path = profile_path(kind, stem)
    return _document(path, yaml_file.read_text(path))


@lru_cache(maxsize=CACHED_FILES)
def _document(path: Path, text: str) -> yaml_file.Document:
    key = cache.key_of(cache.version("files/yaml_parser", "files/yaml_file"), text)
    data = cache.cached(f"profiles/{path.parent.name}/{path.stem}", key, lambda: yaml_file.parse(text, path).data)
    return yaml_file.Document.with_data(path, text, data)


def profile_stems(kind: str) -> tuple[str, ...]:
    """Names of all shipped profile files of a kind, except ``names.yaml`` with the other names."""
    files = os.listdir(data_dir("profiles") / kind)
    return tuple(sorted(file.removesuffix(".yaml") for file in files if file.endswith(".yaml") and file != "names.yaml"))


@lru_cache(maxsize=4096)
def normalized_name(name: str) -> str:
    """``name`` in lower case without separators, except between two digits: 2.5-7b is neither 25-7b nor 2-57b."""

    def separator(match: re.Match[str]) -> str:
        before, after = name[: match.start()][-1:], name[match.end() :][:1]
        return "-" if before.isdigit() and after.isdigit() else ""

    return _SEPARATORS.sub(separator, name).lower()


def find(name: str, known: Iterable[str]) -> str | None:
    """The element of ``known`` that equals ``name`` apart from case and separators; None without one."""
    normalized = normalized_name(name)
    return next((item for item in known if normalized_name(item) == normalized), None)


def unknown(value: str, law: str, name: str, known: Iterable[str], do: str, listed: Iterable[str] = ()) -> InputError:
    """The error for an unknown name, with the nearest known names, or those in ``listed`` if none is similar.

    law: the broken law.
    do: advice.
    """
    if hint := did_you_mean(name, known, count=3, cutoff=0.5, key=normalized_name):
        return InputError(value, law, f"{hint} Else {do}")
    return InputError(value, law, f"known are {', '.join(listed)}; else {do}" if listed else do)


def decoded(cls: type[T], document: yaml_file.Document, data: Any, name: str, key_path: yaml_file.KeyPath = ()) -> T:
    """``data`` as a contract value; errors point into the document that it comes from.

    Raises:
        FileError: an unknown or missing key, or a value of the wrong type or against a law of ``cls``.
    """
    try:
        return cast(T, codec.decode(cls, data, name))
    except (codec.CodecError, InputError) as error:
        raise document.error(key_path, str(error)) from None
