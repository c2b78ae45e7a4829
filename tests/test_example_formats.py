"""The example of a plain PyTorch export is up to date, and trains."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strategist import api
from strategist.cli.main import main
from strategist.errors import FileError
from strategist.formats.completed_config import GivenValues

FORMATS = Path(__file__).parents[1] / "examples" / "formats"
PATHS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    assert main(["plan", "--request", str(FORMATS / "pytorch-request.yaml"), "-o", str(folder / "plan.json")]) == 0
    assert main(["export", str(folder / "plan.json"), "--to", "pytorch", "-o", str(folder)]) == 0
    return folder


def test_the_example_equals_a_new_export_except_comments(exported: Path) -> None:
    old, new = (
        {path.name: ast.dump(ast.parse(path.read_text())) for path in folder.glob("*.py")}
        for folder in (FORMATS / "pytorch", exported)
    )
    assert old == new, "make docs"


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_the_example_trains(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": PATHS, "OMP_NUM_THREADS": "1"}
    command = ["bash", "train.sh", "--steps", "3", "--save", str(tmp_path)]
    done = subprocess.run(command, cwd=FORMATS / "pytorch", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loss") == 3, done.stdout


@pytest.mark.parametrize("name", ["train.py", "model.py", "train.sh"])
def test_each_file_of_the_example_is_imported_with_its_constants(name: str, tmp_path: Path) -> None:
    found = api.import_plan(FORMATS / "pytorch" / name, GivenValues(gpus="4xcpu"))
    assert found == api.import_plan(FORMATS / "pytorch" / "plan.py", GivenValues(gpus="4xcpu"))
    alone = tmp_path / name
    alone.write_bytes((FORMATS / "pytorch" / name).read_bytes())
    missing = (
        "starts train.py: none of them" if name == "train.sh" else r"takes its settings from .*plan\.py, which is not there; put"
    )
    with pytest.raises(FileError, match=missing):
        api.import_plan(alone, GivenValues(gpus="4xcpu"))


def test_the_example_passes_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FORMATS / "pytorch" / "plan.py"), "--gpus", "4xcpu"]) == 0
    assert "What it describes  dp_shard 2, tp 2" in capsys.readouterr().out
