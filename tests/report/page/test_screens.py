"""Screenshots of reports: new ones, and those in docs/pictures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, needs_browser
from PIL import Image

from tests.report.page.pictures import HEIGHT, PICTURES, Picture, screenshot

DOCS = Path(__file__).parents[3] / "docs"
MOST_BYTES = 400_000
"""Maximum size of all screenshots together."""


def check(picture: Picture, image: Image.Image) -> None:
    """Checks size, background and content of a screenshot: many colours, none of which covers nearly everything."""
    width, height = image.size
    assert width == picture.width
    assert height == HEIGHT if not picture.last else HEIGHT / 2 < height < 2 * HEIGHT
    counted = sorted(image.convert("RGB").getcolors(width * height) or [], reverse=True)
    assert len(counted) > 32
    paper = counted[0]
    assert (sum(paper[1]) < 128) is picture.dark
    assert 0.5 < paper[0] / (width * height) < 0.97


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_new_screenshot_shows_the_report(picture: Picture, session: Browser, tmp_path: Path) -> None:
    check(picture, screenshot(picture, session, tmp_path))


@pytest.mark.full
@needs_browser
def test_a_screenshot_of_an_empty_page_is_detected(session: Browser, tmp_path: Path) -> None:
    def empty() -> str:
        return "<!doctype html><section id=memory style='height:900px'>Memory</section>"

    picture = Picture(name="empty", page=empty, width=390, first="memory")
    with pytest.raises(AssertionError):
        check(picture, screenshot(picture, session, tmp_path))


def test_the_screenshots_of_the_docs_are_complete_and_small() -> None:
    found = {path.stem: path for path in (DOCS / "pictures").iterdir()}
    assert set(found) == {picture.name for picture in PICTURES}
    assert sum(path.stat().st_size for path in found.values()) < MOST_BYTES
    for picture in PICTURES:
        with Image.open(found[picture.name]) as image:
            check(picture, image)


def test_every_screenshot_is_used_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS.parent / "README.md", *DOCS.glob("*.md")))
    assert [picture.name for picture in PICTURES if f"pictures/{picture.name}.png" not in pages] == []
