"""Parser of a page: open elements, attributes, loaded resources, and the text of each element."""

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta"}
LOADS = {"src", "href", "srcset", "xlink:href", "data", "action", "poster"}
HANDLERS = ("on", "style")


class Reader(HTMLParser):
    """``found`` are all elements with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of(self, attribute: str, tag: str = "") -> list[str]:
        """Values of an attribute, of one kind of element or of all elements."""
        return [attributes[attribute] for name, attributes in self.found if attribute in attributes and tag in ("", name)]

    def check_self_contained(self) -> None:
        """Checks that every element is closed, ids are unique, and the page loads nothing and has no event handlers."""
        assert self.open == []
        ids = self.of("id")
        assert len(set(ids)) == len(ids)
        for name in LOADS:
            assert all(link.startswith("#") and link[1:] in ids for link in self.of(name))
        assert self.count["link"] == self.count["img"] == self.count["iframe"] == 0
        assert self.count["script"] == self.count["style"] == 1
        assert not [name for _, attributes in self.found for name in attributes if name.startswith(HANDLERS)]
        assert all(self.of("aria-label", "svg"))
        assert len(self.of("aria-label", "svg")) == self.count["svg"]
