"""The cache saves time only: no file in its folder changes what is read."""

import ast
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strategist import paths
from strategist.cards import deck
from strategist.cards.deck import load_deck
from strategist.cards.reader import read_card
from strategist.cards.serialization import serialized
from strategist.files import cache
from strategist.files.yaml_file import load, parse
from strategist.paths import data_dir
from strategist.profiles import catalog

PACKAGE = Path(cache.__file__).parents[1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = cache.folder()
    assert folder is not None
    assert folder.is_relative_to(tmp_path)
    return folder


def cached(name: str, key: str | None, value: object, computed: list[object]) -> object:
    """The cached value, or else ``value``, which is recorded as computed."""

    def compute() -> object:
        computed.append(value)
        return value

    return cache.cached(name, key, compute)


def test_a_value_is_computed_once_per_key(home: Path) -> None:
    computed: list[object] = []
    assert [cached("a/b", key, {"is": key}, computed)["is"] for key in ("1", "1", "2", "2")] == ["1", "1", "2", "2"]  # type: ignore[index]
    assert len(computed) == 2
    assert [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()] == ["a/b.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"{}", b"\xff\n[1]", b"0" * 64 + b"\n[1]", None],
    ids=["empty", "line", "json", "bytes", "digest", "cut"],
)
def test_a_damaged_cache_file_is_replaced(content: bytes | None, home: Path) -> None:
    computed: list[object] = []
    cached("a", "key", [1, 2], computed)
    whole = (home / "a.json").read_bytes()
    (home / "a.json").write_bytes(whole[:-1] if content is None else content)
    assert cached("a", "key", [1, 2], computed) == [1, 2]
    assert len(computed) == 2
    assert (home / "a.json").read_bytes() == whole


def test_another_users_file_and_a_pipe_are_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    cached("a", "key", [1], computed)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert cached("a", "key", [2], computed) == [2]
    assert cached("a", "key", [3], computed) == [1]
    os.mkfifo(home / "pipe.json")
    assert cached("pipe", "key", [4], computed) == [4]


def test_an_unwritable_cache_folder_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    home.parent.mkdir(parents=True)
    home.write_text("a file where the folder would be", encoding="utf-8")
    assert [cached("a", "key", [1], computed) for _ in range(2)] == [[1], [1]]
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert cached("a", "key", [1], computed) == [1]
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no home folder is known
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() is None
    assert cached("a", "key", [1], computed) == cached("a", None, [1], computed) == [1]
    assert len(computed) == 5


def test_concurrent_writers_leave_one_complete_file(home: Path) -> None:
    values = [[number] * 20_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda value: cache.cached("a", str(value[0]), lambda: value), values * 4))
    assert read == values * 4
    digest, _, content = (home / "a.json").read_bytes().partition(b"\n")
    assert len(digest) == 64
    assert json.loads(content) in values
    assert [path.name for path in home.iterdir()] == ["a.json"]


@pytest.fixture
def shipped(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of some shipped data that replaces the original."""
    root = tmp_path / "shipped"
    shutil.copytree(data_dir("cards") / "batch", root / "cards" / "batch")
    (root / "profiles" / "models").mkdir(parents=True)
    shutil.copy(catalog.profile_path("models", "tiny"), root / "profiles" / "models")
    for module in (paths, deck, catalog):
        monkeypatch.setattr(module, "data_dir", lambda kind: root / kind)
    deck._shipped_items.cache_clear()
    return root


def test_a_cached_deck_equals_the_parsed_deck(shipped: Path, home: Path) -> None:
    read = load_deck(shipped / "cards")
    deck._shipped_items.cache_clear()
    deck._read.cache_clear()
    kept = load_deck(shipped / "cards")
    assert (home / "cards.json").is_file()
    assert deck._read.cache_info().currsize == 0
    assert kept == read
    assert kept.digest == read.digest
    for one in kept.cards:
        fresh = read_card(load(one.document.path))
        assert one == fresh
        assert json.dumps(serialized(one)) == json.dumps(serialized(fresh))
        assert one.canonical == fresh.canonical
        assert one.document.data == fresh.document.data
        assert one.document.mark(("StrategyCard", "policies", 0)) == fresh.document.mark(("StrategyCard", "policies", 0))


def test_changed_files_and_changed_code_invalidate_the_cache(shipped: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def titles() -> list[str]:
        deck._shipped_items.cache_clear()
        return [str(card.title) for card in load_deck(shipped / "cards").cards]

    before, file = titles(), min((shipped / "cards").rglob("*.yaml"))
    status = file.stat()
    text = file.read_text(encoding="utf-8")
    title = parse(text).data["StrategyCard"]["title"]["en"]
    file.write_text(text.replace(title, title.swapcase()), encoding="utf-8")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time unchanged
    assert titles() == [before[0].swapcase(), *before[1:]]
    kept = (home / "cards.json").read_bytes()
    monkeypatch.setattr(cache, "version", lambda *places: "of another day")
    titles()
    assert (home / "cards.json").read_bytes() != kept
    file.rename(file.with_name("other.yaml"))
    assert str(file.with_name("other.yaml")) in {card.document.path for card in load_deck(shipped / "cards").cards}


def test_a_cached_profile_has_its_line_numbers(shipped: Path, home: Path) -> None:
    path = catalog.profile_path("models", "tiny")
    for _ in range(2):
        catalog._document.cache_clear()
        assert catalog.shipped("models", "tiny").data == load(path).data
        assert catalog.shipped("models", "tiny").mark(("presets",)) == load(path).mark(("presets",))
    assert (home / "profiles" / "models" / "tiny.json").is_file()
    path.write_text("presets: {}\n", encoding="utf-8")
    assert catalog.shipped("models", "tiny").data == {"presets": {}}


def test_the_cache_key_covers_all_parsing_code() -> None:
    """All modules that the card reader imports, directly or indirectly, except those that only move bytes."""
    bytes_only = {"strategist", "strategist.files.outputs", "strategist.files.cache", "strategist.paths"}
    seen: set[str] = set()
    waiting = ["strategist.cards.deck"]
    while waiting:
        name = waiting.pop()
        file = PACKAGE.parent / (name.replace(".", "/") + ".py")
        if name in seen or not file.is_file():
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strategist"):
                waiting += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    assert {name.split(".")[1] for name in seen - bytes_only} <= set(deck.PARSER_CODE)


def test_changed_code_has_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.py").write_text("x = 1", encoding="utf-8")
    (tmp_path / "one.py").write_text("y = 1", encoding="utf-8")
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    cache.version.cache_clear()
    before = cache.version("part", "one")
    for file in ("part/a.py", "one.py"):
        (tmp_path / file).write_text("z = 2", encoding="utf-8")
        cache.version.cache_clear()
        assert cache.version("part", "one") != before
        before = cache.version("part", "one")
    assert cache.version("part", "nowhere") is None
    assert cache.key_of("a", None) is None
    cache.version.cache_clear()
