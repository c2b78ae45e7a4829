"""Every link within the repository has an existing target, and every page can be reached."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from docs.pages import FIRST, FOLDER, GENERATED, PAGES, ROOT, anchors, generated, links, place, tokens

ADDRESS = re.compile(r"(https?|mailto):")


def all_pages() -> tuple[str, ...]:
    """Paths of tracked and generated pages."""
    return (*PAGES, *generated())


@pytest.fixture(scope="module")
def tracked() -> frozenset[str]:
    """All files that git tracks or does not ignore."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git here")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return frozenset(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def test_all_pages_but_generated_ones_are_tracked(tracked: frozenset[str]) -> None:
    assert {path for path in tracked if path.endswith(".md") and (ROOT / path).exists()} == set(PAGES)


def test_tracked_pages_link_only_to_tracked_files(tracked: frozenset[str]) -> None:
    targets = {(page, place(page, link)) for page in (*PAGES, "llms.txt") for link in links(page) if not ADDRESS.match(link)}
    assert len(targets) > 100
    assert [f"{page}: {target} is not tracked" for page, target in sorted(targets) if target not in tracked] == []


def test_links_lead_to_existing_files_and_headings() -> None:
    def faults(page: str) -> Iterator[str]:
        for link in links(page):
            if not ADDRESS.match(link):
                target, anchor = place(page, link), link.partition("#")[2]
                if not (target in generated() if target.startswith(GENERATED) else (ROOT / target).is_file()):
                    yield f"{link}: there is no {target}"
                elif anchor and anchor not in anchors(target):
                    yield f"{link}: {target} has no such heading"

    assert [f"{page}: {fault}" for page in all_pages() for fault in faults(page)] == []


def test_a_page_has_one_title() -> None:
    def titles(page: str) -> int:
        return sum(token.type == "heading_open" and token.tag == "h1" for token in tokens(page))

    assert {page: titles(page) for page in all_pages() if titles(page) != 1} == {}


def test_every_page_is_reachable_from_the_first_page() -> None:
    reached = {FIRST, GENERATED + FOLDER}  # the site's first page lists the entries of the reference
    waiting = [*reached]
    while waiting:
        page = waiting.pop()
        leads = {place(page, link) for link in links(page) if not ADDRESS.match(link)}
        if page.endswith(f"/{FOLDER}") and not links(page):  # the site lists the folder's pages
            leads = {other for other in all_pages() if other.startswith(page.removesuffix(FOLDER))}
        new = (leads & set(all_pages())) - reached
        reached |= new
        waiting += sorted(new)
    assert set(all_pages()) - reached == set(), f"link them from {FIRST}, or from the page of their folder"
