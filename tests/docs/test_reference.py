"""The reference folder has exactly the pages of its parts."""

from pathlib import Path

from docs.reference import HOME, PARTS, deck_pages, pages, write


def test_parts_do_not_share_pages() -> None:
    parts = [list(part()) for part in PARTS.values()]
    assert sum(map(len, parts)) + len(deck_pages()) == len(pages())
    assert pages().keys() == {page for part in parts for page in part} | deck_pages().keys()


def test_the_first_page_names_every_part() -> None:
    assert [entry for entry in PARTS if f"\n- {entry}\n" not in pages()[HOME]] == []
    assert [line for line in deck_pages()[HOME].splitlines()[4:] if line not in pages()[HOME]] == []


def test_the_folder_is_replaced_when_written(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    (folder / "cards").mkdir(parents=True)
    (folder / "cards" / "OLD-001.md").write_text("# OLD-001\n", encoding="utf-8")
    write(folder)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert {name: path.read_text(encoding="utf-8") for name, path in files.items()} == pages()
