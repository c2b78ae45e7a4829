"""Parser of settings as users write them, such as ``tp=2``, and of the names that ``allow`` accepts."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.request import CONVERGENCE
from strategist.contract.settings import PARTS, SETTING_CHOICES, SETTING_NAMES, least
from strategist.contract.workload import Workload
from strategist.errors import InputError, did_you_mean, not_among

MAX_DIGITS = 9
WORKLOAD_FIELDS = tuple(field.name for field in fields(Workload))

OTHER_NAMES = {
    "dp": "dp_shard", "fsdp": "dp_shard", "ddp": "dp_replicate", "sp": "sequence_parallel", "mbs": "micro_batch", "ac": "recompute",
    "activation_checkpointing": "recompute", "gradient_checkpointing": "recompute", "cpu_offload": "offload",
    "schedule": "pp_schedule", "vpp": "pp_virtual_stages", "fp8": "float8", "torch_compile": "compile",
}  # fmt: skip
"""Names of settings in other systems, each with its name here."""


def parse_fix(text: str) -> tuple[str, KnobValue]:
    """Name and typed value of a text such as ``tp=2``.

    Raises:
        InputError: not ``name=value``, an unknown name, or a value that the setting does not allow.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or not value:
        raise InputError(f"--fix {text}", "a setting and a value are needed", "write e.g. tp=2 or recompute=full")
    return parsed_setting(name, {"true": True, "false": False}.get(value.lower(), value))


def setting_name(name: str, shown: str) -> str:
    """Bare name of a setting; a prefix such as ``layout.`` is optional. ``shown`` is the user's text, for the error.

    Raises:
        InputError: there is no such setting.
    """
    part, _, key = name.rpartition(".")
    key = key if part in PARTS else name
    if key not in SETTING_NAMES:
        other = OTHER_NAMES.get(key.lower())
        hint = did_you_mean(other or key, SETTING_NAMES, count=1 if other else 2)
        if key in WORKLOAD_FIELDS:
            hint = f"it is an option of strategist plan, --{key.replace('_', '-')}"
        raise InputError(shown, f"{key!r} is not a setting", hint or f"known are {', '.join(SETTING_NAMES)}")
    return key


def parsed_setting(name: str, value: Any) -> tuple[str, KnobValue]:
    """Bare name of a setting and its typed value.

    Raises:
        InputError: there is no such setting, or it does not allow the value.
    """
    shown = f"--fix {name}={str(value).lower() if isinstance(value, bool) else value}"
    key = setting_name(name, shown)
    if key in SETTING_CHOICES:
        for choice in SETTING_CHOICES[key]:
            if type(value) is type(choice) and value == choice:
                return key, choice
        options = [show_value(choice) for choice in SETTING_CHOICES[key]]
        raise not_among(shown, str(value), options, f"is not a value of {key}")
    number = str(value)
    digits = number.isascii() and number.isdigit() and not isinstance(value, bool)
    if digits and len(number) > MAX_DIGITS:
        raise InputError(shown, f"a number has at most {MAX_DIGITS} digits", f"write e.g. {key}=2")
    if not digits or int(number) < least(key):
        raise InputError(shown, f"{key} is a {'positive whole number' if least(key) else 'whole number'}", f"write e.g. {key}=2")
    return key, int(number)


def parse_allow(text: str) -> Iterator[str]:
    """Names in a text such as ``float8,comm_hook`` that may change convergence.

    Raises:
        InputError: a name is not one of CONVERGENCE.
    """
    return (check_allow(name.strip()) for name in text.split(","))


def check_allow(name: Any) -> str:
    """The name, if it is one of CONVERGENCE.

    Raises:
        InputError: it is not.
    """
    if name not in CONVERGENCE:
        word = OTHER_NAMES.get(str(name).lower(), str(name))
        raise not_among(f"allow {name}", word, CONVERGENCE, "does not change convergence")
    return str(name)
