"""A scripted agent without a language model performs whole tasks through an SDK client."""

import subprocess
from pathlib import Path

import anyio
import pytest
import yaml
from agent.scripted import TASKS, agent


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.timeout(900)
def test_three_requests_are_planned_simulated_tuned_and_exported(workspace: Path) -> None:
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
