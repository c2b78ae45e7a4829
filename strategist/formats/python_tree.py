"""Parses users' Python files, and never executes them."""

import ast
import warnings

from strategist.errors import FileError


def python_tree(text: str, path: str) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        FileError: it is not Python; with line and column if known.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the user's escape sequences
            return ast.parse(text)
    except SyntaxError as error:
        raise FileError(path, f"is not Python: {error.msg}; correct it", error.lineno, error.offset) from None
    except (ValueError, RecursionError, MemoryError):
        raise FileError(path, "is not Python that can be read; name another file") from None
