"""Display of contract values in notebooks; the layers that make reports register the renderers."""

from collections.abc import Callable
from typing import Any

renderers: dict[str, Callable[[Any], str | None]] = {}
"""Functions by ``html`` or ``markdown`` that return the text of a value; None where it has no report."""


class Displayed:
    """Base class of values that IPython and Jupyter show as their report."""

    def _repr_html_(self) -> str | None:
        """The report as HTML."""
        return renderers["html"](self) if "html" in renderers else None

    def _repr_markdown_(self) -> str | None:
        """The report as Markdown."""
        return renderers["markdown"](self) if "markdown" in renderers else None
