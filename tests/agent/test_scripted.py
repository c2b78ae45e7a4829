"""An agent without a model behind it does whole tasks through a client of the SDK."""

import subprocess
from pathlib import Path

import anyio
import pytest
import yaml
from agent.scripted import TASKS, agent


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.timeout(900)
def test_three_requests_are_planned_proved_tuned_and_handed_over(workspace: Path) -> None:
    async def work() -> dict[str, list[str]]:
        async with agent(workspace) as made:
            return {task.name: await made.handle(task) for task in TASKS}

    files = anyio.run(work)
    for name, handed in files.items():
        assert (workspace / name / "report.html").read_text().startswith("<!doctype html>")
        [job] = [workspace / file for file in handed if Path(file).suffix in (".sbatch", ".yaml")]
        if job.suffix == ".sbatch":
            assert subprocess.run(["bash", "-n", str(job)], check=False).returncode == 0
        else:
            assert {document["kind"] for document in yaml.safe_load_all(job.read_text())} & {"PyTorchJob", "JobSet"}
        subprocess.run(["bash", "-n", str(workspace / name / "train" / "train.sh")], check=True)
