"""Outputs replace regular files atomically, write through devices, pipes and links, and destroy nothing."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strategist.cli.main import COMMANDS, main, whole_parser
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist.files import outputs

COMMAND = (sys.executable, "-m", "strategist.cli.main")
PLAN = ("plan", "--model", "tiny", "--gpus", "1xcpu", "--seq-len", "64", "--global-batch", "4")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@contextmanager
def without_rights() -> Iterator[None]:
    """Runs as a user without root's rights."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["plan --model 8b --gpus 8xH100 --to pytorch --job-output", "schema -o", "cards new A-1 --out"])
def test_an_output_folder_replaces_no_other_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("gone").symlink_to("nothing")
    for place in ("pipe", "gone"):
        assert main([*command.split(), place]) == 2
        assert f"{place}: cannot be written: it is not a folder; name a folder" in capsys.readouterr().err
    if command != "schema -o":  # which prints to standard output
        assert main([*command.split(), "-"]) == 2
        assert "is standard output, which holds no folder; name a folder" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["gone", "pipe"]


def test_a_regular_file_is_replaced_atomically_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("old")
    file.chmod(0o640)
    reader = file.open()
    outputs.write(file, "new")
    assert (file.read_text(), reader.read()) == ("new", "old")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["plan.json"]


def test_an_error_while_writing_leaves_the_file_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), outputs.replacement(file) as draft:
        draft.write_bytes(b"half" * (1 // (file.stat().st_size - 3)))
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


@needs_root
def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    outputs.write(device, "text", marker="")
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert device.lstat().st_rdev == os.makedev(1, 3)
    assert os.listdir(tmp_path) == ["null"]


@needs_root
def test_a_full_device_is_reported_in_one_line(tmp_path: Path) -> None:
    device = tmp_path / "full"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    with pytest.raises(FileError, match="full: cannot be written: No space left on device; choose another place"):
        outputs.write(device, "text")
    assert stat.S_ISCHR(device.lstat().st_mode)


@needs_root
def test_a_block_device_is_not_written(tmp_path: Path) -> None:
    device = tmp_path / "disk"
    os.mknod(device, 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    with pytest.raises(FileError, match="it is a block device, and its content would be lost"):
        outputs.write(device, "text")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    outputs.write(pipe, "text" * 100_000, marker="")
    reader.join()
    assert read == ["text" * 100_000]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_symbolic_link_is_kept_and_its_target_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, new = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "new"
    target.write_text("old")
    link.symlink_to("there/file")
    new.symlink_to("there/made")
    for place in (link, new):
        outputs.write(place, "new")
        assert place.is_symlink()
        assert place.read_text() == "new"
    assert sorted(os.listdir(tmp_path / "there")) == ["file", "made"]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("", "cannot be written: it is a folder; name a file in it"),
        ("none/file", "cannot be written: there is no folder none; make it"),
        ("file/below", "cannot be written: Not a directory; choose another place"),
        ("circle", "cannot be written: Too many levels of symbolic links"),
        ("x" * 300, "cannot be written: File name too long"),
        ("/proc/none", "cannot be written: No such file or directory"),
        ("closed/file", "cannot be written: Permission denied"),
        ("locked", "cannot be written: Permission denied"),
    ],
)
def test_an_unwritable_path_is_reported_in_one_line(
    place: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "closed").mkdir(0o555)
    (tmp_path / "locked").write_text("kept")
    (tmp_path / "locked").chmod(0o444)
    before = sorted(os.listdir(tmp_path))
    monkeypatch.chdir(tmp_path)  # parent folders may belong to another user
    with without_rights(), pytest.raises(FileError, match=words):
        outputs.write(place, "text")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == (tmp_path / "locked").read_text() == "kept"


@pytest.mark.parametrize("content", ["# My project\n", '{"type": "Answer", "version": 1}'])
def test_a_file_that_is_no_output_is_replaced_only_with_force(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "README.md"
    file.write_text(content)
    assert main([*PLAN, "-o", str(file)]) == 2
    assert (
        "is there already and is not an earlier output; name another place, or replace it with --force" in capsys.readouterr().err
    )
    assert file.read_text() == content
    for words in (["--force"], []):  # an earlier output is replaced without --force
        assert main([*PLAN, "-o", str(file), *words]) == 0
        codec.load(Plan, file)


@pytest.mark.parametrize(
    "command", [["accuracy", "--data", "nowhere", "--html"], ["bench", "replay", "--data", "nowhere", "--plot"]]
)
def test_an_output_is_checked_before_minutes_of_work(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(tmp_path)]) == 2
    assert "cannot be written: it is a folder" in capsys.readouterr().err


def test_an_export_that_is_not_written_says_nothing_of_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--backend", "pytorch", "-o", str(tmp_path / "plan.json")]) == 0
    (tmp_path / "file").write_text("kept")
    capsys.readouterr()
    assert main(["export", str(tmp_path / "plan.json"), "--to", "pytorch", "-o", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"strategist: {tmp_path}/file: cannot be written: it is not a folder; name a folder\n"


def test_every_command_with_an_output_file_has_a_force_option() -> None:
    """Output options are declared by one function, so no command replaces a file that it did not write."""
    found = {" ".join(words) for words, command in whole_parser(COMMANDS).subcommands() if command.get_default("written")}
    assert found == {
        "init", "plan", "export", "import", "report", "trace", "topo", "profile", "schema", "accuracy", "bench replay",
        "study export", "study plot", "cards new", "cards reference",
    }  # fmt: skip


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_an_output_to_stdout_contains_only_the_file(place: str, tmp_path: Path) -> None:
    piped = subprocess.run([*COMMAND, *PLAN, "-o", place], capture_output=True, text=True, check=True)
    plan = codec.loads(Plan, piped.stdout)
    assert piped.stderr == ""
    with (tmp_path / "plan.json").open("w") as file:  # like a shell's >
        file.write("first\n")
        file.flush()
        subprocess.run([*COMMAND, *PLAN, "-o", place], stdout=file, check=True)
    first, _, rest = (tmp_path / "plan.json").read_text().partition("\n")
    assert (first, codec.loads(Plan, rest)) == ("first", plan)


@pytest.mark.parametrize("arguments", [[], ["--json"], ["-o", "-"]])
def test_a_closed_standard_output_ends_quietly(arguments: list[str]) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *PLAN, *arguments]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, *PLAN, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
