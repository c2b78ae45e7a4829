"""How notebooks show a value of the contract; the renderers are registered by the layers that know reports."""

from collections.abc import Callable
from typing import Any

renderers: dict[str, Callable[[Any], str | None]] = {}
"""By ``html`` and ``markdown`` what makes the text of a value; None where it has no report."""


class Displayed:
    """A value that IPython and Jupyter show as its report."""

    def _repr_html_(self) -> str | None:
        """The report as HTML."""
        return renderers["html"](self) if "html" in renderers else None

    def _repr_markdown_(self) -> str | None:
        """The report as Markdown."""
        return renderers["markdown"](self) if "markdown" in renderers else None
