"""Back ends by name: the built-in runtime's, programs (shipped or from files), and formats, which strategist does not run."""

from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from strategist.contract.stack import Stack
from strategist.expr.evaluate import Facts
from strategist.files import yaml_file
from strategist.profiles import catalog
from strategist.profiles.stacks import find_stack
from strategist.rules.backend import ANY_BACKEND, Backend, read_backend

if TYPE_CHECKING:
    from strategist.programs.program import Program

SUFFIXES = (".yaml", ".yml", ".json")
NO_FACTS: Facts = MappingProxyType({})


@cache
def backends() -> tuple[str, ...]:
    """Names of all shipped back ends of the built-in runtime."""
    return catalog.profile_stems("backends")


@cache
def programs() -> tuple[str, ...]:
    """Names of all shipped programs."""
    return catalog.profile_stems("programs")


@cache
def formats() -> tuple[str, ...]:
    """Names of the formats that are not programs."""
    return catalog.profile_stems("formats")


@cache
def readers() -> tuple[str, ...]:
    """Names of the formats that are only read."""
    return catalog.profile_stems("readers")


def load_backend(name: str) -> Backend:
    """The back end of that name: of the built-in runtime, a program (also by its file) or a format, which may be only read. ``any``
    supports everything.

    Raises:
        InputError: nothing has that name.
        FileError: its file is invalid; with the position.
    """
    program = find_program(name)
    return _backend(name) if program is None else program.backend


def stack_of(name: str, facts: Facts = NO_FACTS) -> Stack | None:
    """The stack that prices candidates with these facts on the back end of that name; None for the built-in runtime."""
    return find_stack(load_backend(name).stack_for(facts))


def find_program(name: str) -> "Program | None":
    """The program of that name or in that file; None for any other name.

    Raises:
        FileError: the file describes no program.
    """
    if name in programs():
        path = catalog.profile_path("programs", name)
    elif name.endswith(SUFFIXES):
        path = Path(name).resolve()
    else:
        return None
    return _program(path, yaml_file.read_text(path))


@lru_cache(maxsize=32)
def _program(path: Path, text: str) -> "Program":
    from strategist.programs.program_file import read_program

    return read_program(yaml_file.parse(text, path))


@cache
def _backend(name: str) -> Backend:
    if name == ANY_BACKEND:
        return Backend(name=ANY_BACKEND, title="no back end in particular")
    shipped = {"backends": backends(), "formats": formats(), "readers": readers()}
    kind = next((kind for kind, names in shipped.items() if name in names), None)
    if kind is None:
        known = (ANY_BACKEND, *backends(), *programs(), *formats())
        do = f"choose one of {', '.join(known)}, or name a program's file"
        raise catalog.unknown(f"backend {name}", "is not known", name, known, do)
    document = catalog.shipped(kind, name)
    found = read_backend(document)
    if kind == "backends":
        return found
    from strategist.programs.program_backend import backend_of, free_settings

    return backend_of(found, frozenset(), (), free_settings(document))
