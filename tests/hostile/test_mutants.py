"""Mutated shipped files are read correctly, or refused in one line.

Accepted YAML is compared with an independent reader of YAML 1.2, and accepted JSON with the standard library.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from chaos import Chaos
from contract import samples
from yaml12 import parse_yaml

from hostile.mutants import mutant
from strategist.accuracy.row import read_rows
from strategist.cards.flow import is_flow
from strategist.cards.flow_reader import read_flow
from strategist.cards.reader import read_card
from strategist.cli import config_sources
from strategist.cli.main import COMMANDS, whole_parser
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.errors import StrategistError
from strategist.files import yaml_file
from strategist.formats import config_reader
from strategist.profiles import history, models, request_file
from strategist.profiles.cluster import resolve_cluster
from strategist.programs.program_file import read_program

ROOT = Path(__file__).parents[2]
CONFIGURATION = """\
model: 32b
gpus: 8x24GB
calibration: calibrations.json
plan:
  global-batch: 64
  fix: tp=2 'pp_schedule=1f1b'
tune:
  trials: 12
  study: studies/mine
"""
"""A configuration with all kinds of option values."""


def texts(*patterns: str) -> tuple[str, ...]:
    found = tuple(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    assert found, patterns
    return found


def card(path: Path) -> object:
    document = yaml_file.load(path)
    return read_flow(document) if is_flow(document) else read_card(document)


def program(path: Path) -> object:
    return read_program(yaml_file.load(path))


@cache
def parser() -> Parser:
    return whole_parser(["plan"])


def configuration(path: Path) -> object:
    """The parsed command line with default values from the file."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(config_sources.FILE_VARIABLE, str(path))
        words, _ = config_sources.with_default_values(parser(), ["plan"], config_sources.sources(COMMANDS))
    return parser().parse_args(words)


YAML: dict[str, tuple[int, Callable[[Path], object], tuple[str, ...]]] = {
    "cards": (8_000, card, texts("cards/*/*.yaml", "examples/cards/**/*.yaml")),
    "requests": (20_000, request_file.load_request, texts("examples/request-*.yaml", "examples/formats/*-request.yaml")),
    "clusters": (4_000, lambda path: resolve_cluster(str(path)), texts("examples/cluster-*.yaml")),
    "models": (6_000, lambda path: models.resolve_model(str(path)), (yaml_file.dump(codec.encode(samples.MODEL)),)),
    "programs": (2_000, program, texts("examples/program/*.yaml", "profiles/programs/*.yaml")),
    "configurations": (20_000, configuration, (CONFIGURATION,)),
}
"""Number of mutants in ``make chaos``, their reader, and the original texts."""

JSON: dict[str, tuple[int, type, tuple[str, ...]]] = {
    "plans": (12_000, Plan, (codec.dumps(samples.PLAN), codec.one_line(samples.PLAN))),
    "measurements": (10_000, Measurement, (codec.dumps(samples.MEASUREMENT), codec.one_line(samples.MEASUREMENT))),
}
LINES = ("profiles/measurements/tiny-4xcpu.jsonl", 6_000)
TABLES = ("profiles/measurements/published/*.csv", 12_000)
FOREIGN = ("examples/formats/*.*", 4_000)


def check_mutants(
    chaos: Chaos, count: int, shipped: tuple[str, ...], path: Path, read: Callable[[Path], object],
    agrees: Callable[[str, object], bool],
) -> None:  # fmt: skip
    """Reads ``count`` mutants (a hundredth of them in every run), checks the results, and records the figures."""
    chances, count = chaos.random(), chaos.size(max(count // 100, 50), count)
    accepted, slowest, untyped, differing = 0, 0.0, list[str](), list[str]()
    for _ in range(count):
        text = mutant(shipped, chances)
        path.write_text(text, encoding="utf-8", newline="")
        begun = time.process_time()
        try:
            value = read(path)
        except StrategistError as error:
            if "\n" in str(error):
                untyped.append(f"{str(error)!r} of {text!r}")
            continue
        except Exception as error:
            untyped.append(f"{error!r} of {text!r}")
            continue
        finally:
            slowest = max(slowest, time.process_time() - begun)
        accepted += 1
        if not agrees(text, value):
            differing.append(text)
    assert untyped == []
    assert differing == []
    assert 0 < accepted < count, "some are accepted, some refused"
    chaos.found(
        f"{count:,} mutants, {accepted:,} of them accepted: {len(untyped)} errors without a type, {len(differing)} read differently"
    )
    chaos.found(f"slowest {slowest * 1000:.0f} ms of CPU (250 allowed)")


def same(left: Any, right: Any) -> bool:
    """Whether values and their types are equal, at any depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.chaos("Bad input", "mutants of shipped YAML are refused in one line, or read equally by another reader of YAML 1.2")
@pytest.mark.parametrize("kind", YAML)
def test_mutated_yaml_is_refused_or_read_like_an_independent_reader(kind: str, chaos: Chaos, tmp_path: Path) -> None:
    count, read, shipped = YAML[kind]

    def agrees(text: str, _: object) -> bool:
        plain = text.removeprefix("\ufeff")
        return same(yaml_file.parse(plain).data, parse_yaml(plain))

    check_mutants(chaos, count, shipped, tmp_path / "mutant.yaml", read, agrees)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), "a key appears twice"
    return dict(pairs)


def matches(value: object, data: Any) -> bool:
    """Whether a value of the contract equals its document; fields missing there may have defaults."""
    if dataclasses.is_dataclass(value):
        return isinstance(data, dict) and all(matches(getattr(value, name), item) for name, item in data.items())
    if isinstance(value, Enum):
        return bool(value.value == data)
    if isinstance(value, tuple | list):
        return isinstance(data, list) and len(value) == len(data) and all(map(matches, value, data))
    if isinstance(value, dict):
        return isinstance(data, dict) and value.keys() == data.keys() and all(matches(value[key], data[key]) for key in data)
    if type(value) is float and type(data) is int:
        return value == float(data)
    return type(value) is type(data) and bool(value == data)


@pytest.mark.chaos("Bad input", "mutants of shipped JSON are refused in one line, or read equally by the standard library")
@pytest.mark.parametrize("kind", JSON)
def test_mutated_json_is_refused_or_read_like_the_standard_library(kind: str, chaos: Chaos, tmp_path: Path) -> None:
    count, cls, shipped = JSON[kind]

    def agrees(text: str, value: object) -> bool:
        data = json.loads(text, object_pairs_hook=once)
        return (data.pop("version"), data.pop("type")) == (1, cls.__name__) and matches(value, data)

    check_mutants(chaos, count, shipped, tmp_path / "mutant.json", lambda path: codec.load(cls, path), agrees)


@pytest.mark.chaos("Bad input", "mutants of shipped histories: a line is a finding, or read equally by the standard library")
def test_mutated_histories_are_findings_or_read_like_the_standard_library(chaos: Chaos, tmp_path: Path) -> None:
    place, count = LINES
    shipped = tuple(line for text in texts(place) for line in text.splitlines())

    def read(path: Path) -> object:
        found = history.read(path)
        if found.findings:
            raise StrategistError(str(found.findings[0]))
        return found.records

    def agrees(text: str, records: Any) -> bool:
        lines = [json.loads(line, object_pairs_hook=once) for line in text.split("\n") if line.strip()]
        return [line.pop("version") for line in lines] == [1] * len(records) and matches(records, lines)

    check_mutants(chaos, count, shipped, tmp_path / "mutant.jsonl", read, agrees)


@pytest.mark.chaos("Bad input", "mutants of published tables are refused in one line, or read as numbers within bounds")
def test_mutated_tables_are_refused_or_read_within_bounds(chaos: Chaos, tmp_path: Path) -> None:
    place, count = TABLES
    shipped = tuple("\n".join(text.splitlines()[:6]) for text in texts(place))

    def agrees(_: str, rows: Any) -> bool:
        cells = [cell for row in rows for cell in vars(row).values()]
        return all(0 <= cell <= 1e12 for cell in cells if isinstance(cell, int | float))

    check_mutants(chaos, count, shipped, tmp_path / "mutant.csv", read_rows, agrees)


@pytest.mark.chaos("Bad input", "mutants of other frameworks' files are refused in one line, or read")
@pytest.mark.parametrize("suffix", [".yaml", ".json", ".sh", ".py"])
def test_mutated_config_files_are_refused_or_read(suffix: str, chaos: Chaos, tmp_path: Path) -> None:
    place, count = FOREIGN
    shipped = tuple(text for text in texts(place.replace(".*", suffix)))
    check_mutants(chaos, count // 4, shipped, tmp_path / f"mutant{suffix}", config_reader.read, lambda *_: True)
