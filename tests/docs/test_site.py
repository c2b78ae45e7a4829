"""The site is built without warnings, has every page, and loads nothing from other hosts."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs import reference
from docs.pages import FIRST, GENERATED, PAGES, ROOT, generated

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_spec("sphinx") is None, reason="the site's generator is not installed"),
]

LOADED = re.compile(r"<(?:script|img|iframe|source|link(?![^>]*\brel=\"(?:next|prev)\"))\b[^>]*?\b(?:src|href)=\"([^\"]+)\"")


SHOWN = re.compile(r"<(?:img|source)\b[^>]*?\b(?:src|srcset)=\"([^\":]+)\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a copy of the repository, with a new reference, since the one in the repository may be stale."""
    folder = tmp_path_factory.mktemp("site")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "demo", "studies", "gpu-day"))
    reference.write(source / GENERATED)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs/site", ".", folder / "html"]
    done = subprocess.run([*command, "-d", folder / "state"], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_built(site: Path) -> None:
    assert [page for page in (*PAGES, *generated()) if not (site / page).with_suffix(".html").is_file()] == []
    assert f'href="{Path(FIRST).with_suffix(".html")}"' in (site / "index.html").read_text(encoding="utf-8")
    first = (site / FIRST).with_suffix(".html").read_text(encoding="utf-8")
    assert first.count('href="reference/commands/README.html"') == 2, "once among the contents, once on the page"


def test_every_picture_exists(site: Path) -> None:
    shown = {page.parent / target for page in site.rglob("*.html") for target in SHOWN.findall(page.read_text(encoding="utf-8"))}
    assert {site / "docs" / "pictures" / name for name in ("plan.png", "report.png")} <= shown
    assert [path for path in sorted(shown) if not path.is_file()] == []


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loaded = {target for page in site.rglob("*.html") for target in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert any(".css" in target for target in loaded)
    assert any(".js" in target for target in loaded)
    assert [target for target in sorted(loaded) if re.match(r"([a-z]+:)?//", target)] == []
    for stylesheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?([a-z]+:)?//", stylesheet.read_text(encoding="utf-8")), stylesheet


def test_the_site_has_light_and_dark_themes_and_a_local_search(site: Path) -> None:
    assert any("prefers-color-scheme: dark" in stylesheet.read_text(encoding="utf-8") for stylesheet in site.rglob("*.css"))
    assert "searchindex.js" in (site / "search.html").read_text(encoding="utf-8")
    assert "recomput" in (site / "searchindex.js").read_text(encoding="utf-8")


def test_links_to_folders_and_files_work(site: Path) -> None:
    use = (site / "docs" / "use.html").read_text(encoding="utf-8")
    assert 'href="schemas/README.html"' in use
    assert 'href="../examples/cards/README.html"' in use
    [copied] = re.findall(r'href="\.\./(_downloads/[^"]+/own_model\.py)"', use)
    assert (site / copied).read_bytes() == (ROOT / "examples" / "own_model.py").read_bytes()
