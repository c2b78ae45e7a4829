"""Secrets in the environment, in URLs and in other frameworks' files never appear in output, whichever command fails."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos import Chaos

from strategist.executors.processes import TAG

NAMES = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET",
    "GOOGLE_API_KEY", "WANDB_API_KEY", "NEPTUNE_API_TOKEN", "COMET_API_KEY", "MLFLOW_TRACKING_PASSWORD", "OPENAI_API_KEY",
    "GITHUB_TOKEN", "GITLAB_TOKEN", "NPM_TOKEN", "PIP_INDEX_URL", "HTTPS_PROXY", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD",
    "SLURM_JWT", "RAY_AUTH_TOKEN", "DOCKER_AUTH_CONFIG", "STRATEGIST_MCP_TOKEN", "KUBE_TOKEN",
)  # fmt: skip
SECRETS = {name: f"canary-{name.lower().replace('_', '-')}-9f8e7d" for name in NAMES}
ADDRESS = f"postgresql://user:{SECRETS['PGPASSWORD']}@127.0.0.1:1/db"
QUERY = f"postgresql://user@127.0.0.1:1/db?sslpassword={SECRETS['PGPASSWORD']}"
NO_SERVER = "postgresql://user@127.0.0.1:1/db?connect_timeout=1"
TINY = ("--model", "tiny", "--gpus", "2xcpu", "--seq-len", "32", "--global-batch", "4", "--precision", "fp32")

PROGRAM = """program: tells
title: prints its environment
command:
  - "{python}"
  - -c
  - "import os, sys, time; print(dict(os.environ), flush=True); time.sleep(1); {{what}}"
  - "{ranks_per_node} {steps} {workload.seq_len} {workload.global_batch} {knobs.micro_batch}"
layout: {dp_shard: any}
workload: {precision: [fp32]}
metrics: {lines: "step {step} took {step_seconds} s"}
"""
ENDS = {"exits": "sys.exit(3)", "raises": "raise MemoryError", "hangs": "time.sleep(600)", "lies": "print('step 1 took nan s')"}
CARD = """protocol: 1
StrategyCard:
  id: TP-101
  status: preview
  module: tp
  intent: Nothing.
  policies: [{id: p, forbid: {tp: [64]}, because: nothing}]
  example: [{ranks: 1, run: "import os; print(dict(os.environ)); raise ValueError(dict(os.environ))"}]
"""
OTHERS = {
    "accelerate.yaml": "distributed_type: FSDP\nnum_processes: 8\nhub_token: {0}\nwandb: {{api_key: {0}}}\n",
    "arguments.yaml": "output_dir: x\nhub_token: {0}\nper_device_train_batch_size: 1\nfsdp: full_shard\nlearning_rate: {0}\n",
    "ds.json": '{{"zero_optimization": {{"stage": 3}}, "wandb": {{"api_key": "{0}"}}, "train_batch_size": 8}}',
}
"""Config files of other frameworks that contain a token; the learning rate is misplaced."""

LAUNCHERS = {"SLURM_JWT"}
"""Variables that srun may have; ranks must not, which the log of a rank shows."""


def write_inputs(folder: Path) -> None:
    """Writes the files that the failing commands read."""
    for name, what in ENDS.items():
        (folder / f"{name}.yaml").write_text(PROGRAM.replace("{{what}}", what))
    (folder / "cards").mkdir()
    (folder / "cards" / "TP-101.yaml").write_text(CARD)
    for name, text in OTHERS.items():
        (folder / name).write_text(text.format(SECRETS["HF_TOKEN"]))
    for name, body in (("dump", "env; exit 7"), ("srun", "env | grep -v ^SLURM_JWT=; exit 7")):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, text in (("pointed", ADDRESS), ("odd", f"{QUERY}&study=a")):
        (folder / name).mkdir()
        (folder / name / "ledger.url").write_text(text)
    (folder / "broken").mkdir()
    (folder / "broken" / "study.sqlite").write_bytes(b"no database" * 500)
    (folder / "file").write_text("")
    (folder / "personal.yaml").write_text(f"tune: {{ledger: '{ADDRESS}'}}\n")


def tunes(*more: str, trials: int = 1) -> Sequence[str]:
    return ("tune", *TINY, "--study", "s-{n}", "--trials", f"{trials}", "--confirm", "0", *more)


FAILING_COMMANDS: tuple[Sequence[str], ...] = (
    tunes("--ledger", ADDRESS),
    tunes("--ledger", QUERY),
    tunes("--ledger", NO_SERVER),
    tunes("--ledger", ADDRESS.replace("127.0.0.1:1", "[::1")),
    tunes("--backend", "exits.yaml"),
    tunes("--backend", "raises.yaml"),
    tunes("--backend", "lies.yaml"),
    tunes("--backend", "hangs.yaml", "--step-timeout", "1", "--init-timeout", "3"),
    tunes("--backend", "exits.yaml", "--lines"),
    tunes("--backend", "nowhere.yaml"),
    tunes("--study", "file/s"),
    tunes("--hosts", "a,b", "--remote-shell", "dump {host} {command}"),
    tunes("--engine", "slurm"),
    ("study", "show", "pointed"),
    ("study", "show", "odd"),
    ("study", "show", "broken"),
    ("study", "repair", "broken", "--into", "new"),
    ("study", "list", "."),
    ("study", "merge", "pointed", "--into", "merged"),
    ("study", "export", "pointed", "--to", ADDRESS),
    ("study", "export", "pointed", "--to", f"mysql://user:{SECRETS['MYSQL_PWD']}@127.0.0.1:1/db"),
    ("study", "export", "pointed", "--to", f"optuna:{ADDRESS}"),
    ("report", "pointed"),
    ("watch", "pointed", "--lines"),
    ("plan", "--model", "somebody/some-model", "--gpus", "8xH100"),
    ("plan", "--model", "8b", "--gpus", "nowhere.yaml", "--json"),
    ("check", "accelerate.yaml", "--model", "8b", "--gpus", "8x24GB"),
    ("check", "arguments.yaml", "--model", "8b", "--gpus", "8x24GB", "--json"),
    ("check", "ds.json", "--model", "8b", "--gpus", "8x24GB"),
    ("import", "ds.json", "--model", "8b", "--gpus", "8x24GB", "-o", "imported.json"),
    ("cards", "test", "cards"),
    ("doctor", "--json"),
    ("mcp", "--workspace", ".", "--http", "127.0.0.1:99999"),
    ("mcp", "--workspace", "nowhere", "--http", "127.0.0.1:0"),
)  # fmt: skip
"""Commands that fail, or read secrets; ``{n}`` is the command's number."""


CONFIGURED = (("config",), ("config", "--json"), tunes("--study", "configured"))
"""Commands with a URL in the environment and in the user's configuration file."""


def environment(folder: Path, *, configured: bool = False) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LANG", "OMP_NUM_THREADS", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ours = {"STRATEGIST_LEDGER": ADDRESS, "STRATEGIST_CONFIG": str(folder / "personal.yaml")} if configured else {}
    return {**kept, **SECRETS, **ours, "PATH": path, "HOME": str(folder), "HF_HUB_OFFLINE": "1"}


def secrets_in(text: bytes) -> set[str]:
    """Names of the secrets in a text."""
    return {name for name, secret in SECRETS.items() if secret.encode() in text}


@contextmanager
def watch_processes(typed: Sequence[str]) -> Iterator[set[str]]:
    """Watches every process started meanwhile: its command line, and the environment of trial processes. Typed words do not
    count."""
    found, over = set[str](), threading.Event()
    own, others = secrets_in("\0".join(typed).encode()), set(Path("/proc").glob("[0-9]*"))

    def poll() -> None:
        while not over.wait(0.02):
            for place in {*Path("/proc").glob("[0-9]*")} - others:
                found.update(f"{name} in a command line" for name in secrets_in(_read(place / "cmdline")) - own)
                variables = _read(place / "environ")
                if f"{TAG}=".encode() in variables:
                    found.update(f"{name} in the environment of a trial" for name in secrets_in(variables) - LAUNCHERS)

    thread = threading.Thread(target=poll)
    thread.start()
    yield found
    over.set()
    thread.join()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended meanwhile
        return b""


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.chaos("Security", "secrets in the environment, in URLs and in files, through failing commands")
def test_no_secret_appears_in_output_files_or_processes(tmp_path: Path, chaos: Chaos) -> None:
    assert len(SECRETS) >= 25
    assert len(FAILING_COMMANDS) >= 30
    write_inputs(tmp_path)
    given = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    leaks, codes = set[str](), []
    commands = (*CONFIGURED, *chaos.random().sample(FAILING_COMMANDS, chaos.size(1, len(FAILING_COMMANDS))))
    for number, command_words in enumerate(commands):
        words = [word.replace("{n}", f"{number}") for word in command_words]
        with watch_processes(words) as found:
            done = subprocess.run(
                [sys.executable, "-m", "strategist.cli.main", *words], cwd=tmp_path, check=False,
                env=environment(tmp_path, configured=command_words in CONFIGURED), capture_output=True,
            )  # fmt: skip
        codes.append(done.returncode)
        assert b"Traceback" not in done.stderr, (words, done.stderr)
        leaks |= {f"{words}: {item}" for item in found}
        leaks |= {f"{words}: {name} was printed" for name in secrets_in(done.stdout + done.stderr)}
    for path in tmp_path.rglob("*"):
        if path.is_file() and given.get(path) != path.read_bytes():
            leaks |= {f"{path}: {name}" for name in secrets_in(path.read_bytes())}
    assert leaks == set()
    if chaos.weekly:
        assert any("'PATH'" in path.read_text(errors="replace") for path in tmp_path.rglob("rank-0.log")), (
            "no trial printed its environment"
        )
    failed = sum(code != 0 for code in codes)
    chaos.found(f"{len(leaks)} of {len(SECRETS)} secrets appeared in the output of {len(codes)} commands, {failed} of which failed")


@pytest.mark.chaos("Security", "requests with wrong tokens to an agent server")
def test_refusals_of_the_agent_server_do_not_contain_its_token(tmp_path: Path, chaos: Chaos) -> None:
    import http.client

    write_inputs(tmp_path)
    command = [sys.executable, "-m", "strategist.cli.main", "mcp", "--workspace", str(tmp_path), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().split()[-1].split(b":")[-1].split(b"/")[0])
        received, tokens = (
            b"",
            ["", "Bearer", "Bearer x", "Bearer " + "x" * 5000, "Basic eDp4", f"Bearer {SECRETS['STRATEGIST_MCP_TOKEN']}x"],
        )
        answers = []
        for token in tokens:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request(
                "POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), {"Authorization": token}
            )
            answer = connection.getresponse()
            answers.append(answer.status)
            received += bytes(str(answer.headers), "utf-8") + answer.read()
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        received += b"".join(process.communicate())
    assert set(answers) <= {401, 403}
    assert secrets_in(received) == set()
    chaos.found(f"{len(secrets_in(received))} of {len(tokens)} refusals contain its token")
