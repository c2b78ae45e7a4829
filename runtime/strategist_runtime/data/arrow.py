"""Folders written by ``datasets.Dataset.save_to_disk``: Arrow streams with a column of token ids. Needs pyarrow only."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from strategist.errors import FileError, InputError
from strategist_runtime.data.token_files import TokenFile

COLUMN = "input_ids"
INSTALL_COMMAND = "pip install 'torch-strategist[data]'"


def arrow_token_files(folder: Path) -> list[TokenFile]:
    """The tokens of all rows, row after row, memory-mapped.

    Raises:
        InputError, FileError: pyarrow is missing, or the folder has no data set of token ids.
    """
    try:
        import pyarrow
    except ImportError:
        raise InputError(
            f"--data {folder}", "a data set's folder is read with pyarrow, which is missing", INSTALL_COMMAND
        ) from None
    files = _files(folder)
    return [token_file for path in files for token_file in _token_files(path, pyarrow)]


def _files(folder: Path) -> list[Path]:
    if (folder / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(item.name for item in folder.iterdir() if item.is_dir()))
        raise InputError(f"--data {folder}", f"holds several data sets: {splits}", f"name one, as in {folder}/train")
    state = folder / "state.json"
    try:
        return [folder / item["filename"] for item in json.loads(state.read_text(encoding="utf-8"))["_data_files"]]
    except OSError:
        raise FileError(folder, "holds no state.json: it is not a folder of Dataset.save_to_disk") from None
    except (ValueError, KeyError, TypeError):
        raise FileError(state, "names no files of a data set") from None


def _token_files(path: Path, pyarrow: Any) -> Iterator[TokenFile]:
    try:
        table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise FileError(path, f"is not an Arrow stream: {error}") from None
    if COLUMN not in table.column_names:
        names = ", ".join(table.column_names)
        hint = f"tokenize it first, into a column {COLUMN}" if "text" in table.column_names else "name another data set"
        raise InputError(f"--data {path.parent}", f"has no column {COLUMN}, but {names}", hint)
    for chunk in table.column(COLUMN).chunks:
        yield _token_file(chunk.flatten() if hasattr(chunk, "flatten") else chunk, path, pyarrow)


def _token_file(values: Any, path: Path, pyarrow: Any) -> TokenFile:
    """The buffer of an array of integers."""
    types = {
        pyarrow.uint16(): torch.uint16, pyarrow.uint32(): torch.uint32, pyarrow.int16(): torch.int16,
        pyarrow.int32(): torch.int32, pyarrow.int64(): torch.int64,
    }  # fmt: skip
    if values.type not in types or values.null_count:
        raise FileError(path, f"its {COLUMN} are {values.type} with {values.null_count} gaps: lists of whole numbers are needed")
    dtype = types[values.type]
    if not len(values):
        return TokenFile(memory=memoryview(b""), dtype=dtype)
    first, last = values.offset * dtype.itemsize, (values.offset + len(values)) * dtype.itemsize
    return TokenFile(memory=memoryview(values.buffers()[1])[first:last], dtype=dtype)
