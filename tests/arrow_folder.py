"""Token folders in the format of ``Dataset.save_to_disk``."""

import json
from pathlib import Path

import pyarrow


def save_to_disk(folder: Path, columns: dict[str, object], rows_a_batch: int = 2) -> Path:
    """Writes Arrow streams, and the file that lists them."""
    folder.mkdir()
    table = pyarrow.table(columns)
    with pyarrow.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table, max_chunksize=rows_a_batch)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder
