"""Configuration: default option values and where each is set."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ConfiguredOption:
    """An option as it would be typed, where it was found, places that this goes before, and the commands that hear it."""

    words: tuple[str, ...]
    source: str
    before: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Default option values, and where they come from.

    ``files``: config files in order of precedence, and whether each exists. ``unknown_variables``: environment variables with the
    prefix of options that name no option.
    """

    files: dict[str, bool]
    options: tuple[ConfiguredOption, ...]
    unknown_variables: tuple[str, ...]
