"""Address of a ledger: in the study's folder, or on a PostgreSQL server that the folder names. Passwords are never stored."""

import re
import shlex
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from strategist.errors import FileError, InputError
from strategist.files import outputs
from strategist.frozen import frozen
from strategist.ledger.sqlite import FILE_NAME

SCHEMES = ("postgresql", "postgres")
ADDRESS_FILE = "ledger.url"
"""File in a study's folder that names the server of its ledger."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
_EXAMPLE = "write postgresql://USER@HOST/DATABASE"


@frozen
class Address:
    """A study on a server. ``server``: address for libpq; ``study``: the study's name in that database."""

    server: str
    study: str

    def __str__(self) -> str:
        return f"{self.server}{'&' if '?' in self.server else '?'}study={self.study}"


def is_server(text: str | Path) -> bool:
    """Whether the text is a server's address rather than a folder."""
    return str(text).partition("://")[0] in SCHEMES and "://" in str(text)


def parse(text: str, option: str, study: str = "") -> Address:
    """The address in ``text``. ``study``: name of the study if the address has no ``?study=NAME``.

    Raises:
        InputError: it is not a valid address, or holds a password.
    """
    subject = f"{option} {redacted(text)}"
    if not is_server(text):
        raise InputError(subject, "is not an address of a PostgreSQL server", _EXAMPLE)
    query = parse_qsl(text.partition("?")[2], keep_blank_values=True)
    if ":" in _user(text) or any("password" in key for key, _ in query):
        do = "leave it out, and put it into ~/.pgpass or the variable PGPASSWORD"
        raise InputError(subject, "holds a password, which other users of the machine could see", do)
    parts = urlsplit(text)
    study_names = [value for key, value in query if key == "study"]
    name = study_names[-1] if study_names else study
    if not _NAME.fullmatch(name):
        law = f"{name!r} names no study: up to 50 letters, digits, dots, dashes and underscores do" if name else "names no study"
        raise InputError(subject, law, "add ?study=NAME")
    if not parts.path.strip("/"):
        raise InputError(subject, "names no database", _EXAMPLE)
    other_options = urlencode([(key, value) for key, value in query if key != "study"], safe="/")
    netloc = parts.netloc
    server = (
        urlunsplit((SCHEMES[0], netloc, parts.path, other_options, ""))
        if netloc
        else f"{SCHEMES[0]}://{parts.path}?{other_options}".rstrip("?")
    )
    return Address(server=server, study=name)


def _user(text: str) -> str:
    """The text before the last ``@``: a user, and possibly a password."""
    return text.partition("://")[2].rpartition("@")[0]


def redacted(text: str) -> str:
    """The address with passwords replaced by dots."""
    if user := _user(text):
        scheme, _, rest = text.partition("://")
        hidden = ":..." if ":" in user else ""
        text = f"{scheme}://{user.partition(':')[0]}{hidden}@{rest.rpartition('@')[2]}"
    return re.sub(r"([a-z]*password=)[^&]*", r"\1...", text)


def stored_address(folder: Path) -> Address | None:
    """The address that a study's folder names; None if the ledger is in the folder.

    Raises:
        FileError: the file with the address is invalid.
    """
    path = folder / ADDRESS_FILE
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, f"cannot be read: {error}; name another file") from None
    try:
        return parse(text, "ledger")
    except InputError as error:
        raise FileError(path, f"holds no address of a ledger: {error.law}") from None


def resolve(folder: Path, server: str) -> Address | None:
    """The address of a folder's ledger; None if the ledger is in the folder. ``server``: the requested server, empty for none.

    Raises:
        InputError: the folder's ledger is elsewhere.
    """
    stored = stored_address(folder)
    if not server:
        return stored
    server_address = parse(server, "--ledger", folder.name if stored is None else stored.study)
    if stored is not None and stored != server_address:
        raise InputError(
            f"--ledger {server_address}", f"the ledger of {folder} is {stored}", "leave it out, or use a new study folder"
        )
    if stored is None and (folder / FILE_NAME).exists():
        law = f"the ledger of {folder} is {FILE_NAME} in it"
        raise InputError(
            f"--ledger {server_address}",
            law,
            f"merge it into a new study: strategist study merge {shlex.quote(str(folder))} --into DIR --ledger ADDRESS",
        )
    return server_address


def store(folder: Path, address: Address) -> None:
    """Writes the address into the folder, atomically.

    Raises:
        FileError: the folder cannot be written.
    """
    outputs.write(folder / ADDRESS_FILE, f"{address}\n")
