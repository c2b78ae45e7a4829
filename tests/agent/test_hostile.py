"""Shell injection: a caller's text appears in the command of a next step only if quoted."""

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from agent.calls import Caller, answered
from agent.test_confined import slots

from strategist import api
from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import Training
from strategist.contract.measurement import TrialSettings
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.executors.training_checks import check_training
from strategist.ledger.address import resolve
from strategist.profiles.huggingface import from_hub

PACKAGE = Path(__file__).parents[2] / "strategist"
HOSTILE = "a'$(touch pwned)`touch pwned`;touch pwned|x"
FORMS = (HOSTILE, f"org/{HOSTILE}", f"{HOSTILE}.json")
COMMAND = re.compile(r"(?:\bstrategist [a-z]+(?: [a-z]+)*|\bhf download|--[a-z-]+)[ =]$")
"""The text before an argument of a command."""


ERRORS = ("InputError", "RefusedError")


def unquoted(step: str, text: str) -> bool:
    """Whether a next step contains the text unquoted."""
    return text in step.replace(shlex.quote(text), "")


def test_next_steps_of_problems_quote_the_callers_text(dispatcher: Caller) -> None:
    plan = answered(dispatcher, "plan", model="tiny", gpus="1xH100")["best"]["plan"]
    found: dict[str, Any] = {}
    for (tool, call, name), text in zip(slots(), cycle(FORMS)):
        given = {key: plan if value == "58698c070e9c" else value for key, value in call.items()}
        reply = dispatcher.call(tool, {**given, name: [text] if name in ("cards", "without", "fix", "allow") else text})
        if reply.is_problem and unquoted(reply.content["next"], text):
            found[f"{tool} {name}"] = reply.content["next"]
    assert found == {}


def test_next_steps_quote_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder, tiny = tmp_path / HOSTILE.replace("/", "-"), api.model("tiny").shape
    (folder / "step-00000001").mkdir(parents=True)
    training = Training(step=1, samples=2, settings=TrialSettings(), model=tiny, workload=Workload(), plan_id="", ranks=1, files={})
    codec.save(training, folder / "step-00000001" / checkpoint.DESCRIPTION)
    (folder / "study.sqlite").write_bytes(b"")
    plan = api.plan(Request(model="tiny", gpus="1xH100"), top=1).plans[0]
    for refuse in (
        lambda: from_hub(f"org/{HOSTILE}"),
        lambda: check_training(plan, TrialSettings(save=str(folder), total_steps=1)),
        lambda: resolve(folder, "postgresql://localhost/x?study=first"),
    ):
        with pytest.raises(InputError) as caught:
            refuse()
        place = f"org/{HOSTILE}" if "hf download" in caught.value.do else str(folder)
        assert shlex.quote(place) in caught.value.do
        assert not unquoted(caught.value.do, place)


def steps(tree: ast.Module) -> Iterator[ast.JoinedStr]:
    """Next steps of errors that are f-strings."""
    nodes = list(ast.walk(tree))
    named = {
        name.id: node.value for node in nodes if isinstance(node, ast.Assign) for name in node.targets if isinstance(name, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and len(node.args) > 2:
            step = node.args[2]
            step = named.get(step.id, step) if isinstance(step, ast.Name) else step
            if isinstance(step, ast.JoinedStr):
                yield step


def breaches(source: str) -> list[str]:
    """Unquoted arguments of commands in next steps; counts and names of back ends are exempt."""
    found = []
    for step in steps(ast.parse(source)) if any(name in source for name in ERRORS) else ():
        before = ""
        for part in step.values:
            if isinstance(part, ast.FormattedValue) and COMMAND.search(before):
                value = ast.unparse(part.value)
                found += [] if re.search(r"quote\(|^len\(|^(backend|target_format)\.name$", value) else [value]
            before = str(part.value) if isinstance(part, ast.Constant) else ""
    return found


def test_every_next_step_in_the_code_quotes_command_arguments() -> None:
    assert {path.name: found for path in PACKAGE.rglob("*.py") if (found := breaches(path.read_text()))} == {}
    assert breaches('InputError("a", "b", f"plan with --model {folder}")') == ["folder"]
    assert breaches('do = f"strategist study merge {folder} --into DIR"\nraise InputError("a", "b", do)') == ["folder"]
    assert breaches('InputError("a", "b", f"plan with --model {shlex.quote(folder)}")') == []
