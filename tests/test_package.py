"""The wheel in a new environment: contains cards and profiles, and plans without torch."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARIES = ("numpy", "yaml", "rich", "markdown_it", "mdurl", "pygments")
"""Libraries that planning needs; linked one by one, so that nothing else of this environment is available."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def new_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment with the wheel and the libraries of planning."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", wheel], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    here = Path(sysconfig.get_path("purelib"))
    for entry in here.iterdir():
        if entry.name.split(".")[0] in LIBRARIES or entry.name == "_yaml":
            (site / entry.name).symlink_to(entry)
    return folder / "bin"


def _strategist(new_environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [new_environment / "strategist", *arguments]
    own = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}  # not the user's cache
    return subprocess.run(command, capture_output=True, text=True, cwd=new_environment.parent, check=False, env=own)


def test_the_new_environment_lacks_torch(new_environment: Path) -> None:
    program = "import importlib.util as u; print([n for n in ('torch', 'optuna', 'pytest') if u.find_spec(n)])"
    done = subprocess.run([new_environment / "python", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_wheel_plans_with_its_own_cards_and_profiles(new_environment: Path) -> None:
    done = _strategist(new_environment, "plan", "--model", "32b", "--gpus", "8x24GB", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["plans"]
    assert answer["model"]["name"] == "qwen2.5-32b"
    cards = _strategist(new_environment, "cards", "show", "FSDP-001")
    assert str(new_environment.parent) in "".join(cards.stdout.split())


def test_the_wheel_prints_and_lints(new_environment: Path) -> None:
    assert "Best plan" in _strategist(new_environment, "plan", "--model", "tiny", "--gpus", "2xcpu").stdout
    lint = _strategist(new_environment, "cards", "lint")
    assert lint.returncode == 0, lint.stdout


@pytest.mark.full
def test_the_wheel_writes_a_report(new_environment: Path, tmp_path: Path) -> None:
    plan, page = tmp_path / "plan.json", tmp_path / "report.html"
    assert _strategist(new_environment, "plan", "--model", "tiny", "--gpus", "2xcpu", "-o", str(plan)).returncode == 0
    done = _strategist(new_environment, "report", str(plan), "-o", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert ".part-matmul" in text
    assert "data-filters" in text


def test_running_without_torch_prints_what_to_install(new_environment: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    request = ("--model", "tiny", "--gpus", "2xcpu", "--global-batch", "4", "--backend", "native")
    assert _strategist(new_environment, "plan", *request, "-o", str(plan)).returncode == 0
    done = _strategist(new_environment, "run", str(plan))
    assert done.returncode == 2
    assert "torch-strategist[runtime]" in done.stderr
    assert done.stderr.count("\n") == 1
