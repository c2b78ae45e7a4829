"""A study whose file is damaged at random is refused in one line or read unchanged, and repair keeps all intact trials."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from chaos import Chaos

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.errors import FileError
from strategist.ledger.ledger import Ledger
from strategist.ledger.recovery import recover
from strategist.ledger.rows import AttemptRow, TrialRow, row_checksum
from strategist.ledger.sqlite import FILE_NAME
from strategist.tuner.repair import repair

PAGE_BYTES = 4096
TRIALS, QUEUED = 26, 6
LARGE_EVERY = 5
"""The plan of every n-th trial is larger than a page."""

Damage = Callable[[bytes, Random], bytes]


def flipped(data: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def cut(data: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data))]


def zeroed(data: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes(len(data) - place)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed study without a history file; its first trial has two attempts."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    with Ledger.open(folder, create=True) as ledger:
        ledger.set_fact("request", '{"model": "32b"}')
        for number in range(1, TRIALS + 1):
            size = 2 * PAGE_BYTES if number % LARGE_EVERY == 0 else 300
            ledger.enqueue(f"candidate-{number:05}", f'{{"plan": "{chr(96 + number) * size}"}}', "search")
        ledger.finish(ledger.claim("worker", 1000.0), Outcome.INFRASTRUCTURE, "{}")
        for number in range(1, TRIALS - QUEUED + 1):
            ledger.finish(ledger.claim("worker", 1000.0), Outcome.OK, f'{{"step_seconds": 0.{number:05}}}')
    return folder


def contents(folder: Path) -> tuple[object, ...]:
    with Ledger.open(folder) as ledger:
        return (*ledger.trials(), ledger.facts(""))


@dataclass(frozen=True, kw_only=True)
class IntactRows:
    """Whether a row is intact in a damaged file: its bytes and the head of its page are unchanged."""

    data: bytes
    damaged: bytes

    def __call__(self, row: TrialRow | AttemptRow) -> bool:
        """Rows that span several pages are not supported."""
        if isinstance(row, TrialRow):
            text = f"{row.key}{row.plan_json}{row.proposed_by}{row.state}".encode()
        else:
            ends = struct.pack(">dd", row.started, row.ended or 0.0) + f"{row.outcome}{row.measurement_json}".encode()
            text = row.owner.encode() + ends + row_checksum(*row.columns).encode()
        return self.row(text)

    def fact(self, key: str, value: str) -> bool:
        return self.row(f"{key}{value}{row_checksum(key, value)}".encode())

    def row(self, text: bytes) -> bool:
        begin = self.data.find(text)
        assert begin >= 0
        page = begin // PAGE_BYTES * PAGE_BYTES
        head = page + (100 if page == 0 else 0)
        cells = int.from_bytes(self.data[head + 3 : head + 5])
        places = (head, head + 8 + 2 * cells), (begin - 24, begin + len(text) + 24)
        return all(self.data[first:last] == self.damaged[first:last] for first, last in places)


def intact_trials(trials: list[TrialRow], intact: IntactRows) -> list[str]:
    """Keys of trials whose rows are all intact, among those within one page each."""
    small = [trial for trial in trials if len(trial.plan_json) < PAGE_BYTES]
    return [trial.key for trial in small if intact(trial) and all(map(intact, trial.attempts))]


@pytest.mark.chaos("The store", "a damaged database file")
@pytest.mark.parametrize("damage", [flipped, cut, zeroed])
def test_damage_is_detected_and_repair_keeps_intact_trials(damage: Damage, study: Path, tmp_path: Path, chaos: Chaos) -> None:
    before, data, chance = contents(study), (study / FILE_NAME).read_bytes(), chaos.random()
    *trials, facts = before
    known = {trial.key: trial for trial in trials}
    times = chaos.size(12 if damage is flipped else 8, 1000 if damage is flipped else 100)
    refused = kept = asked = beyond = 0
    for count in range(times):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        damaged = damage(data, chance)
        (folder / FILE_NAME).write_bytes(damaged)
        intact = IntactRows(data=data, damaged=damaged)
        if (message := refusal(lambda folder=folder: contents(folder), folder)) is None:
            assert contents(folder) == before, "the content differs"
        refused += message is not None
        (folder / FILE_NAME).write_bytes(damaged)
        if (message := refusal(lambda folder=folder: repair(folder, folder / "new"), folder)) is not None:
            assert not all(intact.fact(key, value) for key, value in facts.items()), message
            beyond += 1
            assert recovered_keys(folder) >= set(intact_trials(trials, intact))
            continue
        found = {trial.key: trial for trial in contents(folder / "new")[:-1]}
        for key, trial in found.items():
            assert content_of(trial) in (content_of(known[key]), content_of(replace(known[key], state=TrialState.QUEUED)))
        due = intact_trials(trials, intact)
        asked, kept = asked + len(due), kept + sum(key in found and found[key].state is known[key].state for key in due)
    assert (kept, asked > 0) == (asked, True)
    chaos.found(f"{refused} of {times:,} refused in one line that names the file, {times - refused} read as before")
    chaos.found(f"repair kept {kept:,} of {asked:,} intact trials; {beyond} files need the request again")


def recovered_keys(folder: Path) -> set[str]:
    """Keys of recovered trials of a file whose request is lost."""
    try:
        return {trial.key for trial in recover(folder).trials.values()}
    except FileError:
        return set()


def content_of(trial: TrialRow) -> tuple[object, ...]:
    """The content of a trial, without its number."""
    return trial.key, trial.plan_json, trial.state, trial.outcome, trial.measurement_json


def refusal(act: Callable[[], object], folder: Path) -> str | None:
    """The error line of a refusal; None if there was none."""
    try:
        act()
    except FileError as error:
        message = str(error)
    else:
        return None
    assert message.startswith(str(folder))
    assert "\n" not in message
    return message
