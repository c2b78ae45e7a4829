"""Checks of names and ids in a document: only characters that are safe in a script, an HTTP header or a log line."""

import re

from strategist.errors import InputError

MAX_NAME_CHARACTERS = 1000
_ID = re.compile(r"[A-Za-z0-9._-]{0,64}", re.ASCII)


def check_name(kind: str, name: str) -> None:
    """Raises InputError for a name with a line break or an unprintable character, or with too many characters."""
    if not name.isprintable():
        law = "holds a line break or another character that cannot be shown"
        raise InputError(f"{kind} {name[:60]!r}", law, "write the name in printable characters")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InputError(f"{kind} {name[:60]!r}...", f"has {len(name)} characters", f"write at most {MAX_NAME_CHARACTERS}")


def check_id(kind: str, name: str) -> None:
    """Raises InputError unless an id has at most 64 letters, digits, dots, dashes and underscores."""
    if not _ID.fullmatch(name):
        law = "is not an id: it has up to 64 letters, digits, dots, dashes and underscores"
        raise InputError(f"{kind} {name[:60]!r}", law, "write the plan again with strategist plan -o")
