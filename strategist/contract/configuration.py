"""Configuration: default option values and where each is set."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StandingOption:
    """An option as it would be typed, where it was found, places that this goes before, and the commands that hear it."""

    words: tuple[str, ...]
    source: str
    before: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """``files``: those that are looked for, the nearest first, and whether each is there. ``unheard``: variables that begin like
    those of options, and are of none."""

    files: dict[str, bool]
    options: tuple[StandingOption, ...]
    unheard: tuple[str, ...]
