"""``strategist completion``: a real bash completes commands, options and files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from strategist.cli.completion import SHELLS
from strategist.cli.main import COMMANDS, main

ASK = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_strategist; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture
def completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Completions that bash offers for the last word."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)

    def completions(*words: str) -> set[str]:
        command = ["bash", "-c", ASK, str(script), "strategist", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return set(done.stdout.split())

    return completions


def test_every_command_is_completed(completed) -> None:
    assert set(COMMANDS) <= completed("")
    assert completed("pl") == {"plan"}


def test_options_of_commands_and_subcommands_are_completed(completed) -> None:
    assert completed("plan", "--node") == {"--node-failures", "--node-label"}
    assert {"--diff", "--json"} <= completed("cards", "lint", "--")


def test_file_names_are_completed_for_file_options(completed, tmp_path: Path) -> None:
    (tmp_path / "request-mine.yaml").write_text("")
    assert completed("plan", "--request", "requ") == {"request-mine.yaml"}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_parses_its_completion_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "node-failures" in script.read_text()
    if (path := shutil.which(shell)) is not None:
        subprocess.run([path, "-n", str(script)], check=True)


def test_an_unknown_shell_prints_one_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "powershell"]) == 2
    assert "choose one of bash, zsh, tcsh" in capsys.readouterr().err
