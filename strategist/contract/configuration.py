"""Configuration: default option values and the source of each."""

from strategist.frozen import frozen


@frozen
class ConfiguredOption:
    """A default option value: ``words`` as typed, its ``source``, the sources that it overrides (``before``), and commands that use
    it.
    """

    words: tuple[str, ...]
    source: str
    before: tuple[str, ...]
    commands: tuple[str, ...]


@frozen
class Configuration:
    """Default option values and their sources.

    files: config files in order of precedence, and whether each exists.
    unknown_variables: environment variables with the prefix of options that match no option.
    """

    files: dict[str, bool]
    options: tuple[ConfiguredOption, ...]
    unknown_variables: tuple[str, ...]
