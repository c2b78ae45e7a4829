"""Python files of users, parsed and never executed."""

import ast
import warnings

from strategist.errors import FileError


def python_tree(text: str, path: str) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        FileError: it is no Python; with line and column where known.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of its escapes is no matter of ours
            return ast.parse(text)
    except SyntaxError as error:
        raise FileError(path, f"is not Python: {error.msg}; correct it", error.lineno, error.offset) from None
    except (ValueError, RecursionError, MemoryError):
        raise FileError(path, "is not Python that can be read; name another file") from None
