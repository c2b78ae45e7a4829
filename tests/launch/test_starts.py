"""Every job of every format starts on two nodes, with the correct rank environment and rendezvous."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ray_cluster import RayCluster, missing as ray_missing
from slurm_cluster import SlurmCluster, missing as slurm_missing

from launch.launchers import LAUNCHERS, stubs as stub_launchers
from launch.nodes import missing, namespaces, stubs
from launch.starts import STUBBED, Start, by_ray, by_slurm, installed, pod_names
from strategist.formats.catalog import formats

KINDS = ("hosts", "pytorchjob", "jobset")
EACH = ("pytorch", "deepspeed", "accelerate")
CHOSEN = [format if format in EACH else pytest.param(format, marks=pytest.mark.weekly) for format in LAUNCHERS]
"""Formats; those of every full run cover each launcher."""
BY_LAUNCHER = [("bash", format) for format in LAUNCHERS]
MIXED = [
    (kind, format) if format in EACH else pytest.param(kind, format, marks=pytest.mark.weekly)
    for kind in KINDS
    for format in LAUNCHERS
]


def by_stubs(cells: Iterable[tuple[str, str]], each: int, folder: Path) -> dict[tuple[str, str], str]:
    """Errors of exports started by stub launchers, by format and kind of job.

    Stubs start ranks like the real launchers, and accept only their arguments. All paths contain a space.
    """
    path = f"{stub_launchers(folder / 'the launchers')}{os.pathsep}{os.environ['PATH']}"
    failed = {}
    for format, kind in cells:
        place = folder / f"{format} {kind}"
        place.mkdir()
        with stubs(place) as nodes:
            start = Start(format=format, kind=kind, nodes=nodes, each=each, folder=place, environment={"PATH": path})
            try:
                start.run(STUBBED[kind])
            except AssertionError as error:
                failed[format, kind] = str(error)
    return failed


def test_each_format_starts_with_a_job_and_each_kind_of_job_starts_a_format(tmp_path: Path) -> None:
    """A format's inputs do not depend on the job, so one row and one column cover most of the table."""
    cells = {*((format, "job") for format in formats()), *(("deepspeed", kind) for kind in STUBBED)}
    assert by_stubs(sorted(cells), 1, tmp_path) == {}


@pytest.mark.full
@pytest.mark.parametrize("kind", STUBBED)
def test_every_job_of_every_format_gives_ranks_their_environment(kind: str, tmp_path: Path) -> None:
    assert by_stubs([(format, kind) for format in formats()], 2, tmp_path) == {}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if why := slurm_missing():
        pytest.skip(why)
    with SlurmCluster.started() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    if why := ray_missing():
        pytest.skip(why)
    with RayCluster.started() as cluster:
        yield cluster


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize(("kind", "format"), BY_LAUNCHER + MIXED)
def test_ranks_rendezvous_on_two_nodes_with_the_real_launcher(format: str, kind: str, tmp_path: Path) -> None:
    """In network namespaces with one link, under the host names of pods."""
    if why := missing():
        pytest.skip(why)
    if not (environment := installed(format)):
        pytest.skip(f"{LAUNCHERS[format]} is not installed: make frameworks")
    with ExitStack() as stack:
        names: list[tuple[str]] | tuple[tuple[()], tuple[()]] = ((), ())
        if kind not in ("bash", "hosts", "slurm"):
            (tmp_path / "names").mkdir()
            with stubs(tmp_path / "names") as none:
                asked = Start(format=format, kind=kind, nodes=none, each=1, folder=tmp_path, environment={})
                names = pod_names(asked.written())
        nodes = stack.enter_context(namespaces(names))
        each = 2 if kind == "bash" else 1
        Start(format=format, kind=kind, nodes=nodes, each=each, folder=tmp_path, environment=environment).run(STUBBED[kind])


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize("format", CHOSEN)
def test_ranks_rendezvous_on_nodes_of_a_real_slurm(format: str, tmp_path: Path, slurm: SlurmCluster) -> None:
    if not (environment := installed(format)):
        pytest.skip(f"{LAUNCHERS[format]} is not installed: make frameworks")
    with stubs(tmp_path) as nodes:
        Start(format=format, kind="slurm", nodes=nodes, each=1, folder=tmp_path, environment=environment).run(by_slurm(slurm))


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize("format", CHOSEN)
def test_ranks_rendezvous_on_nodes_of_a_real_ray(format: str, tmp_path: Path, ray: RayCluster) -> None:
    if not (environment := installed(format)):
        pytest.skip(f"{LAUNCHERS[format]} is not installed: make frameworks")
    for name in ("PYTHONPATH", "PATH"):
        environment[name] = os.pathsep.join((environment[name], ray.environment[name]))
    with stubs(tmp_path) as nodes:
        variables = {**ray.environment, **environment}
        Start(format=format, kind="rayjob", nodes=nodes, each=1, folder=tmp_path, environment=variables).run(by_ray(ray))


def test_every_format_has_a_launcher() -> None:
    assert set(LAUNCHERS) == set(formats())
