"""Configurations of source packages on PyPI: each gives a plan, or findings at their positions.

Configurations of TorchTitan, DeepSpeed and TRL are read in the tests of their formats.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.frameworks import INSTALLED
from strategist import api
from strategist.errors import FileError, InputError
from strategist.formats.completed_config import GivenValues, Setup, setup
from strategist.formats.config_reader import read
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source

ROOT = INSTALLED / "examples"
SUFFIXES = (".yaml", ".yml", ".json")
CHECKED = 16
"""One of this many read files is also priced."""


def shipped() -> list[Path]:
    """Config files below the folders of examples."""
    if not ROOT.exists():
        pytest.skip("examples are not installed: make frameworks")
    folders = [folder for name in ("examples", "deepspeed_configs") for folder in sorted(ROOT.glob(f"*/{name}"))]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES)


def readable() -> Iterator[tuple[Path, str, Source, ParsedConfig]]:
    """Files with a recognised format; other files configure no training."""
    for path in shipped():
        try:
            source, chosen, found = read(path)
        except FileError:
            continue
        yield path, chosen.name, source, found


def completed(source: Source, found: ParsedConfig, gpus: str = "8xH100") -> Setup:
    """The setup on some devices, with the file's own model if that is known."""
    given = GivenValues(gpus=gpus, workload={}, settings={})
    try:
        return setup(source, found, given)
    except InputError:
        return setup(source, found, GivenValues(gpus=gpus, model="8b", workload={}, settings={}))


@pytest.mark.full
def test_shipped_configurations_give_a_plan_or_findings() -> None:
    formats: Counter[str] = Counter()
    legal = priced = 0
    for path, name, source, found in readable():
        ready = completed(source, found)
        given_values = ready.situation
        broken = ready.candidate.violations(given_values.model, given_values.request.workload, given_values.cluster.devices)
        legal += not broken
        if sum(formats.values()) % CHECKED == 0:
            review = api.import_plan(path, GivenValues(gpus="8xH100", model=given_values.model.name, workload={}, settings={}))
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
def test_tp_above_the_number_of_kv_heads_is_an_error_at_its_line(tmp_path: Path) -> None:
    """One of Axolotl's examples, with the tp degree changed to sixteen."""
    (example,) = [path for path in shipped() if path.name == "llama-3_1-8b-hsdp-tp.yaml"]
    text = example.read_text(encoding="utf-8")
    assert "tensor_parallel_size: 2" in text
    given_values = GivenValues(gpus="2x8xH100", workload={}, settings={})
    assert api.import_plan(example, given_values).plan is not None
    path = tmp_path / example.name
    changes = {
        "tensor_parallel_size: 2": "tensor_parallel_size: 16",
        "shard_size: 4": "shard_size: 1",
        "replicate_size: 2": "replicate_size: 1",
    }
    for before, after in changes.items():
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    review = api.import_plan(path, given_values)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if row.startswith("tensor_parallel_size"))
    assert [(item.code, item.line) for item in review.findings if "kv_heads 8" in item.message] == [("FMT-004", line)]
    assert review.plan is None
