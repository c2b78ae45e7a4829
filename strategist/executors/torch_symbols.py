"""Looks up the sources of cards in the installed torch, in a separate process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable

from strategist.cards.card import Card
from strategist.contract import codec
from strategist.contract.torch_symbol import References
from strategist.errors import InputError, StrategistError
from strategist.executors.local import trial_environment
from strategist.executors.requirements import require_torch

TIMEOUT_SECONDS = 300.0
"""Importing torch takes seconds, and a minute from a cold disk."""

Symbol = tuple[str, str]
"""A symbol and its parameter; the parameter may be empty."""


def sources(cards: Iterable[Card]) -> tuple[Symbol, ...]:
    """Symbols that the cards refer to, without duplicates."""
    return tuple(dict.fromkeys((ref.symbol, ref.parameter) for card in cards for ref in card.source_refs if ref.symbol))


def look_up(symbols: Iterable[Symbol]) -> References:
    """The symbols as found in the torch of this interpreter.

    Raises:
        InputError: torch is not installed, or cannot be imported.
    """
    require_torch()
    command = [sys.executable, "-m", "strategist_runtime.deck.torch_symbols"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([list(item) for item in symbols]),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            env=trial_environment(os.environ),
            check=True,
        )
        return codec.loads(References, done.stdout)
    except subprocess.TimeoutExpired:
        raise InputError(f"{sys.executable}: torch", f"took over {TIMEOUT_SECONDS:g} s to look up", "try again") from None
    except (subprocess.CalledProcessError, StrategistError) as error:
        last_line = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise InputError(
            f"{sys.executable}: torch", f"cannot be looked up: {''.join(last_line)}", "repair the installation"
        ) from None
