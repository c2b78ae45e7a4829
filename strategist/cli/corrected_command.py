"""The command with a misspelled word corrected, as the next step of an error."""

import re
import shlex
from collections.abc import Sequence

from strategist import api
from strategist.errors import InputError, StrategistError

SUGGESTED = re.compile(r"did you mean (\S+?)(?: or |\?)")
QUOTED = re.compile(r"'([^' ]+)'")


def corrected_command(error: StrategistError, arguments: Sequence[str]) -> str:
    """The command line with the first word that an error suggests. Empty if the error suggests none, or if not exactly one argument
    contains the wrong word."""
    suggestion = SUGGESTED.search(str(error))
    if suggestion is None:
        return ""
    wrong = _misspelled(error)
    exact = [index for index, argument in enumerate(arguments) if argument == wrong]
    positions = exact or [index for index, argument in enumerate(arguments) if wrong in argument]
    if len(positions) != 1:
        return ""
    words = list(arguments)
    words[positions[0]] = words[positions[0]].replace(wrong, suggestion[1], 1)
    return shlex.join(["strategist", *map(api.redacted, words)])


def _misspelled(error: StrategistError) -> str:
    """The wrong word of an error: the word that its law quotes, else the value of the option or setting; for an error of the
    command line itself, its first word without a value."""
    if not isinstance(error, InputError):
        return str(error).partition(" ")[0].partition("=")[0]
    quoted = QUOTED.search(error.law)
    if quoted:
        return quoted[1]
    return (error.value.partition(" ")[2] if error.value.startswith("--") else error.value.split()[-1]).rpartition("=")[2]
