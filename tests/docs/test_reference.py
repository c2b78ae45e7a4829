"""The folder of the reference has the pages of all its parts, and nothing else."""

from pathlib import Path

from docs.reference import HOME, PARTS, pages, write
from strategist import api


def test_no_part_takes_the_page_of_another() -> None:
    parts = [list(part()) for part in PARTS.values()]
    assert sum(map(len, parts)) + len(api.reference()) == len(pages())
    assert pages().keys() == {page for part in parts for page in part} | api.reference().keys()


def test_the_first_page_names_every_part_and_all_that_cards_have() -> None:
    assert [entry for entry in PARTS if f"\n- {entry}\n" not in pages()[HOME]] == []
    assert [line for line in api.reference()[HOME].splitlines()[4:] if line not in pages()[HOME]] == []


def test_the_folder_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    (folder / "cards").mkdir(parents=True)
    (folder / "cards" / "OLD-001.md").write_text("# OLD-001\n", encoding="utf-8")
    write(folder)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert {name: path.read_text(encoding="utf-8") for name, path in files.items()} == pages()
