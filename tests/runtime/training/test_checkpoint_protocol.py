"""The checkpoint protocol under any scheduling, death and fault: saved checkpoints stay readable."""

import itertools
import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from chaos import Chaos
from strategist_runtime.training.checkpoint_protocol import Disk, Rank, run_protocol

from strategist.contract.checkpoint import PARTIAL
from strategist.errors import FileError

from ..checkpoint_world import World

VICTIMS = ("all", "power")


@pytest.mark.chaos("Checkpoints", "death of any rank or of all, or power loss, at every step of the protocol model")
def test_a_death_at_any_step_loses_no_saved_checkpoint(tmp_path: Path, chaos: Chaos) -> None:
    runs = 0
    for ranks, schedule in itertools.product(range(2, chaos.size(2, 8) + 1), range(chaos.size(1, 20))):
        for victim in (*map(str, range(ranks)), *VICTIMS):
            for at in itertools.count():
                world = World(tmp_path / "save", random.Random(chaos.seed + schedule), itertools.cycle([ranks, max(2, ranks - 1)]))
                world.run(partial(victim_at, world, victim, at))
                assert (world.newest(), world.failed) == (world.last, 0)
                assert not [name for name in world.memory.root.entries if name.endswith(PARTIAL)]
                runs += 1
                if not world.kills:
                    break
    chaos.found(f"{runs:,} runs of 2 to {ranks} ranks, one for a death at each step; 0 saved checkpoints lost")


def victim_at(world: World, victim: str, at: int) -> str:
    return victim if world.effects == at and not world.kills else ""


@pytest.mark.chaos(
    "Checkpoints", "death of a session's owner at every step, while its other ranks still write during the next session"
)
def test_late_writes_of_a_dead_session_do_not_damage_later_checkpoints(tmp_path: Path, chaos: Chaos) -> None:
    runs = 0
    for schedule in range(chaos.size(2, 500)):
        for at in itertools.count():
            chances = random.Random(chaos.seed + schedule)
            world = World(tmp_path / "save", chances, itertools.cycle([3, 2]), last=1, keep=2, late=True)
            world.run(partial(victim_at, world, "0", at))
            assert world.newest() == world.last
            runs += 1
            if not world.kills:
                break
    chaos.found(f"{runs:,} runs, one for a death at each step; 0 torn checkpoints read")


class LateRename(Disk):
    """A file system on which a dead owner's publication arrives while the next owner deletes the files of that save."""

    def __init__(self, draft: Path, final: Path) -> None:
        super().__init__()
        self.draft, self.final = draft, final

    def remove(self, folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        with suppress(FileNotFoundError):
            self.draft.rename(self.final)
        super().remove(folder)


def test_a_late_rename_does_not_publish_a_save_that_is_being_removed(tmp_path: Path) -> None:
    """Found by the test above with seed 826645: an empty checkpoint, which no later session could resume from."""
    draft, final = tmp_path / f"step-00000001.first{PARTIAL}", tmp_path / "step-00000001"
    draft.mkdir()
    (draft / "part-0").write_text("state", encoding="utf-8")
    storage = LateRename(draft, final)
    run_protocol(Rank(storage=storage, folder=tmp_path, owner=True, token="second").begin(lambda: None), lambda value: [value])
    storage.unlock()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("step-")]


@pytest.mark.chaos("Checkpoints", "random deaths and failing, late and repeated calls, in the protocol model")
def test_random_faults_neither_tear_checkpoints_nor_stop_the_training(tmp_path: Path, chaos: Chaos) -> None:
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
        world.run(partial(random_victim, world, chances, deadly))
        effects, kills, failed = effects + world.effects, kills + world.kills, failed + world.failed
        sessions += len(world.sessions)
    assert failed > 0
    assert kills > 0
    chaos.found(f"{runs:,} trainings of 2 to 8 ranks in {sessions:,} sessions, {effects:,} steps: {kills:,} deaths")
    chaos.found(f"{failed:,} saves failed and were reported; 0 torn checkpoints read, 0 saved ones lost, 0 trainings stuck")


def random_victim(world: World, chances: random.Random, deadly: float) -> str:
    if world.kills >= 5 or chances.random() >= deadly:
        return ""
    return chances.choice([*VICTIMS, *map(str, range(world.sessions[-1].ranks)), *(["damage"] if world.keep > 1 else [])])


@pytest.mark.parametrize("call", ["make", "write", "sync", "sizes", "rename"])
def test_a_failed_save_leaves_no_files_and_the_next_save_succeeds(tmp_path: Path, call: str) -> None:
    world = World(tmp_path / "save", random.Random(3), itertools.repeat(3), last=2, keep=2, fails_once=call)
    world.run()
    assert (world.failed > 0, world.saved) == (True, [2])
    assert sorted(world.memory.root.entries) == ["step-00000002"]


def test_a_damaged_checkpoint_is_replaced_by_the_next_session(tmp_path: Path) -> None:
    world = World(tmp_path / "save", random.Random(3), itertools.repeat(2), last=2, keep=2)
    world.run()
    world.damage()
    world.sessions[-1].interrupted = True
    assert world.newest() == 1
    world.run()
    assert world.newest() == 2
    assert world.saved == [1, 2]


def test_a_second_session_is_refused_while_the_first_holds_the_lock(tmp_path: Path) -> None:
    first, second = Disk(lock_timeout_seconds=0.0), Disk(lock_timeout_seconds=0.0)
    first.lock(tmp_path)
    first.lock(tmp_path)
    with pytest.raises(FileError, match="another training saves there"):
        second.lock(tmp_path)
    first.unlock()
    second.lock(tmp_path)
