"""How the pages become a site: every page of Markdown as it is, and nothing that a reader's browser asks other hosts for.

Pages are plain Markdown, so that they read the same on a repository's host. What Sphinx wants besides is made of their links here.
"""

import posixpath
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

project = "strategist"
html_title = project
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "cards/README.md", "docs/**", "examples/**", "profiles/measurements/*/README.md"]
exclude_patterns = [".*", "build"]
source_suffix = {".md": "markdown"}
nitpicky = True
suppress_warnings = ["myst.header", "toc.not_included"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["."]
html_additional_pages = {"index": "home.html"}
html_use_index = False
html_copy_source = False
html_show_copyright = False

HOME, FOLDER = root_doc, "README"
"""The first page, and the page that stands for a folder."""

PICTURES = "docs/pictures"
REFERENCE = "reference"
"""The folder beside the first page of what `make docs` writes; git does not hold it, so no page that git holds leads there."""

LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+\.md)\)")


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """The site's contents are what the first page and that of the reference link to, by section, and below it the first page of
    each folder in a folder.

    All other pages are linked by the first page of their folder: to have each of hundreds in all contents takes most of the time.
    """
    folder, page = posixpath.split(name)
    if name == HOME:
        source[0] += _reference(Path(app.srcdir, folder, REFERENCE, f"{FOLDER}.md").read_text(encoding="utf-8"))
        sections = re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", source[0], re.MULTILINE)
        for title, text in sections:
            source[0] += _tree([f"{shown.replace('`', '')} <{page}>" for shown, page in LINK.findall(text)], title)
    elif page == FOLDER and folder:
        first = [f"/{found}" for found in sorted(app.env.found_docs) if re.fullmatch(f"{folder}/[^/]+/{FOLDER}", found)]
        source[0] += _tree(first) if first else ""
        if not LINK.search(source[0]):
            source[0] += "".join(f"\n- [](/{found}.md)" for found in sorted(app.env.found_docs) if found.startswith(f"{folder}/"))


def _reference(page: str) -> str:
    """What the first page of the reference lists, as a section of the site's first page."""
    entries = [line.replace("](", f"]({REFERENCE}/") for line in page.splitlines() if line.startswith("- ")]
    return "\n## Reference\n\n" + "\n".join(entries) + "\n"


def _tree(pages: list[str], caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n" + "\n".join(["```{toctree}", *options, "", *pages, "```"]) + "\n"


def find_folders(app: Sphinx, page: nodes.document) -> None:
    """A link to a folder leads to the page that stands for it."""
    for link in page.findall(pending_xref):
        if link.get("reftype") == "myst" and not link.get("refdomain"):
            found = posixpath.normpath(posixpath.join(posixpath.dirname(link["refdoc"]), link["reftarget"], FOLDER))
            if found in app.env.found_docs:
                link.attributes |= {"refdomain": "doc", "reftarget": found, "reftargetid": None}


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Pictures of pages stand in HTML, for their width and for dark screens; Sphinx copies none of those."""
    if error is None:
        shutil.copytree(Path(app.srcdir, PICTURES), Path(app.outdir, PICTURES), dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("build-finished", copy_pictures)
    app.connect("source-read", add_contents)
    app.connect("doctree-read", find_folders)
