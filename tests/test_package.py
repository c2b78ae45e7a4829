"""The wheel, in an environment of its own, in another folder: it carries its cards and profiles, and plans without torch."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARIES = ("numpy", "yaml", "rich", "markdown_it", "mdurl", "pygments")
"""What a plan needs; shown to the new environment one by one, so that nothing else of this one is there."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that holds the wheel and what planning needs."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", wheel], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    here = Path(sysconfig.get_path("purelib"))
    for entry in here.iterdir():
        if entry.name.split(".")[0] in LIBRARIES or entry.name == "_yaml":
            (site / entry.name).symlink_to(entry)
    return folder / "bin"


def _strategist(elsewhere: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [elsewhere / "strategist", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=elsewhere.parent, check=False, env={"PATH": "/usr/bin:/bin"})


def test_the_new_environment_lacks_torch(elsewhere: Path) -> None:
    program = "import importlib.util as u; print([n for n in ('torch', 'optuna', 'pytest') if u.find_spec(n)])"
    done = subprocess.run([elsewhere / "python", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_wheel_plans_with_its_own_cards_and_profiles(elsewhere: Path) -> None:
    done = _strategist(elsewhere, "plan", "--model", "32b", "--gpus", "8x24GB", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["plans"]
    assert answer["model"]["name"] == "qwen2.5-32b"
    cards = _strategist(elsewhere, "cards", "show", "FSDP-001")
    assert str(elsewhere.parent) in "".join(cards.stdout.split())


def test_the_wheel_prints_and_lints(elsewhere: Path) -> None:
    assert "Best plan" in _strategist(elsewhere, "plan", "--model", "32b", "--gpus", "8x24GB").stdout
    lint = _strategist(elsewhere, "cards", "lint")
    assert lint.returncode == 0, lint.stdout


@pytest.mark.full
def test_the_wheel_draws_a_report(elsewhere: Path, tmp_path: Path) -> None:
    plan, page = tmp_path / "plan.json", tmp_path / "report.html"
    assert _strategist(elsewhere, "plan", "--model", "tiny", "--gpus", "2xcpu", "-o", str(plan)).returncode == 0
    done = _strategist(elsewhere, "report", str(plan), "-o", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert ".part-matmul" in text
    assert "data-filters" in text


def test_running_without_torch_says_what_to_install(elsewhere: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    request = ("--model", "tiny", "--gpus", "2xcpu", "--global-batch", "4", "--backend", "native")
    assert _strategist(elsewhere, "plan", *request, "-o", str(plan)).returncode == 0
    done = _strategist(elsewhere, "run", str(plan))
    assert done.returncode == 2
    assert "torch-strategist[runtime]" in done.stderr
    assert done.stderr.count("\n") == 1
