"""Long texts in several comments: nothing lost, no code torn, each within the limit."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadline_github.outbound.fences import code_lines, normal
from threadline_github.outbound.markers import ROOM, marked
from threadline_github.outbound.split import BODY, split

PIECES = st.sampled_from(
    [
        "word ",
        "A sentence. ",
        "\u6f22\u5b57\u3002",
        "\U0001f600",
        "e\u0301",
        "`code` ",
        "**bold** ",
        "\n",
        "\r\n",
        "\n\n",
        "- item ",
        "\n1. one ",
        "\n> quoted ",
        "\n# Heading\n",
        "\n| a | b |\n| - | - |\n",
        "\n```python\nx = 1\n",
        "\n```\n",
        "\n- ```\n  in a list\n",
        "\n> ```\n> in a quote\n",
        "\n~~~~\n",
        "    indented\n",
        "\u2028",
        "\x0b",
        "x" * 90,
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=20), max_size=60).map("".join)
LIMITS = st.integers(200, 500)
FENCE = re.compile(r"^[ >\-\d.)]*(?:`{3,}|~{3,}).*$", re.MULTILINE)


def words(text: str) -> str:
    """Return what a text says, without what opens and closes code."""
    return "".join(FENCE.sub("", normal(text)).replace(">", "").split())


@given(TEXTS, LIMITS)
@example("- a\n  ```py\n" + "  y\n" * 100 + "  ```\nend", 200)
@example("```py", 200)
@example("x" * 1000, 200)
def test_nothing_is_lost(text: str, limit: int) -> None:
    assert words("\n".join(split(text, limit))) == words(text)


@given(TEXTS, LIMITS)
def test_each_part_is_within_the_limit_and_says_something(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(len(part) <= limit and part.strip() for part in parts)
    assert bool(parts) == bool(normal(text).strip())


@given(TEXTS, LIMITS)
@example("- a\n  ```py\n" + "  y\n" * 100, 200)
@example("> ```\n> a", 200)
def test_no_part_leaves_code_open_behind_it(text: str, limit: int) -> None:
    for part in split(text, limit):
        body = marked(part, "s/github/answer/t")
        assert body.count("\n") not in code_lines(body)


def test_a_short_text_is_as_it_was() -> None:
    text = "One.\n\n```py\nx\n```\n\n- two\n- three"
    assert split(text) == [text]
    assert split(f"{text}\r\n") == [text]


@pytest.mark.parametrize("text", ["", " \n\n\t", "\r\n"])
def test_nothing_has_no_parts(text: str) -> None:
    assert split(text) == []


def test_a_part_ends_between_paragraphs() -> None:
    text = "\n\n".join(f"{number} {'word ' * 20}".strip() for number in range(6))
    first, second, *_ = split(text, 300)
    assert first.endswith("word")
    assert second[0].isdecimal()


def test_code_goes_on_in_the_next_part_as_code() -> None:
    text = "Look:\n\n```python\n" + "x = 1\n" * 99 + "```\n\nThat is all."
    first, second, *_, last = split(text, 250)
    assert first.endswith("x = 1\n```")
    assert second.startswith("```python\nx = 1\n")
    assert last.endswith("```\n\nThat is all.")


def test_code_in_a_list_goes_on_without_its_indentation() -> None:
    text = "- Look:\n  ```python\n" + "  x = 1\n" * 60 + "  ```"
    first, second, *_ = split(text, 250)
    assert first.endswith("  x = 1\n  ```")
    assert second.startswith("```python\nx = 1\n")


def test_code_in_a_quote_stays_in_one() -> None:
    first, second, *_ = split("> ```\n" + "> x = 1\n" * 60, 250)
    assert first.endswith("\n> ```")
    assert second.startswith("> ```\n> x = 1\n")


def test_code_that_nobody_closed_is_closed() -> None:
    assert split("```py\nx") == ["```py\nx\n```"]
    assert split("```py") == ["```py\n```"]
    assert split("- a\n  ~~~~\n  x\n") == ["- a\n  ~~~~\n  x\n  ~~~~"]


def test_a_longer_fence_keeps_a_shorter_one_inside() -> None:
    text = "````md\n```py\n" + "x\n" * 200 + "```\n````"
    first, second, *_ = split(text, 250)
    assert first.startswith("````md\n```py\nx")
    assert first.endswith("x\n````")
    assert second.startswith("````md\nx")


def test_a_long_word_is_cut_between_characters() -> None:
    parts = split("e\u0301" * 400, 200)
    assert not any(part.startswith("\u0301") for part in parts)
    assert "".join(parts) == "e\u0301" * 400


def test_a_comment_has_room_for_its_marker() -> None:
    text = "\n\n".join(["word " * 50] * 2_000)
    parts = split(text)
    assert len(parts) > 1
    assert all(len(marked(part, "x" * 2_000)) <= BODY for part in parts)
    assert max(len(part) for part in parts) <= BODY - ROOM


def test_what_cannot_be_sent_is_replaced() -> None:
    assert split("a\x00b\ud800c") == ["a\ufffdb?c"]


def test_a_limit_without_room_for_code_is_refused() -> None:
    with pytest.raises(ValueError, match="199"):
        split("x", 199)
