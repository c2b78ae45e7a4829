"""``strategist report``: the page of a plan or a study."""

import io
import json
import shlex
import shutil
from contextlib import redirect_stdout
from html import unescape
from pathlib import Path

import pytest
from tuner.studies import tuned

from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.plan import Plan

Captured = pytest.CaptureFixture[str]
ASKED = ["plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16"]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an answer and its plan."""
    folder = tmp_path_factory.mktemp("answered")
    with redirect_stdout(io.StringIO()) as out:
        assert main([*ASKED, "--fix", "tp=2", "--top", "2", "-o", str(folder / "plan.json"), "--json"]) == 0
    (folder / "answer.json").write_text(out.getvalue(), encoding="utf-8")
    return folder


@pytest.fixture
def plan(answered: Path, tmp_path: Path) -> Path:
    shutil.copytree(answered, tmp_path, dirs_exist_ok=True)
    return tmp_path / "plan.json"


def command_text(page: Path) -> str:
    """The command on the page that reproduces the plan."""
    return unescape(page.read_text(encoding="utf-8").partition("<code>")[2].partition("</code>")[0])


def command(page: Path) -> list[str]:
    return shlex.split(command_text(page))


def test_the_page_of_a_plan_contains_the_command_that_reproduces_the_plan(plan: Path, tmp_path: Path, capsys: Captured) -> None:
    page, again = tmp_path / "report.html", tmp_path / "again.json"
    assert main(["report", str(plan), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"report written to {page}\n"
    program, *arguments = command(page)
    assert program == "strategist"
    assert main([*arguments, "-o", str(again)]) == 0
    assert codec.load(Plan, again).candidate == codec.load(Plan, plan).candidate


def test_the_page_of_an_answer_contains_its_request(plan: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(plan.with_name("answer.json")), "-o", str(page)]) == 0
    assert command(page)[1:] == [*ASKED, "--fix", "tp=2"]


def test_a_plan_with_an_unknown_model_has_no_command(plan: Path, tmp_path: Path) -> None:
    edited = json.loads(plan.read_text())
    edited["model"]["name"] = "<b>ours</b>"
    plan.write_text(json.dumps(edited))
    page = tmp_path / "report.html"
    assert main(["report", str(plan), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "<b>ours" not in text
    assert "&lt;b&gt;ours" in text
    assert "plan with the original files" in text


@pytest.mark.parametrize(("content", "message"), [("{}", "version is missing"), ("[1]", "plan.json"), ("nothing", "plan.json")])
def test_an_invalid_plan_file_prints_one_error_line(content: str, message: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "plan.json").write_text(content)
    assert main(["report", str(tmp_path / "plan.json"), "-o", str(tmp_path / "report.html")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_an_answer_without_a_plan_prints_one_error_line(plan: Path, tmp_path: Path, capsys: Captured) -> None:
    answer = plan.with_name("answer.json")
    answer.write_text(json.dumps({**json.loads(answer.read_text()), "plans": []}))
    assert main(["report", str(answer), "-o", str(tmp_path / "report.html")]) == 2
    assert "holds no plan" in capsys.readouterr().err


def test_the_page_of_a_study_contains_the_command_that_resumes_the_study(tmp_path: Path, capsys: Captured) -> None:
    study, page = tuned(tmp_path / "study", 2), tmp_path / "report.html"
    assert main(["report", str(study), "-o", str(page)]) == 0
    further, best = map(shlex.split, command_text(page).splitlines())
    assert further[:2] == ["strategist", "tune"]
    assert further[further.index("--study") + 1] == str(study)
    assert main([*best[1:4], str(page)]) == 0
    assert main(["report", str(tmp_path), "-o", str(page)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_charts_are_printed_without_an_output_file(plan: Path, capsys: Captured) -> None:
    assert main(["report", str(plan)]) == 0
    assert "Memory by rank" in capsys.readouterr().out
    assert main(["report", str(tuned(plan.parent / "study", 1))]) == 0
    assert "1 real trial for throughput" in capsys.readouterr().out


def test_a_plan_for_a_framework_is_priced_with_its_stack(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert main(["plan", "--model", "8b", "--gpus", "8xH100", "--backend", "deepspeed", "-o", str(file)]) == 0
    plan = codec.load(Plan, file)
    found = api.report(plan)
    assert ("--backend", "deepspeed") in zip(found.command, found.command[1:], strict=False)
    assert {other.stack for other in found.plans} == {plan.stack} == {"deepspeed"}
    assert max(rank.memory.total for rank in found.ranks) == pytest.approx(plan.estimate.memory.total, rel=1e-6)
