"""Small faults in the code, and which of them the tests find: python benchmarks/mutation.py [--page FILE] [--list] ...

A seed draws the faults over all packages of both halves (faults.py says which kinds there are; code that only a CUDA device
reaches is left out). Each is made in a copy of the committed tree (checkout.py). There the tests of the nearest file and folder
run, then all others, as `make test` selects them, to the first failure; then mypy, where none fails. A test finds a fault if it
fails twice with it and passes without it. ``--rest`` names tests that run instead of all others and mypy: what survives them is
not known to survive all, and counts as a survivor.

Results are added to a file one by one, so that a run that was stopped goes on where it stood.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from checkout import ROOT, Copy, TooLongError, committed, copied, git
from faults import Fault, drawn, faults

from strategist.errors import StrategistError
from strategist.files import yaml_file
from strategist.report.reference.markdown import bullets, code, prose, table

BEGIN, END = "<!-- mutation: made by benchmarks/mutation.py -->", "<!-- mutation ends -->"
EQUIVALENT = ROOT / "benchmarks" / "mutation-equivalent.yaml"
PARALLEL = ("-n", "2", "--dist", "loadfile")
ALL, TYPES = "tests", "mypy"
CAUGHT = {"tests": "by a test", "types": "by types alone"}

Row = dict[str, Any]
Change = tuple[str, ...]
"""What identifies a fault that makes no difference, wherever its line stands: file, function, and the line before and after."""

FIELDS = ("file", "function", "line", "becomes", "why")


class Results:
    """The rows of a file by what they are of, the last one of each; a line that was cut off in writing is dropped."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"--results {path}: is in use by another run; wait for it, or name another file")
        except OSError as error:
            sys.exit(f"--results {path}: cannot be written: {error.strerror}")
        self._file.seek(0)
        whole, _, _ = self._file.read().rpartition(b"\n")
        try:
            self.rows: dict[str, Row] = {row["id"]: row for row in map(json.loads, whole.splitlines())}
        except (ValueError, KeyError, TypeError):
            sys.exit(f"--results {path}: is not a file of results; name another one")
        self._file.truncate(len(whole) + bool(whole))

    def add(self, row: Row) -> None:
        """On the disk when this returns."""
        self.rows[row["id"]] = row
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def places(path: str, root: Path = ROOT) -> list[str]:
    """Where its nearest tests are: a file, if there is one, and the folder that holds the package's."""
    half, *folders, file = path.removeprefix("runtime/").split("/")
    base = ("tests", "runtime") if half == "strategist_runtime" else ("tests",)
    around = ["/".join((*base, *folders[:depth])) for depth in range(len(folders), -1, -1)]
    stem = file.removesuffix(".py")
    own = [*(f"{around[0]}/test_{name}.py" for name in (stem, stem.partition("_")[0])), f"{around[-1]}/test_{stem}.py"]
    nearest = next(([name] for name in own if (root / name).is_file()), [])
    return [*nearest, *[folder for folder in around if folder != ALL and (root / folder).is_dir()][:1]]


def found_by(copy: Copy, fault: Fault, place: str, done: str, deadline: float) -> str:
    """The test of ``place`` that finds the fault; empty where none does. Those of ``done`` are left out.

    Raises:
        TooLongError: the deadline came first.
    """
    text = fault.applied((copy.root / fault.path).read_text(encoding="utf-8"))
    chosen = [place, *([f"--ignore={done}"] if done else []), *(PARALLEL if place == ALL else ())]
    others: list[str] = []
    while True:
        with copy.changed(fault.path, text):
            failed = _failed(copy, [*chosen, *(f"--deselect={test}" for test in others)], deadline)
            if not failed:
                return ""
            last = next((line for line in reversed(copy.output.split("\n")) if line.strip()), "pytest ends and says nothing")
            alone = [test for test in failed if test] or chosen
            again = _failed(copy, alone, deadline)
        if again and not _failed(copy, alone, deadline):
            return failed[0] or last
        if alone == chosen:
            sys.exit(f"{place} is not green without a fault: {last}")
        others += alone


def _failed(copy: Copy, chosen: Sequence[str], deadline: float) -> list[str]:
    """The tests that fail to the first one, or a nameless one where pytest cannot import or is ended from outside."""
    shutil.rmtree(copy.root / ".pytest_cache", ignore_errors=True)
    if copy.run(("pytest", "-x", *chosen), deadline) in (0, 5):  # 5: every test was left out
        return []
    last = copy.root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return list(json.loads(last.read_text())) if last.exists() else [""]


def refused(copy: Copy, fault: Fault, deadline: float) -> str:
    """What mypy says of the fault and of nothing else; empty where it is content."""
    text = fault.applied((copy.root / fault.path).read_text(encoding="utf-8"))
    with copy.changed(fault.path, text):
        if not copy.run((TYPES,), deadline):
            return ""
        verdict = copy.output.partition("\n")[0]
    if copy.run((TYPES,), deadline):
        sys.exit(f"{TYPES} is not content without a fault: {copy.output.partition(chr(10))[0]}")
    return verdict


def tried(copy: Copy, fault: Fault, rest: Sequence[str], limit: float) -> tuple[str, str, float]:
    """The verdict on a fault, what found it, and the seconds that this took."""
    begin, done = monotonic(), ""
    try:
        for place in (*places(fault.path, copy.root), *rest):
            find = refused if place == TYPES else partial(found_by, place=place, done=done)
            if by := find(copy, fault, deadline=begin + limit):
                return ("types" if place == TYPES else "tests"), by, monotonic() - begin
            done = place if place in places(fault.path, copy.root) else ""
    except TooLongError:
        return "too long", "", limit
    return "survived", "", monotonic() - begin


def try_all(chosen: Mapping[int, Fault], count: int, results: Results, options: argparse.Namespace) -> None:
    """One after the other; a line and a row each."""
    commit = git("rev-parse", "HEAD").decode().strip()
    rest = (ALL, TYPES) if options.rest is None else options.rest
    with copied(commit) as copy:
        for number, fault in chosen.items():
            verdict, by, seconds = tried(copy, fault, rest, options.limit)
            row = {"verdict": verdict, "by": by, "seconds": round(seconds, 1), "commit": commit, "rest": rest}
            results.add({"id": fault.name(options.seed), "seed": options.seed, **asdict(fault), **row})
            print(f"{number} of {count}: {fault.path}:{fault.line} {fault.kind}: {verdict} {by} ({seconds:.0f} s)", flush=True)


def page(chosen: Sequence[Fault], seed: int, rows: Mapping[str, Row], why: Mapping[Change, str]) -> str:
    """How many are caught, by package, and those that are not."""
    known = [(fault, rows[name]["verdict"]) for fault in chosen if (name := fault.name(seed)) in rows]
    verdicts = Counter(verdict for _, verdict in known)
    survivors = [fault for fault, verdict in known if verdict not in CAUGHT]
    share = f" ({1 - len(survivors) / len(known):.0%})" if known else ""
    by = ", ".join(f"{verdicts[verdict]} {words}" for verdict, words in CAUGHT.items())
    text = [f"{len(chosen)} faults drawn by seed {seed}, {len(known)} tried: {len(known) - len(survivors)}{share} caught, {by}."]
    lines = []
    for package in sorted({fault.package for fault in chosen}):
        own = [verdict for fault, verdict in known if fault.package == package]
        counts = (sum(fault.package == package for fault in chosen), len(own), sum(verdict in CAUGHT for verdict in own))
        lines.append((code(package), *map(str, counts)))
    text.append(table(("package", "drawn", "tried", "caught"), lines))
    if survivors:
        argued = sum(fault.change in why for fault in survivors)
        text.append(_not_caught([rows[fault.name(seed)] for fault in survivors], argued))
        text.append(bullets(_survivor(fault, fault.name(seed), rows, why) for fault in survivors))
    return "\n\n".join(text)


def _not_caught(rows: Sequence[Row], argued: int) -> str:
    few = sum(ALL not in row.get("rest", (ALL,)) for row in rows)
    met = f" {few} met the tests of their file and folder, and few others or none, which may catch them." if few else ""
    return f"Not caught: {len(rows)}, of which {argued} make no difference, for the reason given.{met}"


def _survivor(fault: Fault, name: str, rows: Mapping[str, Row], why: Mapping[Change, str]) -> str:
    change = f"{code(fault.text)} became {code(fault.changed) if fault.changed.strip() else 'empty'}"
    reason = f" No difference: {prose(why[fault.change])}" if fault.change in why else ""
    ended = ", tests ended by the time limit" if rows[name]["verdict"] == "too long" else ""
    return f"{code(f'{fault.path}:{fault.line}')}, {fault.kind}, {name}{ended}: {change}.{reason}"


def written(path: Path, made: str | None = None) -> str:
    """The page with what was made between its markers, by default with what stands there."""
    try:
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"--page {path}: cannot be read: {getattr(error, 'strerror', error)}")
    old, found, after = rest.partition(END)
    if not found:
        sys.exit(f"--page {path}: has no place for the table: {BEGIN} ... {END}")
    return "".join((before, BEGIN, old if made is None else f"\n{made}\n", END, after))


def reasons(path: Path) -> dict[Change, str]:
    """Why faults make no difference."""
    try:
        data = yaml_file.load(path).data
    except StrategistError as error:
        sys.exit(f"--equivalent {' '.join(str(error).split())}")
    if not isinstance(data, list) or not all(isinstance(item, dict) and _named(item) for item in data):
        sys.exit(f"--equivalent {path}: needs a list of faults, each with the texts {', '.join(FIELDS)}")
    return {tuple(item[name] for name in FIELDS[:-1]): item[FIELDS[-1]] for item in data}


def _named(item: dict[str, Any]) -> bool:
    return item.keys() == {*FIELDS} and all(isinstance(text, str) and text.strip() for text in item.values())


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        sys.exit(f"{self.prog}: {message}")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="mutation.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=41, help="by which faults are drawn (default: %(default)s)")
    parser.add_argument("--count", type=int, default=60, help="how many are drawn (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="only show those drawn, as diffs")
    parser.add_argument("--only", type=int, metavar="K", help="only try the K-th of the list, even where its result is known")
    parser.add_argument("--again", action="store_true", help="also try those again that survived, after new tests")
    parser.add_argument("--most", type=int, metavar="M", help="stop after M faults; with 0 only the page is written")
    parser.add_argument("--rest", nargs="*", metavar="TESTS", help="tests that run after the nearest, instead of all others")
    parser.add_argument("--limit", type=float, default=6000.0, metavar="SECONDS", help="for one fault (default: %(default).0f)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutation.jsonl", help="default: build/mutation.jsonl")
    parser.add_argument("--equivalent", type=Path, default=EQUIVALENT, help="why survivors make no difference, as YAML")
    parser.add_argument("--page", type=Path, help="where to write the tables, between the page's markers")
    options = parser.parse_args(arguments)
    for name, least in (("count", 1), ("only", 1), ("limit", 1), ("most", 0)):
        if (value := getattr(options, name)) is not None and not value >= least:
            parser.error(f"--{name} {value}: has to be at least {least}")
    return options


def left(chosen: Sequence[Fault], results: Results, options: argparse.Namespace) -> dict[int, Fault]:
    """Those to try, by their number in the list."""
    numbered = dict(enumerate(chosen, start=1))
    if options.only is not None:
        return {options.only: numbered[options.only]}
    verdicts = {number: results.rows.get(fault.name(options.seed), {}).get("verdict") for number, fault in numbered.items()}
    todo = [number for number, known in verdicts.items() if known is None or (options.again and known not in CAUGHT)]
    return {number: numbered[number] for number in todo[: options.most]}


def main(arguments: Sequence[str] | None = None) -> None:
    """A line a fault, and what they amount to."""
    options = parsed(arguments)
    why = reasons(options.equivalent)
    if options.page is not None:
        written(options.page)
    sources = committed()
    chosen = drawn(faults(sources), sources, options.seed, options.count)
    if options.only is not None and options.only > len(chosen):
        sys.exit(f"mutation.py: --only {options.only}: {len(chosen)} faults are drawn")
    if options.list:
        print(*(f"{n}. {fault.name(options.seed)} {fault.kind}\n{fault.diff}\n" for n, fault in enumerate(chosen, 1)), sep="\n")
        return
    results = Results(options.results)
    if todo := left(chosen, results, options):
        try:
            try_all(todo, len(chosen), results, options)
        except KeyboardInterrupt:
            sys.exit(f"\nstopped; the same command goes on from {options.results}")
    made = page(chosen, options.seed, results.rows, why)
    print(made)
    if options.page is not None:
        options.page.write_text(written(options.page, made), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
