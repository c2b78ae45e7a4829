"""Every command line that a page shows is one: all are read by the real parser, and those that only decide are run."""

import shutil
from pathlib import Path

import pytest

from docs.lines import block_lines, calls, span_lines
from docs.pages import MADE, PAGES, ROOT, blocks, made
from strategist.cli import request_options as request_options
from strategist.cli.main import COMMANDS, main, whole_parser
from strategist.cli.parser import UsageError

PARSER = whole_parser(COMMANDS)
SHOWN = {page: list(block_lines(page)) for page in PAGES}
GUIDES = {"docs/tutorial.md", "docs/how-to.md", "docs/faq.md", "cards/README.md"}
"""Whose commands tests/test_guides.py runs, with what they print; it runs those of examples/cards, too."""

DECIDING = {"plan", "explain", "compare", "check", "import", "export", "report", "trace", "cards", "models", "hardware", "programs"}
"""Commands that need neither ranks nor devices, servers or hours."""

ELSEWHERE = ("studies/", "--prove")
"""What a line has that needs trials first."""

ELSEWHERE_RUN = (*GUIDES, "docs/screens.md")
"""Pages whose lines tests of their own run."""

RUN = {
    page: [words for words in lines if words[0] in DECIDING and not any(part in word for word in words for part in ELSEWHERE)]
    for page, lines in SHOWN.items()
    if page not in ELSEWHERE_RUN and not page.startswith("examples/")
}

MODEL = """{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": false}"""


@pytest.mark.parametrize("page", [page for page, lines in SHOWN.items() if lines])
def test_every_line_of_a_block_is_a_command(page: str) -> None:
    assert_commands(SHOWN[page])


def test_every_line_of_the_reference_is_a_command() -> None:
    shown = [words for page in made() for words in block_lines(page)]
    assert {words[0] for words in shown} == set(COMMANDS)
    assert_commands(shown)


def assert_commands(lines: list[list[str]]) -> None:
    for words in lines:
        parsed = PARSER.parse_args(words)
        assert "command" in parsed, words
        if "objective" in parsed and request_options.given(parsed) and not parsed.request:
            request_options.request(parsed)  # its words are known ones


@pytest.mark.parametrize("page", [*(page for page in PAGES if any(span_lines(page))), MADE])
def test_what_a_sentence_calls_us_with_is_there(page: str) -> None:
    for words in [words for one in (made() if page == MADE else [page]) for words in span_lines(one)]:
        named = [word for word in words if word != "..."]
        assert named[0].isupper() or not _wrong(named), words


def _wrong(words: list[str]) -> str:
    """What is wrong with a line, which may leave out what its command needs, and end with the name of an option."""
    try:
        PARSER.parse_args(words)
    except UsageError as error:
        said = str(error)
        return "" if "are required" in said or f"{words[-1]} needs a value" in said else said
    except SystemExit:  # the line asks for the help
        return ""
    return ""


def test_a_wrong_line_is_told_from_a_short_one() -> None:
    assert not _wrong(["run"])
    assert not _wrong(["tune", "--help"])
    assert not _wrong(["bench", "replay", "--data"])
    assert "did you mean --trials" in _wrong(["tune", "--trial", "3"])
    assert "is not a command" in _wrong(["tun"])


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what readers are taken to have."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "examples" / "formats" / "ds_config.json", tmp_path)
    shutil.copy(ROOT / "examples" / "request-32b-lora.yaml", tmp_path / "request.yaml")
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(MODEL, encoding="utf-8")
    for name, batch in (("plan", "64"), ("other", "128")):
        words = ["--model", "8b", "--gpus", "8xH100", "--global-batch", batch, "--backend", "pytorch"]
        words += ["--fix", "no_sync=false", "-o", f"{name}.json"]
        assert main(["plan", *words]) == 0
    return tmp_path


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    "page", [page if page == "README.md" else pytest.param(page, marks=pytest.mark.full) for page, lines in RUN.items() if lines]
)
def test_every_line_that_only_decides_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in RUN[page]:
        if words[0] == "export":
            shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)  # each block begins anew
        capsys.readouterr()
        assert main(words) == 0, f"{words}\n{capsys.readouterr().err}"


def test_scripts_are_read_as_a_shell_does() -> None:
    assert list(calls("cd x && strategist plan --model 8b \\\n  --gpus '8x 24GB' > out  # as JSON: strategist nothing\nls")) == [
        ["plan", "--model", "8b", "--gpus", "8x 24GB"]
    ]
    assert list(calls('eval "$(strategist completion bash)"')) == [["completion", "bash"]]
    assert list(calls("OMP_NUM_THREADS=1 strategist doctor | tee log; strategist topo")) == [["doctor"], ["topo"]]


def test_the_overview_shows_what_plan_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Shortened, and without the spaces that a whole table has."""
    monkeypatch.setenv("COLUMNS", "132")
    [block] = [block for block in blocks("README.md", "console") if block.startswith("$ ")]
    [words] = calls(block.partition("\n")[0].removeprefix("$ "))
    assert main(words) == 0
    printed = iter([" ".join(line.split()) for line in capsys.readouterr().out.splitlines()])
    for line in block.splitlines()[1:]:
        if (wanted := " ".join(line.split())) not in ("", "..."):
            assert wanted in printed, line  # an iterator goes on from there: the lines are in this order
