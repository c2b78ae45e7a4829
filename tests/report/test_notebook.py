"""Reports as HTML and as Markdown."""

from html.parser import HTMLParser

from strategist import api
from strategist.report.notebook import html, markdown
from strategist.report.text_blocks import bullets, columns, commands, section
from tests.report.samples import ANSWER, PLAN

REPORT = section("A <b>title", bullets(["first", "second"], mark="1"), commands("Next", "strategist plan --model a*b"))


def test_answers_and_plans_render_in_notebooks() -> None:
    assert api.plan  # the import registers the renderers
    for value in (ANSWER, PLAN):
        page, text = value._repr_html_(), value._repr_markdown_()
        assert page is not None
        assert text is not None
        HTMLParser().feed(page)
        assert page.count("<table>") == page.count("</table>") > 0
        assert "full" in page
        assert "full" in text
    assert "<th>DP/FSDP</th><th>TP</th>" in str(ANSWER._repr_html_())
    assert "| # | DP/FSDP | TP | PP | CP | activation checkpoint | micro-batch |" in str(ANSWER._repr_markdown_())


def test_text_is_escaped_and_commands_are_unchanged() -> None:
    assert "<p>A &lt;b&gt;title</p>" in html(REPORT)
    assert "<pre>strategist plan --model a*b</pre>" in html(REPORT)
    text = markdown(REPORT)
    assert "A \\<b>title\n\n- first\n- second\n" in text
    assert "```sh\nstrategist plan --model a*b\n```" in text


def test_a_table_keeps_titles_and_rows() -> None:
    table = columns("part", "GiB")
    table.add_row("logits", "8.1")
    assert html(table) == "<table><tr><th>part</th><th>GiB</th></tr><tr><td>logits</td><td>8.1</td></tr></table>"
    assert markdown(table) == "| part | GiB |\n| --- | --- |\n| logits | 8.1 |\n"
