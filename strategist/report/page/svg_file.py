"""Plots as standalone SVG files that contain their style, for viewers without CSS variables."""

from strategist.report.page.html import Html, element

MADE_BY = 'data-made-by="strategist"'
"""Attribute that marks standalone plots."""

COLOURS = ("#0b6e4f", "#c1440e", "#3d5a80", "#8d6a9f", "#b58900", "#6b6b6b", "#a31621")
"""Colours of ``path.curve-0`` and following, and of ``text.curve-0``, its label."""

_STYLE = (
    "svg{background:#fff;font:12px sans-serif}text{fill:#555}path{fill:none}.grid{stroke:#ddd}.frame{stroke:#999}"
    ".equal{stroke:#999;stroke-dasharray:3}.front-line{stroke:#0b6e4f;stroke-width:1.8}"
    "circle{fill:#999}circle.front{fill:#0b6e4f}circle.large{fill:none;stroke:#999}"
) + "".join(
    f"path.curve-{number}{{stroke:{colour};stroke-width:1.8}}text.curve-{number}{{fill:{colour}}}"
    for number, colour in enumerate(COLOURS)
)


def svg_file(picture: Html) -> str:
    """Content of an SVG file with this ``svg`` element."""
    attributes, _, content = picture.removeprefix("<svg").partition(">")
    return f'<svg xmlns="http://www.w3.org/2000/svg" {MADE_BY}{attributes}>{element("style", Html(_STYLE))}{content}\n'
