"""Published rows as read from their CSV files."""

import pytest

from strategist.accuracy.row import Row, read_rows
from strategist.errors import FileError, InputError
from tests.accuracy.published import FOLDER, made, row, rows

HEADER = "source,row_id,model,gpu,n_gpus,tp,pp,dp_shard,micro_batch,step_time_s,oom,notes\n"


def csv_file(folder, text):
    file = folder / "some.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_every_shipped_file_is_listed_with_its_licence():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    files = sorted(path.name for path in FOLDER.glob("*.csv"))
    listed = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ") and ".csv" in line]
    assert listed == files
    total = len(read_rows(FOLDER))
    assert f"{total:,} rows" in text
    for line in text.splitlines():
        if line.startswith("| ") and ".csv" in line:
            assert any(licence in line for licence in ("Apache-2.0", "MIT", "BSD-3-Clause"))


def test_cells_become_numbers_and_empty_cells_none():
    found = row("vtrain_ground_truth", "vt-multi-1")
    assert (found.tp, found.pp, found.n_gpus, found.seq_len, found.global_batch) == (1, 1, 64, 2048, 512)
    assert isinstance(found.hidden, int)
    assert isinstance(found.step_time_s, float)
    assert found.zero_stage is None
    assert found.precision == ""
    assert found.file == "vtrain_ground_truth"


def test_integral_decimals_are_read_as_integers(tmp_path):
    (found,) = read_rows(csv_file(tmp_path, HEADER + "s,r,m,H100,8.0,1,1,8,,1.5,0.0,n\n"))
    assert found == Row(
        file="some", line=2, source="s", row_id="r", model="m", gpu="H100", n_gpus=8, tp=1, pp=1, dp_shard=8, step_time_s=1.5,
        oom=0, notes="n",
    )  # fmt: skip


def test_byte_order_marks_and_unknown_columns_are_ignored(tmp_path):
    file = csv_file(tmp_path, "﻿" + HEADER.replace("notes", "notes,colour") + 's,r,m,H100,8,1,1,8,,,,"a, b",red\n')
    assert read_rows(file)[0].notes == "a, b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,gpu,n_gpus,tp\na,b,1,1\n", "column pp is missing"),
        ("", "column model is missing"),
        (HEADER + "s,r,m,H100,eight,1,1,8,,,,\n", r"some\.csv:2: n_gpus 'eight' is not a number"),
        (HEADER + "s,r,m,H100,7.5,1,1,8,,,,\n", "n_gpus '7.5' must be a whole number"),
        (HEADER + "s,r,m,H100,8,1,1,8,,nan,,\n", "step_time_s 'nan' must be a number"),
        (HEADER + "s,r,m,H100,-8,1,1,8,,,,\n", "n_gpus '-8' must be a whole number from 0"),
        (HEADER + "s,r,m,H100,8,1,1,8,inf,,,\n", "micro_batch 'inf' must be a whole number"),
    ],
)
def test_malformed_cells_raise_a_one_line_error_with_their_place(tmp_path, text, words):
    with pytest.raises(FileError, match=words) as error:
        read_rows(csv_file(tmp_path, text))
    assert "\n" not in str(error.value)


def test_binary_missing_and_empty_inputs_raise_an_input_error(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"model\xff\xfe\x00,gpu\n")
    for path in (tmp_path / "bytes.csv", tmp_path / "nothing.csv"):
        with pytest.raises(FileError):
            read_rows(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no CSV file"):
        read_rows(tmp_path / "empty")


def test_files_of_a_folder_are_read_in_order_of_their_names(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.csv").write_text(HEADER + "s,r,m,H100,8,1,1,8,,,,\n")
    assert [item.file for item in read_rows(tmp_path)] == ["a", "b"]


def test_settings_are_read_after_the_args_marker_only():
    assert made(notes="TP=2 of the text; step_time = 3").settings == {}
    quoted = row("megatron_lm_golden_values", next(r.row_id for r in rows("megatron_lm_golden_values") if "swiglu=True" in r.notes))
    assert quoted.settings["swiglu"] == "True"
    assert quoted.settings["num_layers"] == str(quoted.layers)
