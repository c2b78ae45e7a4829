"""Many saves of real ranks on a failing disk, with killed ranks: saved checkpoints stay readable, and sessions resume."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from chaos import Chaos

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan

from ..cases_experts import MODELS
from ..launch import Pool
from ..plans import TINY, plan
from ..saving_rank import ON_ONE_RANK, ON_THE_DISK, Order

pytestmark = [pytest.mark.torch]
DEEP = replace(TINY, name="deep", layers=3)
LAYOUTS = {
    "dp_shard 2": plan(layout=Layout(dp_shard=2)),
    "dp_replicate 2": plan(layout=Layout(dp_replicate=2)),
    "pp 3": plan(model=DEEP, layout=Layout(pp=3)),
    "pp 2, dp_shard 2": plan(layout=Layout(pp=2, dp_shard=2)),
    "tp 2": plan(layout=Layout(tp=2), knobs=Knobs(sequence_parallel=True)),
    "ep 2": plan(model=MODELS["experts"], layout=Layout(dp_shard=2, ep=2)),
    "optimizer on the host": plan(layout=Layout(dp_shard=2), knobs=Knobs(offload="optimizer")),
    "streamed": plan(layout=Layout(pp=2), knobs=Knobs(offload="streamed", recompute="full", pp_schedule="gpipe")),
}
KINDS = ("sync", "async", "async_pinned")
SESSION_SAVES = 40
SAVE_SECONDS = 0.08
"""Approximate time of a save; ranks are killed at any time of a session."""


def with_own_disk(place: Path) -> tuple[str, ...]:
    """A command prefix that makes ``place`` a small separate disk."""
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=8m none {place} && exec "$@"', "sh")


def plans() -> Iterator[tuple[str, Plan]]:
    """Each layout with each kind of saving."""
    for name, given in LAYOUTS.items():
        for kind in KINDS:
            options = replace(given.candidate.options, checkpoint=kind)
            yield f"{name}, {kind}", replace(given, candidate=replace(given.candidate, options=options)).identified()


class TrainingSessions:
    """The sessions of one training, and the reported results of its saves."""

    def __init__(self, folder: Path, given: Plan) -> None:
        self.folder, self.place, self.ranks, self.deaths = folder, folder / "disk", given.candidate.layout.world_size, 0
        self.place.mkdir(parents=True)
        codec.save(given, folder / "plan.json")
        own = subprocess.run([*with_own_disk(self.place), "true"], check=False, capture_output=True).returncode == 0
        self.pool = Pool(with_own_disk(self.place) if own else ())
        self.faults = (*ON_ONE_RANK, *(ON_THE_DISK if own else ()))

    def results(self) -> list[dict[str, object]]:
        path = self.folder / "results"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def session(self, saves: int, seed: int, faults: tuple[str, ...], victim: int | None = None, seconds: float = 0.0) -> None:
        saved = max((int(str(line["step"])) for line in self.results() if line["saved"]), default=0)
        order = Order(
            plan=str(self.folder / "plan.json"), place=str(self.place), saves=saves, seed=seed, saved=saved, faults=faults,
            victim=victim, death_seconds=seconds,
        )  # fmt: skip
        done = self.pool.run(self.ranks, ["runtime.saving_rank", str(self.folder), json.dumps(asdict(order))], 300, self.folder, {})
        assert "wrong: " not in done.stderr, done.stderr
        if done.returncode != 0:
            assert victim is not None, done.stderr
            self.deaths += 1


@pytest.mark.timeout(120)
def test_a_failed_save_is_reported_and_a_later_one_succeeds(tmp_path: Path) -> None:
    training = TrainingSessions(tmp_path / "training", dict(plans())["dp_shard 2, async"])
    training.session(10, 4, ("broken",))
    results = training.results()
    failed = [line for line in results if not line["saved"]]
    assert 0 < len(failed) < len(results) == 10
    assert all(line["kind"] == "broken" for line in failed)
    for line in failed:
        (message,) = line["messages"]
        assert message.startswith(f"step-{line['step']:08} could not be saved, the training continues: rank ")
        assert "Input/output error" in message
        assert "\n" not in message
    training.session(1, 5, ())
    assert training.results()[-1]["saved"]
    training.pool.end()


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.chaos("Checkpoints", "saves of real ranks with SIGKILL of any rank or of all, and failing disks")
def test_saved_checkpoints_are_readable_after_kills_and_disk_faults(tmp_path: Path, chaos: Chaos) -> None:
    chances, wanted = chaos.random(), chaos.size(60, 10_000)
    chosen = chances.sample([given for _, given in plans()], chaos.size(2, len(KINDS) * len(LAYOUTS)))
    results, deaths = [], 0
    for number, given in enumerate(chosen):
        training = TrainingSessions(tmp_path / f"{number}", given)
        while len(training.results()) < wanted / len(chosen) and (chaos.more((number + 1) / len(chosen)) or not training.results()):
            victim = chances.choice([None, -1, *range(training.ranks)])
            seconds = chances.random() * SESSION_SAVES * SAVE_SECONDS
            training.session(SESSION_SAVES, chances.randrange(10**6), training.faults, victim, seconds)
        training.pool.end()
        results += training.results()
        deaths += training.deaths
    failed = [line for line in results if not line["saved"]]
    assert all(line["kind"] and len(line["messages"]) == 1 and "\n" not in line["messages"][0] for line in failed)
    kinds = sorted({str(line["kind"]) for line in failed})
    chaos.found(f"{len(results):,} saves in {len(chosen)} combinations of layout and kind of saving, {deaths} sessions killed")
    chaos.found(
        f"{len(failed):,} failed ({', '.join(kinds)}), each reported in one line; 0 saved ones lost, 0 torn or mixed ones read"
    )
