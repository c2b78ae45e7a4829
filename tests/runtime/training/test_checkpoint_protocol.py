"""The protocol of saving under every death and every fault that a scheduler can find: what was saved can be read."""

import itertools
import random
from functools import partial
from pathlib import Path

import pytest
from chaos import Chaos
from strategist_runtime.training.checkpoint_protocol import Disk

from strategist.contract.checkpoint import PARTIAL
from strategist.errors import FileError

from ..checkpoint_world import World

VICTIMS = ("all", "power")


@pytest.mark.chaos("Checkpoints", "a death at every step of every rank, of all, and a loss of power, in the model of the protocol")
def test_a_death_at_any_step_loses_nothing_that_was_saved(tmp_path: Path, chaos: Chaos) -> None:
    runs = 0
    for ranks, schedule in itertools.product(range(2, chaos.size(2, 8) + 1), range(chaos.size(1, 20))):
        for victim in (*map(str, range(ranks)), *VICTIMS):
            for at in itertools.count():
                world = World(tmp_path / "save", random.Random(chaos.seed + schedule), itertools.cycle([ranks, max(2, ranks - 1)]))
                world.run(partial(once, world, victim, at))
                assert (world.newest(), world.failed) == (world.last, 0)
                assert not [name for name in world.memory.root.entries if name.endswith(PARTIAL)]
                runs += 1
                if not world.kills:
                    break
    chaos.found(f"{runs:,} runs of 2 to {ranks} ranks, one for a death at each step; 0 lost a checkpoint that was saved")


def once(world: World, victim: str, at: int) -> str:
    return victim if world.effects == at and not world.kills else ""


@pytest.mark.chaos(
    "Checkpoints", "a session whose owner dies at every step, while its other ranks write on beside the next session"
)
def test_ranks_of_a_dead_session_write_nothing_into_a_later_checkpoint(tmp_path: Path, chaos: Chaos) -> None:
    runs = 0
    for schedule in range(chaos.size(2, 500)):
        for at in itertools.count():
            chances = random.Random(chaos.seed + schedule)
            world = World(tmp_path / "save", chances, itertools.cycle([3, 2]), last=1, keep=2, late=True)
            world.run(partial(once, world, "0", at))
            assert world.newest() == world.last
            runs += 1
            if not world.kills:
                break
    chaos.found(f"{runs:,} runs, one for a death at each step; 0 torn checkpoints read")


@pytest.mark.chaos("Checkpoints", "deaths, failing, late and repeated calls at random, in the model of the protocol")
def test_whatever_fails_nothing_torn_is_read_and_the_training_goes_on(tmp_path: Path, chaos: Chaos) -> None:
    chances = chaos.random()
    runs = effects = kills = failed = sessions = 0
    while runs < chaos.size(60, 50_000) and chaos.more():
        runs += 1
        sizes = (chances.randrange(2, 9) for _ in itertools.count())
        late = chances.random() < 0.5
        world = World(
            tmp_path / "save", chances, sizes, last=chances.randrange(1, 6), keep=chances.randrange(1, 3), late=late,
            failing=chances.choice([0.0, 0.01, 0.1]),
        )  # fmt: skip
        deadly = chances.choice([0.0, 0.002, 0.01])
        world.run(partial(stroke, world, chances, deadly))
        effects, kills, failed = effects + world.effects, kills + world.kills, failed + world.failed
        sessions += len(world.sessions)
    assert failed > 0
    assert kills > 0
    chaos.found(f"{runs:,} trainings of 2 to 8 ranks in {sessions:,} sessions, {effects:,} steps: {kills:,} deaths")
    chaos.found(f"{failed:,} saves failed and were said; 0 torn checkpoints read, 0 saved ones lost, 0 trainings stuck")


def stroke(world: World, chances: random.Random, deadly: float) -> str:
    if world.kills >= 5 or chances.random() >= deadly:
        return ""
    return chances.choice([*VICTIMS, *map(str, range(world.sessions[-1].ranks)), *(["damage"] if world.keep > 1 else [])])


@pytest.mark.parametrize("call", ["make", "write", "sync", "sizes", "rename"])
def test_of_a_save_that_fails_nothing_is_left_and_the_next_one_is_published(tmp_path: Path, call: str) -> None:
    world = World(tmp_path / "save", random.Random(3), itertools.repeat(3), last=2, keep=2, fails_once=call)
    world.run()
    assert (world.failed > 0, world.saved) == (True, [2])
    assert sorted(world.memory.root.entries) == ["step-00000002"]


def test_a_damaged_checkpoint_is_replaced_by_the_session_that_comes_to_its_step(tmp_path: Path) -> None:
    world = World(tmp_path / "save", random.Random(3), itertools.repeat(2), last=2, keep=2)
    world.run()
    world.damage()
    world.sessions[-1].struck = True
    assert world.newest() == 1
    world.run()
    assert world.newest() == 2
    assert world.saved == [1, 2]


def test_a_second_session_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    first, second = Disk(patience_seconds=0.0), Disk(patience_seconds=0.0)
    first.lock(tmp_path)
    first.lock(tmp_path)
    with pytest.raises(FileError, match="another training saves there"):
        second.lock(tmp_path)
    first.unlock()
    second.lock(tmp_path)
