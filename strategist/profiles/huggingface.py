"""Models of Hugging Face ``config.json`` files, from a path, the local cache or the Hub."""

import json
import os
import shlex
from pathlib import Path
from urllib.parse import quote

from strategist.contract.model import ModelShape
from strategist.errors import FileError, InputError
from strategist.profiles.model_types import shape_of
from strategist.profiles.resolved_model import ResolvedModel, stored_weights

HUB_TIMEOUT_SECONDS, MAX_BYTES = 5.0, 2**20


def read_config(path: Path) -> ModelShape:
    """The shape in a ``config.json``, or in that of the folder ``path``."""
    return read(path).shape


def read(path: Path) -> ResolvedModel:
    """The model of a ``config.json``, or of that of the folder ``path``, with a note on what was assumed or left out.

    Raises:
        FileError: no readable configuration, or a missing key, by name.
        InputError: a model type without a reader.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}; name another file") from None
    except UnicodeDecodeError:
        raise FileError(file, "is not UTF-8 text; name another file") from None
    return _model(file, text, file.resolve().parent.name if file.name == "config.json" else file.stem)


def _model(file: object, text: str, name: str) -> ResolvedModel:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(file, f"is not JSON: {error}; correct it") from None
    if not isinstance(data, dict):
        raise FileError(file, f"a configuration is a JSON object, not {type(data).__name__}; name another file")
    shape, note = shape_of(file, data, name)
    return ResolvedModel(shape=shape, note=note, stored=stored_weights(data))


def hub_cache() -> Path:
    """Where the Hub's client keeps its files: HF_HUB_CACHE, else hub inside :func:`home`."""
    folder = os.environ.get("HF_HUB_CACHE")
    return Path(folder).expanduser() if folder else home() / "hub"


def home() -> Path:
    """Where Hugging Face's libraries keep the user's files: HF_HOME, else huggingface below XDG_CACHE_HOME, else below ~/.cache."""
    folder = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(folder).expanduser()


def cached_config(hub_id: str) -> Path | None:
    """The ``config.json`` of ``hub_id`` in the local cache, of the main branch if possible; None without one."""
    folder = hub_cache() / f"models--{hub_id.replace('/', '--')}"
    try:
        main = folder / "snapshots" / (folder / "refs" / "main").read_text().strip() / "config.json"
    except OSError:
        main = None
    if main is not None and main.is_file():
        return main
    return max(folder.glob("snapshots/*/config.json"), default=None)


def from_hub(hub_id: str) -> ResolvedModel:
    """A model on the Hub, with a note as of :func:`read`; only its ``config.json`` is fetched, without a token.

    Raises:
        InputError: it cannot be fetched.
        FileError: it cannot be read as a model.
    """
    # Imported here: it is slow, and needed only for models that are not on this machine.
    from urllib.request import urlopen

    if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("", "0", "false", "no", "off"):
        raise _unreachable(hub_id, "HF_HUB_OFFLINE is set")
    url = f"{os.environ.get('HF_ENDPOINT') or 'https://huggingface.co'}/{quote(hub_id)}/resolve/main/config.json"
    try:
        with urlopen(url, timeout=HUB_TIMEOUT_SECONDS) as response:
            text = response.read(MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:  # refused, unknown host, timeout, an HTTP status, no text
        reason = str(error).partition(chr(10))[0].removeprefix("<urlopen error ").removesuffix(">")
        raise _unreachable(hub_id, f"{url}: {reason}") from None
    return _model(url, text, hub_id)


def _unreachable(hub_id: str, reason: str) -> InputError:
    law = f"is not in {hub_cache()} and cannot be fetched ({reason})"
    return InputError(
        f"--model {hub_id}",
        law,
        f"run hf download {shlex.quote(hub_id)} config.json where it can be, or pass the path of a config.json",
    )
