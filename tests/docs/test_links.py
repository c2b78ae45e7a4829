"""Every link within the repository leads to something, and every page can be reached."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from docs.pages import FIRST, FOLDER, PAGES, ROOT, anchors, links, place, tokens

ADDRESS = re.compile(r"(https?|mailto):")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git here")
def test_these_are_all_pages_of_the_repository() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(tracked) <= set(PAGES)


def test_links_lead_to_files_and_headings() -> None:
    def faults(page: str) -> Iterator[str]:
        for link in links(page):
            if not ADDRESS.match(link):
                target, anchor = place(page, link), link.partition("#")[2]
                if not (ROOT / target).is_file():
                    yield f"{link}: there is no {target}"
                elif anchor and anchor not in anchors(target):
                    yield f"{link}: {target} has no such heading"

    assert [f"{page}: {fault}" for page in PAGES for fault in faults(page)] == []


def test_a_page_has_one_title() -> None:
    def titles(page: str) -> int:
        return sum(token.type == "heading_open" and token.tag == "h1" for token in tokens(page))

    assert {page: titles(page) for page in PAGES if titles(page) != 1} == {}


def test_every_page_can_be_reached_from_the_first() -> None:
    reached, waiting = {FIRST}, [FIRST]
    while waiting:
        page = waiting.pop()
        leads = {place(page, link) for link in links(page) if not ADDRESS.match(link)}
        if page.endswith(f"/{FOLDER}") and not links(page):  # the site lists the folder's pages on it
            leads = {other for other in PAGES if other.startswith(page.removesuffix(FOLDER))}
        new = (leads & set(PAGES)) - reached
        reached |= new
        waiting += sorted(new)
    assert set(PAGES) - reached == set(), f"link them from {FIRST}, or from the page of their folder"
