"""Frame of a report page: self-contained, with no script but its own."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from strategist.frozen import frozen
from strategist.report.page.html import Html, element, empty, join

_FOLDER = Path(__file__).parent
STYLES = (_FOLDER.parent / "page.css", _FOLDER / "pictures.css")
SCRIPT = _FOLDER / "page.js"


@frozen
class Section:
    """A section of a page; ``introduction`` is its first sentence."""

    title: str
    introduction: str
    body: Html

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


def document(title: str, head: Html, sections: Sequence[Section], language: str = "en") -> str:
    """The whole page."""
    style, script = "".join(map(_text, STYLES)), _text(SCRIPT)
    security_policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    )
    items = join(element("li", element("a", section.title, href=f"#{section.anchor}")) for section in sections)
    html = element(
        "html",
        element(
            "head",
            empty("meta", charset="utf-8"),
            empty("meta", http_equiv="Content-Security-Policy", content=security_policy),
            empty("meta", name="generator", content="strategist"),
            empty("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", title),
            element("style", Html(style)),
        ),
        element(
            "body",
            element("header", head, id="answer"),
            element("nav", element("ul", items), aria_label="On this page"),
            element("main", *map(_section, sections)),
            element("script", Html(script)),
        ),
        lang=language,
    )
    return f"<!doctype html>\n{html}\n"


def _section(section: Section) -> Html:
    introduction = element("p", section.introduction, class_="lead") if section.introduction else Html()
    return element("section", element("h2", section.title), introduction, section.body, id=section.anchor)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Digest that a browser compares before it applies a style or script."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
