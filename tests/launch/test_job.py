"""What a job lacks is listed where it is printed and in the file that starts it."""

from typing import Any

import pytest

from launch.starts import large
from strategist.formats.format import ExportedFiles
from strategist.formats.pytorch import write
from strategist.launch.catalog import JOBS, unused_options, with_job
from strategist.launch.job import JobOptions

REQUIRED: dict[str, dict[str, Any]] = {"slurm": {}, "hosts": {}, **{kind: {"image": "i"} for kind in JOBS[2:]}}
GIVEN: dict[str, dict[str, Any]] = {
    "slurm": {"slurm": "--partition=gpu --time=24:00:00"},
    "hosts": {"environment": {"PATH": "/opt/torch/bin:/usr/bin"}},
    **{kind: {"volumes": {"runs": "/data"}, "workdir": "/data/run-1"} for kind in JOBS[2:]},
}


def job_of(kind: str, **options: Any) -> tuple[ExportedFiles, ExportedFiles]:
    """An export over several nodes, without and with its job."""
    plan = large("pytorch")
    hosts = {"hosts": ",".join(f"n{number}" for number in range(plan.cluster.nodes))} if kind == "hosts" else {}
    written = write(plan, {})
    return written, with_job(plan, written, kind, JobOptions(**REQUIRED[kind], **hosts, **options))


def with_options(kind: str, **options: Any) -> tuple[tuple[str, ...], str]:
    """Needs of a job beyond those of its export, and the text of the file that starts it."""
    written, job = job_of(kind, **options)
    assert job.needs[: len(written.needs)] == written.needs
    return job.needs[len(written.needs) :], job.files[-1].text


@pytest.mark.parametrize("kind", [kind for kind in JOBS if kind != "raycluster"])
def test_what_a_job_lacks_is_listed_until_it_is_given(kind: str) -> None:
    """A time limit of Slurm, programs of hosts, and storage of pods."""
    [need], text = with_options(kind)
    assert text.count(f"# missing: {need}\n") == 1
    assert text.startswith("#!") == (kind in ("slurm", "hosts"))
    given, complete = with_options(kind, **GIVEN[kind])
    assert given == ()
    assert "# missing" not in complete.replace("    # missing", "")


def test_a_working_folder_outside_of_the_volumes_goes_with_its_pod() -> None:
    needs, _ = with_options("jobset", volumes={"runs": "/data"}, workdir="/database/run")
    assert [need.partition(":")[0] for need in needs] == ["storage"]


def test_a_cluster_for_trials_needs_no_storage_of_a_training() -> None:
    assert with_options("raycluster")[0] == ()


def test_further_arguments_are_refused_only_where_no_script_gets_them() -> None:
    given = {"arguments": "--further 1"}
    for kind in JOBS:
        passed_on = any("--further 1" in file.text for file in job_of(kind, **given)[1].files)
        assert unused_options(kind, JobOptions(**given)) == (() if passed_on else ("arguments",)), kind
