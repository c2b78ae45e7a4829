"""Python code that builds configurations is interpreted without being run."""

from pathlib import Path

import pytest

from strategist.errors import FileError
from strategist.formats.python_config import MAX_STEPS, Interpreter, Node, entry_points, plain, read_module


def read(text: str, name: str = "one", path: str = "mine.py") -> tuple[Node, Interpreter]:
    reader = Interpreter(known=lambda module, function: {"a.b": 1, "a.c": 2, "d": 3} if function == "known" else None)
    return reader.run(read_module(text, path), name), reader


def values(node: Node) -> dict[str, object]:
    return {name: plain(leaf) for name, leaf in node.leaves() if not leaf.call}


def test_keyword_arguments_and_assignments_set_fields() -> None:
    node, _ = read(
        "def one():\n    c = Config(a=A(b=2 * 3, words=['x', 'y']), e=-1)\n    c.a.b = 8 // 2\n    c.f.g = None\n    return c\n"
    )
    assert values(node) == {"a.b": 4, "a.words": ["x", "y"], "e": -1, "f.g": None}
    assert (node.fields["a"].call, node.fields["a"].fields["b"].line) == ("A", 3)


def test_as_many_values_as_the_limit_allows_are_read() -> None:
    text = "def one():\n    return Config(a=[{}])\n"
    node, _ = read(text.format("1, " * (MAX_STEPS - 10)))
    assert len(plain(node.fields["a"])) == MAX_STEPS - 10
    with pytest.raises(FileError, match="too complex"):
        read(text.format("1, " * (MAX_STEPS + 10)))


def test_functions_that_call_others_are_followed() -> None:
    text = "SIZE = 4\ndef base(size=SIZE):\n    return Config(a=A(b=size))\n"
    text += "def one():\n    c = base(size=2)\n    change(c)\n    return c\n"
    node, _ = read(text + "def change(c):\n    c.a.x = c.a.b + 1\n")
    assert values(node) == {"a.b": 2, "a.x": 3}


def test_a_known_base_configuration_is_kept_except_overridden_fields() -> None:
    text = "from far import known as k\ndef one():\n    c = k()\n    c.a.b = 5\n    return c\n"
    node, _ = read(text)
    assert (node.base, values(node)) == ({"a.c": 2, "d": 3}, {"a.b": 5})
    whole, _ = read(text.replace("c.a.b = 5", "c.a = A(b=5)"))
    assert (whole.base, values(whole)) == ({"d": 3}, {"a.b": 5})


def test_imports_from_neighbouring_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text("def base():\n    return Config(a=1)\n", encoding="utf-8")
    node, _ = read("from near import base\ndef one():\n    return base()\n", path=str(tmp_path / "mine.py"))
    assert values(node) == {"a": 1}


def test_decidable_conditions_are_evaluated_and_others_are_noted() -> None:
    text = "def one(n=3):\n    c = Config(a=n)\n    if n > 2 and not False:\n        c.b = 1\n    else:\n        c.b = 2\n"
    node, reader = read(text + "    if here():\n        c.b = 7\n    for i in x:\n        c.b = i\n    return c\n")
    assert values(node)["b"] == 1
    assert [line for line, _ in reader.notes] == [7, 9]


def test_entry_points_are_public_functions_without_required_arguments() -> None:
    text = "def a(): return 1\ndef b(x=1, *, y=2): return x\ndef c(x): return x\ndef _d(): return 1\ndef e(): pass\n"
    assert entry_points(read_module(text, "mine.py")) == ("a", "b")


DOUBLING = "def f0(): return 1\n" + "".join(f"def f{n}(): return [f{n - 1}(), f{n - 1}()]\n" for n in range(1, 19))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def one(:\n", "is not Python"),
        ("def one():\n    return one()\n", "without end"),
        (DOUBLING + "def one(): return f18()\n", "too complex"),
        ("def one():\n    return " + "-" * 5000 + "1\n", "is not Python|nested"),
    ],
)  # fmt: skip
def test_endless_or_too_complex_code_is_refused(text: str, words: str) -> None:
    assert MAX_STEPS < 2**17
    with pytest.raises(FileError, match=words):
        read(text)


def test_huge_numbers_are_not_computed() -> None:
    node, _ = read(
        "def one():\n    x = 10**9\n    y = 1000000000000 * 1000000000000\n    z = y * y\n    return Config(a=z, b=1 / 0)\n"
    )
    assert values(node) == {}
