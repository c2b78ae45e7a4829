"""Configurations that ship in source packages of PyPI: each is read and is a plan, or what is wrong with it is told at its place.

Those of TorchTitan's, DeepSpeed's and TRL's packages are read in the tests of their formats.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.frameworks import INSTALLED
from strategist import api
from strategist.errors import FileError, InputError
from strategist.formats.config_reader import read
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.setup import GivenValues, Setup, setup
from strategist.formats.source import Source

ROOT = INSTALLED / "examples"
SUFFIXES = (".yaml", ".yml", ".json")
CHECKED = 16
"""Of so many that are read one is priced as well."""


def shipped() -> list[Path]:
    """Files of settings below the folders of examples."""
    if not ROOT.exists():
        pytest.skip("examples are not installed: make frameworks")
    folders = [folder for name in ("examples", "deepspeed_configs") for folder in sorted(ROOT.glob(f"*/{name}"))]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES)


def understood() -> Iterator[tuple[Path, str, Source, ParsedConfig]]:
    """Those that are read, with their format; what is of no format trains nothing that is planned."""
    for path in shipped():
        try:
            source, chosen, found = read(path)
        except FileError:
            continue
        yield path, chosen.name, source, found


def made(source: Source, found: ParsedConfig, gpus: str = "8xH100") -> Setup:
    """On some devices, as the model that it names where that is known."""
    given = GivenValues(gpus=gpus, workload={}, settings={})
    try:
        return setup(source, found, given)
    except InputError:
        return setup(source, found, GivenValues(gpus=gpus, model="8b", workload={}, settings={}))


@pytest.mark.full
def test_what_ships_is_a_plan_or_what_is_wrong_is_told() -> None:
    formats: Counter[str] = Counter()
    legal = priced = 0
    for path, name, source, found in understood():
        ready = made(source, found)
        asked = ready.situation
        broken = ready.candidate.violations(asked.model, asked.request.workload, asked.cluster.devices)
        legal += not broken
        if sum(formats.values()) % CHECKED == 0:
            review = api.import_plan(path, GivenValues(gpus="8xH100", model=asked.model.name, workload={}, settings={}))
            assert (review.plan is None) is bool(broken), path
            assert not broken or any(item.code == "FMT-004" for item in review.findings), path
            priced += 1
        formats[name] += 1
    assert formats["axolotl"] > 200
    assert formats["llama-factory"] > 40
    assert formats["deepspeed"] > 10
    assert legal > 250
    assert priced > 15


@pytest.mark.full
def test_tensors_split_over_more_ranks_than_heads_of_keys_are_told_at_their_line(tmp_path: Path) -> None:
    """One of Axolotl's examples, with the degree that somebody with sixteen devices would try."""
    (shown,) = [path for path in shipped() if path.name == "llama-3_1-8b-hsdp-tp.yaml"]
    text = shown.read_text(encoding="utf-8")
    assert "tensor_parallel_size: 2" in text
    asked = GivenValues(gpus="2x8xH100", workload={}, settings={})
    assert api.import_plan(shown, asked).plan is not None
    path = tmp_path / shown.name
    changes = {
        "tensor_parallel_size: 2": "tensor_parallel_size: 16",
        "shard_size: 4": "shard_size: 1",
        "replicate_size: 2": "replicate_size: 1",
    }
    for before, after in changes.items():
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    review = api.import_plan(path, asked)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if row.startswith("tensor_parallel_size"))
    assert [(item.code, item.line) for item in review.findings if "kv_heads 8" in item.message] == [("FMT-004", line)]
    assert review.plan is None
