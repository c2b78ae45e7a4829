"""Names and ids of a document: what they may hold, so that none leaves its place in a script, a header or a log line."""

import re

from strategist.errors import InputError

LONGEST_NAME = 1000
_ID = re.compile(r"[A-Za-z0-9._-]{0,64}", re.ASCII)


def check_name(what: str, name: str) -> None:
    """Raises InputError for a name with a line break or another character that cannot be shown, or a very long one."""
    if not name.isprintable():
        law = "holds a line break or another character that cannot be shown"
        raise InputError(f"{what} {name[:60]!r}", law, "write the name in printable characters")
    if len(name) > LONGEST_NAME:
        raise InputError(f"{what} {name[:60]!r}...", f"has {len(name)} characters", f"write at most {LONGEST_NAME}")


def check_id(what: str, name: str) -> None:
    """Raises InputError for an id of other characters than letters, digits, dots, dashes and underscores, or a long one."""
    if not _ID.fullmatch(name):
        law = "is no id: it has up to 64 letters, digits, dots, dashes and underscores"
        raise InputError(f"{what} {name[:60]!r}", law, "write the plan again with strategist plan -o")
