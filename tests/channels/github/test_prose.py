"""Mentions and commands count in what people wrote themselves, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline_github.inbound.prose import command, mentions, prose

BOT = "agent-fixture[bot]"


@pytest.mark.parametrize(
    "text",
    [
        "@agent-fixture review",
        "please @Agent-Fixture",
        "(@agent-fixture).",
        "**@agent-fixture** go",
        "- @agent-fixture in a list",
        "# @agent-fixture in a heading",
        "| a |\n|---|\n| @agent-fixture |",
        "> quoted\n\n@agent-fixture answered",
        "@agent-fixture[bot] go",
        "@agent-fixture.\nmore",
        "<b>@agent-fixture</b>",
        "you, @agent-fixture, and @dev-one",
        "<blockquote>quoted</blockquote>\n\n@agent-fixture",
        "<code>x</code> @agent-fixture",
        "</code> @agent-fixture",
        "see https://x.test/ @agent-fixture",
    ],
)
def test_a_mention_in_prose_counts(text: str) -> None:
    assert mentions(text, BOT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "> @agent-fixture please review",
        "> quoted\nlazily @agent-fixture",
        "```\n@agent-fixture deploy\n```",
        "~~~\n@agent-fixture deploy",
        "    @agent-fixture deploy",
        "inline `@agent-fixture stop`",
        "mail x@agent-fixture.test",
        "@agent-fixture-two",
        "@agent-fixture_two",
        "@agent-fixture/team",
        "@@agent-fixture",
        "https://x.test/@agent-fixture",
        "<!-- @agent-fixture hidden -->",
        "<!-- never closed @agent-fixture",
        "a <!-- @agent-fixture --> b",
        '<a href="@agent-fixture">x</a>',
        "![@agent-fixture](x.png)",
        "agent-fixture without a sign",
        "see https://x.test/?by=@agent-fixture",
        "text <code>@agent-fixture</code> text",
        "<CODE class='a'>\n@agent-fixture</CODE>",
        "<blockquote>@agent-fixture</blockquote>",
        "<blockquote>\n\n@agent-fixture asked\n\n- @agent-fixture\n\n</blockquote>",
        "<blockquote><blockquote>a</blockquote>@agent-fixture</blockquote>",
        "<pre>\n@agent-fixture\n</pre>",
    ],
)
def test_a_mention_elsewhere_is_none(text: str) -> None:
    assert not mentions(text, BOT)


def test_the_gap_of_code_joins_nothing() -> None:
    assert prose("a`b`c") == ("a\x00c",)
    assert not mentions("@agent`x`-fixture", BOT)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/review", ("review", "")),
        ("/Review  the tests \nplease", ("review", "the tests")),
        ("first\n/deploy now", ("deploy", "now")),
        ("see /review", None),
        ("> /review", None),
        ("`/review`", None),
        ("/usr/bin is a path", None),
        ("/", None),
    ],
)
def test_commands(text: str, found: tuple[str, str] | None) -> None:
    assert command(text) == found


def test_the_first_command_that_counts() -> None:
    assert command("/other x\n/review y", {"review"}) == ("review", "y")
    assert command("/other x", {"review"}) is None
    assert command("<pre>\n/review\n</pre>", {"review"}) is None


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    mentions(text, BOT)
    command(text)
    assert mentions(f"{text.replace('@', '')}\n\n@agent-fixture", BOT) or _hides(text)


def _hides(text: str) -> bool:
    """Tell whether what comes behind a text may be inside of its code, comment or HTML."""
    return any(mark in text for mark in ("`", "~", "<", "$"))


@given(st.text(alphabet="@agent-fixture `>\n", max_size=80))
def test_what_is_quoted_never_counts(text: str) -> None:
    quoted = "\n".join(f"> {line}" for line in text.split("\n"))
    assert not mentions(quoted, BOT)


@pytest.mark.parametrize(
    "text",
    [
        "<div>\n<" + '"a"' * 60,
        "<div>\n" + '<"' * 30_000,
        "<div>\n" + ("<" + '"a' * 200) * 100,
    ],
    ids=["quotes", "stray", "both"],
)
def test_no_text_takes_for_ever(text: str) -> None:
    """Read in every way that there is, the first would take longer than there are computers."""
    assert not mentions(text, "agent-fixture")


@pytest.mark.parametrize(
    "tag", ['<p title="a > b">', "<p title='x'>", '<p title="x>', '<p a="1" b>']
)
def test_what_stands_in_a_tag_is_not_said(tag: str) -> None:
    assert not mentions(f"<div>{tag.replace('x', '@agent-fixture')}</div>", "agent-fixture")
    assert mentions(f"<div>{tag}@agent-fixture</div>", "agent-fixture")
