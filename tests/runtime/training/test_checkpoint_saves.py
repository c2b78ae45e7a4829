"""Many saves of real ranks, on a disk that fails, with ranks that are killed: what was saved can be read, and a session goes on."""

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
"""About what one takes; a death comes at any time of a session."""


def within(place: Path) -> tuple[str, ...]:
    """Runs a command where ``place`` is a small disk of its own."""
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=8m none {place} && exec "$@"', "sh")


def plans() -> Iterator[tuple[str, Plan]]:
    """Each layout in each way of saving."""
    for name, given in LAYOUTS.items():
        for kind in KINDS:
            options = replace(given.candidate.options, checkpoint=kind)
            yield f"{name}, {kind}", replace(given, candidate=replace(given.candidate, options=options)).identified()


class Saves:
    """The sessions of one training, and what its owner was told."""

    def __init__(self, folder: Path, given: Plan) -> None:
        self.folder, self.place, self.ranks, self.deaths = folder, folder / "disk", given.candidate.layout.world_size, 0
        self.place.mkdir(parents=True)
        codec.save(given, folder / "plan.json")
        own = subprocess.run([*within(self.place), "true"], check=False, capture_output=True).returncode == 0
        self.pool = Pool(within(self.place) if own else ())
        self.faults = (*ON_ONE_RANK, *(ON_THE_DISK if own else ()))

    def told(self) -> list[dict[str, object]]:
        path = self.folder / "told"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def session(self, saves: int, seed: int, faults: tuple[str, ...], victim: int | None = None, seconds: float = 0.0) -> None:
        saved = max((int(str(line["step"])) for line in self.told() if line["saved"]), default=0)
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
def test_a_save_that_fails_is_said_and_the_next_one_is_read(tmp_path: Path) -> None:
    training = Saves(tmp_path / "training", dict(plans())["dp_shard 2, async"])
    training.session(10, 4, ("broken",))
    told = training.told()
    failed = [line for line in told if not line["saved"]]
    assert 0 < len(failed) < len(told) == 10
    assert all(line["kind"] == "broken" for line in failed)
    for line in failed:
        (said,) = line["said"]
        assert said.startswith(f"step-{line['step']:08} could not be saved, the training goes on: rank ")
        assert "Input/output error" in said
        assert "\n" not in said
    training.session(1, 5, ())
    assert training.told()[-1]["saved"]
    training.pool.end()


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.chaos("Checkpoints", "saves of real ranks with SIGKILL of any rank and of all, and failing disks")
def test_what_was_saved_is_read_whatever_dies_or_fails(tmp_path: Path, chaos: Chaos) -> None:
    chances, wanted = chaos.random(), chaos.size(90, 10_000)
    chosen = chances.sample([given for _, given in plans()], chaos.size(3, len(KINDS) * len(LAYOUTS)))
    told, deaths = [], 0
    for number, given in enumerate(chosen):
        training = Saves(tmp_path / f"{number}", given)
        while len(training.told()) < wanted / len(chosen) and (chaos.more((number + 1) / len(chosen)) or not training.told()):
            victim = chances.choice([None, -1, *range(training.ranks)])
            seconds = chances.random() * SESSION_SAVES * SAVE_SECONDS
            training.session(SESSION_SAVES, chances.randrange(10**6), training.faults, victim, seconds)
        training.pool.end()
        told += training.told()
        deaths += training.deaths
    failed = [line for line in told if not line["saved"]]
    assert all(line["kind"] and len(line["said"]) == 1 and "\n" not in line["said"][0] for line in failed)
    kinds = sorted({str(line["kind"]) for line in failed})
    chaos.found(f"{len(told):,} saves in {len(chosen)} layouts and ways of saving, {deaths} sessions killed")
    chaos.found(f"{len(failed):,} failed ({', '.join(kinds)}), each said in one line; 0 saved ones lost, 0 torn or mixed ones read")
