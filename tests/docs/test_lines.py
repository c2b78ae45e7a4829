"""Every command line on a page is valid: all are parsed, and those that only plan are run."""

import shutil
from pathlib import Path

import pytest

from docs.lines import block_lines, calls, span_lines
from docs.pages import GENERATED, PAGES, ROOT, blocks, generated
from docs.screens import REQUESTS
from strategist.cli import request_options as request_options
from strategist.cli.main import COMMANDS, main, whole_parser
from strategist.cli.parser import UsageError

PARSER = whole_parser(COMMANDS)
SHOWN = {page: list(block_lines(page)) for page in PAGES}
GUIDES = {"docs/tutorial.md", "docs/how-to.md", "docs/faq.md", "cards/README.md"}
"""Pages whose commands tests/test_guides.py runs and compares with the shown output, as for examples/cards."""

DECIDING = {"plan", "explain", "compare", "check", "import", "export", "report", "trace", "cards", "models", "hardware", "programs"}
"""Commands that need neither ranks nor devices, servers or hours."""

ELSEWHERE = ("studies/", "--prove")
"""Parts of lines that need trials first."""

OVERVIEW = "README.md"
ELSEWHERE_RUN = (*GUIDES, "docs/screens.md")
"""Pages whose lines other tests run."""

ON_SCREENS = [words for _, command in REQUESTS for words in calls(command)]
"""Lines that test_screens.py runs."""

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
    shown = [words for page in generated() for words in block_lines(page)]
    assert {words[0] for words in shown} == set(COMMANDS)
    assert_commands(shown)


def assert_commands(lines: list[list[str]]) -> None:
    for words in lines:
        parsed = PARSER.parse_args(words)
        assert "command" in parsed, words
        if "objective" in parsed and request_options.any_given(parsed) and not parsed.request:
            request_options.request(parsed)  # checks the values


@pytest.mark.parametrize("page", [*(page for page in PAGES if any(span_lines(page))), GENERATED])
def test_every_command_in_a_sentence_exists(page: str) -> None:
    for words in [words for one in (generated() if page == GENERATED else [page]) for words in span_lines(one)]:
        named = [word for word in words if word != "..."]
        assert named[0].isupper() or not _wrong(named), words


def _wrong(words: list[str]) -> str:
    """The error of a line, which may omit required arguments, and may end with the name of an option."""
    try:
        PARSER.parse_args(words)
    except UsageError as error:
        message = str(error)
        return "" if "are required" in message or f"{words[-1]} needs a value" in message else message
    except SystemExit:  # the line asks for the help
        return ""
    return ""


def test_an_incomplete_line_is_no_wrong_line() -> None:
    assert not _wrong(["run"])
    assert not _wrong(["tune", "--help"])
    assert not _wrong(["bench", "replay", "--data"])
    assert "did you mean --trials" in _wrong(["tune", "--trial", "3"])
    assert "is not a command" in _wrong(["tun"])


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that pages assume."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "examples" / "formats" / "ds_config.json", tmp_path)
    shutil.copy(ROOT / "examples" / "request-32b-lora.yaml", tmp_path / "request.yaml")
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(MODEL, encoding="utf-8")
    return tmp_path


@pytest.fixture
def with_plans(workplace: Path) -> None:
    """The folder with two plans, which pages assume, too."""
    for name, batch in (("plan", "64"), ("other", "128")):
        words = ["--model", "8b", "--gpus", "8xH100", "--global-batch", batch, "--backend", "pytorch"]
        words += ["--fix", "no_sync=false", "-o", f"{name}.json"]
        assert main(["plan", *words]) == 0


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("with_plans")
@pytest.mark.parametrize("page", [page for page, lines in RUN.items() if lines and page != OVERVIEW])
def test_every_line_that_only_plans_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    outputs_of(RUN[page], capsys)


def without_output(words: list[str]) -> list[str]:
    """A line without the file that its output goes to."""
    return [word for before, word in zip(("", *words), words, strict=False) if "-o" not in (before, word)]


def outputs_of(lines: list[list[str]], capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, ...], str]:
    """What each line prints."""
    found = {}
    for words in lines:
        if words[0] == "export":
            shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)  # each block starts without earlier outputs
        code, printed = main(words), capsys.readouterr()
        assert code == 0, f"{words}\n{printed.err}"
        found[tuple(words)] = printed.out
    return found


def test_scripts_are_parsed_like_a_shell() -> None:
    assert list(calls("cd x && strategist plan --model 8b \\\n  --gpus '8x 24GB' > out  # as JSON: strategist nothing\nls")) == [
        ["plan", "--model", "8b", "--gpus", "8x 24GB"]
    ]
    assert list(calls('eval "$(strategist completion bash)"')) == [["completion", "bash"]]
    assert list(calls("OMP_NUM_THREADS=1 strategist doctor | tee log; strategist topo")) == [["doctor"], ["topo"]]


@pytest.mark.usefixtures("workplace")
def test_the_lines_of_the_overview_run_and_it_shows_what_plan_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's block may omit lines and spaces. Lines whose answer is on the page of screens are run for that page."""
    monkeypatch.setenv("COLUMNS", "132")
    [block] = [block for block in blocks(OVERVIEW, "console") if block.startswith("$ ")]
    [words] = calls(block.partition("\n")[0].removeprefix("$ "))
    lines = [line for line in RUN[OVERVIEW] if line == words or without_output(line) not in ON_SCREENS]
    printed = iter([" ".join(line.split()) for line in outputs_of(lines, capsys)[tuple(words)].splitlines()])
    for line in block.splitlines()[1:]:
        if (wanted := " ".join(line.split())) not in ("", "..."):
            assert wanted in printed, line  # the iterator continues from there, so the order is checked
