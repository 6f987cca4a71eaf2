"""Foreign text in Markdown, and numbers in words."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_up import figure, verification
from markdown_it import MarkdownIt

from hub_exporter import wording

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")

HOSTILE = [
    "a | b",
    "*bold* _it_ ~~x~~ `code`",
    "``` \n# heading",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](http://evil)",
    "- item",
    "1. item",
    "> quote",
    "---",
    "| --- | --- |",
    "{{ index }} {% raw %}",
    "a\\|b\\\\|c`",
    "&lt;b&gt; &#42;",
    "<!-- hub-exporter:end -->",
    "\u202egnp.exe\u2066",
    "\x1b[31mred\x07",
]

foreign = st.text() | st.sampled_from(HOSTILE) | st.text(alphabet="`|\\*_[]()<>#-+.!~&$@: \n\tab1")


def shown(markdown: str) -> list[str]:
    """The text of each table cell, as a reader sees it; fails on anything but text and code spans."""
    cells = []
    for token in MARKDOWN.parse(markdown):
        if token.type == "inline":
            assert {child.type for child in token.children or ()} <= {"text", "code_inline", "html_inline"}
            html = [child.content for child in token.children or () if child.type == "html_inline"]
            assert set(html) <= {"<code>", "</code>"}
            cells.append("".join(c.content for c in token.children or () if c.type != "html_inline"))
    return cells


@given(foreign)
@pytest.mark.parametrize("escape", [wording.inline, wording.code])
def test_any_text_in_a_table_cell_is_shown_as_it_is_and_breaks_nothing(escape, text):
    cells = shown(f"| a | b |\n|---|---|\n| {escape(text)} | end |\n")

    assert cells == ["a", "b", wording.one_line(text), "end"]


@given(foreign)
@pytest.mark.parametrize("escape", [wording.inline, wording.code])
def test_any_text_in_a_list_item_is_shown_as_it_is(escape, text):
    kinds = [token.type for token in MARKDOWN.parse(f"- {escape(text)}\n")]
    paragraph = ["paragraph_open", "inline", "paragraph_close"] if wording.one_line(text) else []

    assert kinds == ["bullet_list_open", "list_item_open", *paragraph, "list_item_close", "bullet_list_close"]
    assert "".join(shown(f"- {escape(text)}\n")) == wording.one_line(text)


@given(foreign, foreign)
def test_prose_shows_the_literals_as_code_and_the_rest_as_it_is(before, literal):
    literal = wording.one_line(literal.replace("`", ""))
    text = f"{before.replace('`', '')} `{literal}` end" if literal else "plain"

    assert shown(f"| a |\n|---|\n| {wording.prose(text)} |\n")[1] == wording.one_line(text.replace("`", ""))


@given(st.text(alphabet="`~\nab"))
@example("```\nend")
def test_no_text_closes_its_fence(text):
    tokens = MARKDOWN.parse(wording.fenced(text, "python") + "\n\nafter\n")

    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content.rstrip() == text.rstrip()


def test_one_line_has_no_control_characters_nor_direction_marks():
    assert wording.one_line("a\r\nb\x1b[0m\u202ec\ud800") == "a b [0mc?"


def test_an_underscore_inside_a_word_stays_readable():
    assert wording.inline("last_hidden_state") == "last_hidden_state"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (90_868_376, "90.9 MB")]
)
def test_size(count, text):
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (41.3, "41 s"), (59.7, "1 min 00 s"), (725, "12 min 05 s"), (3720, "1 h 02 min")],
)
def test_duration(seconds, text):
    assert wording.duration(seconds) == text


def test_agreement_is_the_worst_difference_of_all_outputs():
    assert wording.agreement(verification()) == "max diff 2.4e-07"


def test_agreement_counts_the_tokens_of_all_decode_loops():
    assert wording.agreement(verification("decoder")) == "96/96 tokens"


def test_an_output_that_could_not_be_compared_counts_for_nothing():
    cases = (msgspec.structs.replace(verification().cases[0], figures=(figure(None, problem="NaN or infinity"),)),)

    assert wording.agreement(verification(cases=cases)) == ""


def test_code_never_holds_a_marker_of_a_section():
    assert "<!--" not in wording.code("<!-- hub-exporter:end -->")
