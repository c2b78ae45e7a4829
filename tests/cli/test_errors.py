"""Every user error prints one line that names the value, and exits with code 2."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strategist.cli.main import main

COMMAND = (sys.executable, "-m", "strategist.cli.main")

WRONG = (
    ("plan --model 32b --gpus 8x", ["8x", "write 8x24GB"]),
    ("plan --model nosuch --gpus 8xH100", ["nosuch", "preset"]),
    ("plan --model 8b --gpus 8xH100 --days 3", ["--days is not an argument of strategist; see strategist plan --help"]),
    ("plan --model qwen2.5-32bb --gpus 8xH100", ["did you mean qwen2.5-32b"]),
    ("plan --model 32b --gpus 0xH100", ["0xH100"]),
    ("plan --model 32b --gpus -1xH100", ["--gpus", "begins with a minus"]),
    ("plan --model 32b --gpus 8xH101", ["H101", "did you mean h100"]),
    ("plan --model 32b --gpus 8x23GB", ["23GB"]),
    ("plan --model 32b --gpus 8xH100 --seq-len -1", ["--seq-len -1", "at least 1"]),
    ("plan --model 32b --gpus 8xH100 --seq-len 0", ["--seq-len 0"]),
    ("plan --model 32b --gpus 8xH100 --seq-len many", ["--seq-len many", "whole number"]),
    ("plan --model 32b --gpus 8xH100 --global-batch 1e3", ["--global-batch 1e3", "whole number"]),
    ("plan --model 32b --gpus 8xH100 --train half", ["--train half", "full, lora, qlora"]),
    ("plan --model 32b --gpus 8xH100 --optimizer adam", ["--optimizer adam", "adamw"]),
    ("plan --model 32b --gpus 8xH100 --precision fp8", ["--precision fp8", "bf16", "--allow float8"]),
    ("plan --model 32b --gpus 8xH100 --lang fr", ["--lang fr", "choose one of en, zh"]),
    ("cards list --lang chinese", ["--lang chinese", "choose one of en, zh"]),
    ("plan --model 32b --gpus 8xH100 --tokens many", ["--tokens many", "300B"]),
    ("plan --model 32b --gpus 8xH100 --tokens 0", ["--tokens 0", "300B"]),
    ("plan --model 32b --gpus 8xH100 --tokens 15TB", ["--tokens 15TB", "300B"]),
    ("plan --model 32b --gpus 8xH100 --tokens 99999999999T", ["--tokens 99999999999T", "a million trillions"]),
    ("plan --model 32b --gpus 8xH100 --objective speed", ["--objective speed", "throughput"]),
    ("plan --model 32b --gpus 8xH100 --host-memory lots", ["--host-memory", "lots"]),
    ("plan --model 32b --gpus 8xH100 --host-memory 0GiB", ["--host-memory", "positive"]),
    ("plan --model 32b --gpus 8xH100 --fix tp", ["--fix tp", "tp=2"]),
    ("plan --model 32b --gpus 8xH100 --fix tpp=2", ["tpp", "did you mean tp"]),
    ("plan --model 32b --gpus 8xH100 --fix tp=0", ["tp=0", "positive"]),
    ("plan --model 32b --gpus 8xH100 --fix tp=3", ["tp"]),
    ("plan --model 32b --gpus 8xH100 --fix tp=2 --fix tp=4", ["--fix tp=4", "tp is fixed to 2 already"]),
    ("plan --model 32b --gpus 8xH100 --fix recompute=always", ["recompute=always", "full"]),
    ("tune --model tiny --gpus 2xcpu --trials 1 --study=", ["--study", "is missing"]),
    ("tune --model tiny --gpus 2xcpu --study postgresql://ada@db/x", ["--study", "the server with --ledger"]),
    (
        "tune --model tiny --gpus 2xcpu --study s --ledger postgresql://ada:SECRET@db/x",
        ["postgresql://ada:...@db/x", "holds a password"],
    ),
    ("plan --model 32b --gpus 8xH100 --fix bucket_cap_mb=99999999999", ["at most 9 digits"]),
    ("plan --model 32b --gpus 8xH100 --fix pp_schedule=zbv", ["did you mean zbv_zero_bubble?"]),
    ("plan --model 32b --gpus 8xH100 --fix pp_schedule=1F1B", ["did you mean 1f1b?"]),
    ("plan --model 32b --gpus 8xH100 --without fsdp-01", ["did you mean FSDP-001"]),
    ("plan --model 32b --gpus 8xH100 --allow tp", ["allow tp", "reduce_dtype"]),
    ("plan --model 32b --gpus 8xH100 --allow float8,floot8", ["allow floot8", "did you mean float8?"]),
    ("explain plan.json --why-not tp=2 --why-not tp=4", ["tp=2 tp=4", "one value"]),
    ("plan --model 32b --gpus 8xH100 --backend native2", ["native2", "native"]),
    ("plan --model 32b --gpus 8xH100 --top 0", ["--top 0", "at least 1"]),
    ("plan --model 32b --gpus 8xH100 --cards /nonexistent", ["/nonexistent"]),
    ("plan --model 32b --gpus 8xH100 --calibration /nonexistent.json", ["/nonexistent.json", "cannot be read"]),
    ("plan --model 32b --gpus 8xH100 --request /nonexistent.yaml", ["/nonexistent.yaml", "cannot be read"]),
    ("plan --model 32b --gpus 8xH100 -o /nonexistent/plan.json", ["/nonexistent/plan.json", "cannot be written"]),
    ("plan --model /nonexistent/config.json --gpus 8xH100", ["/nonexistent/config.json"]),
    ("plan --model 32b --gpus /nonexistent.yaml", ["/nonexistent.yaml"]),
    ("plan --gpus 8xH100", ["--model", "is missing"]),
    ("plan --model 32b", ["--gpus", "is missing"]),
    ("plan --model", ["--model", "needs a value"]),
    ("plan --modle 32b --gpus 8xH100", ["--modle", "did you mean --model"]),
    ("plan --model 32b --gpus 8xH100 extra", ["extra", "see strategist plan --help"]),
    ("plan --model 32b --gpus 8xH100 --why-not tp=8", ["--why-not", "it is an option of strategist explain"]),
    ("plna --model 32b", ["plna", "did you mean plan"]),
    ("run /nonexistent.json", ["/nonexistent.json", "cannot be read"]),
    ("run", ["PLAN"]),
    ("run plan.json --steps 0", ["--steps 0", "at least 1"]),
    ("tune --model tiny --gpus 4xcpu --trials 0 --study s", ["--trials 0", "at least 1"]),
    ("tune --model tiny --gpus 4xcpu --trials 2", ["--study", "is missing"]),
    (
        "tune --model tiny --gpus 2xcpu --study s --json-lines --json",
        ["--json-lines --json: are two ways", "leave one of them out"],
    ),
    ("tune --model tiny --gpus 2xcpu --study s --json-lines --quiet", ["--json-lines --quiet: are two ways"]),
    ("tune --model tiny --gpus 4xcpu --study s --pareto memory,speed", ["--pareto speed", "choose one of"]),
    ("tune --model tiny --gpus 4xcpu --study s --pareto throughput", ["--pareto throughput", "is the objective itself"]),
    ("tune --model tiny --gpus 4xcpu --study s --pareto memory,memory", ["--pareto memory", "is named twice"]),
    ("tune --model tiny --gpus 4xcpu --study s --pareto energy", ["--pareto energy", "add power_watts"]),
    ("tune --model tiny --gpus 4xcpu --study s --headroom 100%", ["--headroom 1", "below 1"]),
    ("tune --model tiny --gpus 4xcpu --study s --least-tokens-per-second few", ["--least-tokens-per-second few", "above 0"]),
    ("tune --model tiny --gpus 4xcpu --study s --most-cost 0.5", ["--most-cost", "add price_per_hour"]),
    ("explain /nonexistent.json", ["/nonexistent.json", "cannot be read"]),
    ("cards", ["COMMAND"]),
    ("cards lnit", ["lnit", "lint"]),
    ("cards show NOPE-001", ["NOPE-001", "cards list"]),
    ("cards list --cards /nonexistent", ["/nonexistent"]),
)


@pytest.mark.parametrize(("command", "words"), WRONG, ids=[command for command, _ in WRONG])
def test_wrong_input_prints_one_line_with_the_next_step(
    command: str, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("strategist: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "not json", '{"version": 1, "type": "Plan"}', '{"version": 99, "type": "Plan"}', "\x00\xff"]
)
def test_a_file_without_a_plan_is_named(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, encoding="latin-1")
    for command in ("run", "explain"):
        assert main([command, str(file)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"strategist: {file}:")
        assert err.count("\n") == 1


def test_a_request_file_error_has_a_line_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "req.yaml"
    file.write_text("model: 32b\ngpus: 8xH100\nsequence: 12\n")
    assert main(["plan", "--request", str(file)]) == 2
    assert re.match(rf"strategist: {re.escape(str(file))}:3(:\d+)?: unknown key 'sequence'", capsys.readouterr().err)


def test_an_unsound_card_is_named_before_planning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text(
        "StrategyCard:\n  id: X-1\n  module: tp\n  intent: x\n  policies:\n  - {id: a, when: tpp > 1}\n"
    )
    assert main(["plan", "--model", "8b", "--gpus", "8xH100", "--cards", str(tmp_path)]) == 2
    assert "bad.yaml:" in capsys.readouterr().err


def test_an_error_of_the_installed_command_prints_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "plan", "--model", "32b", "--gpus", "8x"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    command = " ".join([*COMMAND, "plan --model 1b --gpus 8xH100 --json"])
    done = subprocess.run(["bash", "-c", f"{command} | head -c 10"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == '{\n  "versi'
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["cards", "list"], ["plan", "--gpus", "8x"], ["export", "none.json", "--to", "pytorch"]])
def test_a_reader_that_closed_both_streams_ends_a_command(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, *arguments], stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 141


def test_a_full_disk_prints_one_error_line() -> None:
    if not Path("/dev/full").exists():  # outside Linux there is no such device to try
        return
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        streams = {"stdout": full, "stderr": subprocess.PIPE}
        done = subprocess.run([*COMMAND, "profiles", "--json"], **streams, env=buffered, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("strategist: ")
    assert done.stderr.count("\n") == 1


def test_an_ascii_terminal_prints_an_ascii_answer() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*COMMAND, "plan", "--model", "tiny", "--gpus", "4xcpu", "--global-batch", "16"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.isascii()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_prints_one_line_and_exits_with_130(number: signal.Signals, tmp_path: Path) -> None:
    fifo = tmp_path / "req.yaml"
    os.mkfifo(fifo)
    process = subprocess.Popen([*COMMAND, "plan", "--request", str(fifo)], stderr=subprocess.PIPE, text=True)
    writer = os.open(fifo, os.O_WRONLY)  # returns once the command reads, and so waits for us
    process.send_signal(number)
    _, err = process.communicate()
    os.close(writer)
    assert process.returncode == 130
    assert err == "strategist: interrupted\n"
