"""Python files are parsed, or refused in one line with their position."""

import ast
import warnings

import pytest

from strategist.errors import FileError
from strategist.formats.python_tree import python_tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\ndef one(:\n", "train.py:2:9: is not Python: invalid syntax; correct it"),
        ("a = '\0'", "train.py: is not Python"),
        ("x = " + "-" * 50_000 + "1", "train.py: is not Python that can be read; name another file"),
    ],
)
def test_invalid_python_raises_a_one_line_error(text: str, message: str) -> None:
    with pytest.raises(FileError) as error:
        python_tree(text, "train.py")
    assert str(error.value).startswith(message)
    assert "; " in str(error.value)


def test_syntax_warnings_are_suppressed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(python_tree("path = 'C:\\data'\n", "train.py"), ast.Module)
