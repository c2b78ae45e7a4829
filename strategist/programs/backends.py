"""Back ends by name: those of our own executing half, programs, shipped or in files of their own, and formats, which nothing here
runs."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from strategist.contract.stack import Stack
from strategist.files import yaml_file
from strategist.profiles import catalog
from strategist.profiles.stacks import find_stack
from strategist.rules.backend import ANY, Backend, read_backend

if TYPE_CHECKING:
    from strategist.programs.program import Program

SUFFIXES = (".yaml", ".yml", ".json")


@cache
def backends() -> tuple[str, ...]:
    """Names of all shipped back ends that are our own."""
    return catalog.profile_stems("backends")


@cache
def programs() -> tuple[str, ...]:
    """Names of all shipped programs."""
    return catalog.profile_stems("programs")


@cache
def formats() -> tuple[str, ...]:
    """Names of the formats that no program has."""
    return catalog.profile_stems("formats")


def load_backend(name: str) -> Backend:
    """The back end of that name, or of the program or format that has it or is described in that file; ``any`` is the one that
    refuses nothing.

    Raises:
        InputError: there is none of that name.
        FileError: its file is not what it should be; names the place.
    """
    program = find_program(name)
    return _backend(name) if program is None else program.backend


def stack_of(name: str) -> Stack | None:
    """The system that runs plans for the back end of that name; None for our own half."""
    return find_stack(load_backend(name).stack)


def find_program(name: str) -> "Program | None":
    """The program of that name or in that file; None for a name of another kind.

    Raises:
        FileError: the file is no program.
    """
    if name in programs():
        return _program(str(catalog.profile_path("programs", name)), 0)
    if not name.endswith(SUFFIXES):
        return None
    path = Path(name)
    return _program(str(path.resolve()), path.stat().st_mtime_ns if path.exists() else 0)


@cache
def _program(path: str, _written: int) -> "Program":
    from strategist.programs.program_file import read_program

    return read_program(yaml_file.load(path))


@cache
def _backend(name: str) -> Backend:
    if name == ANY:
        return Backend(name=ANY, title="no back end in particular")
    kind = next((kind for kind, names in (("backends", backends()), ("formats", formats())) if name in names), None)
    if kind is None:
        known = (ANY, *backends(), *programs(), *formats())
        do = f"choose one of {', '.join(known)}, or name a program's file"
        raise catalog.unknown(f"backend {name}", "is not known", name, known, do)
    document = catalog.shipped(kind, name)
    found = read_backend(document)
    if kind == "backends":
        return found
    from strategist.programs.program_backend import backend_of, free_settings

    return backend_of(found, frozenset(), (), free_settings(document))
