"""What of a growing text stands in which message: whole, once, and cut where it matters least."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threadline_slack.outbound.stream import ENOUGH, LATE, LATEST, MOST, Growth, visible
from threadline_slack.words.chunks import Chunk, cut, growing, length
from threadline_slack.words.defuse import defuse

FENCE = re.compile(r"^```.*\n?", re.MULTILINE)


def words(text: str) -> list[str]:
    """Return the words, without the fences that a cut adds."""
    return FENCE.sub("", text).split()


def grown(source: str, sizes: list[int], ages: list[float]) -> Growth:
    """Let a text arrive in pieces, and do all that there is to do after each."""
    growth, at = Growth(), 0
    for number, size in enumerate(sizes):
        at += size
        text = visible(source[:at])
        age = ages[number % len(ages)]
        while (step := growth.step(text, age)) is not None:
            before = growth
            growth = growth.after(step, text)
            assert length(before.shown + step.text) <= 12_000
            age = 0.0 if step.closes else age
            if step.closes and not step.text and before.shown == growth.shown:
                break
    return growth


paragraph = st.sampled_from(
    [
        "One sentence. And another one, which is longer.",
        "word " * 500,
        "- an item\n- another [link with words](https://example.com/a)\n  of two lines",
        "```python\n" + "print('x')\n" * 40 + "```",
        "```\n" + "a line of code\n" * 900 + "```",
        "| a | b |\n| --- | --- |\n| 1 | 2 |",
        "# A heading",
        "字" * 300,
        "> quoted\n> twice",
        "Mind &amp; the <@U0HUMAN001> and `code span`.",
        "x" * 3000,
    ]
)
texts = st.lists(paragraph, min_size=1, max_size=12).map("\n\n".join)


@settings(deadline=None, max_examples=150)
@given(
    texts,
    st.lists(st.integers(1, 4000), min_size=1, max_size=30),
    st.lists(st.sampled_from([0.0, 0.0, LATE, LATEST]), min_size=1, max_size=5),
)
def test_every_word_is_said_once_in_order(source: str, sizes: list[int], ages: list[float]) -> None:
    growth = grown(source, sizes, ages)
    final = defuse(source)
    said = growth.finish(final)
    assert said is not None
    assert all(length(part) <= MOST for part in said)
    assert [word for part in said for word in words(part)] == words(final) or (
        "".join(words("".join(said))) == "".join(words(final))
    )
    assert said[: len(growth.parts)] == list(growth.parts)
    if growth.shown:
        assert said[len(growth.parts)].startswith(growth.shown)


@settings(deadline=None, max_examples=100)
@given(texts, st.lists(st.integers(1, 4000), min_size=1, max_size=30))
def test_what_is_visible_only_grows(source: str, sizes: list[int]) -> None:
    final, shown, at = defuse(source), "", 0
    for size in sizes:
        at += size
        now = visible(source[:at])
        assert final.startswith(now)
        assert now.startswith(shown) or shown.startswith(now)
        shown = max(shown, now, key=len)


@settings(deadline=None, max_examples=100)
@given(
    texts,
    st.lists(st.integers(1, 4000), min_size=1, max_size=30),
    st.lists(st.sampled_from([0.0, LATE, LATEST]), min_size=1, max_size=5),
)
def test_no_message_leaves_code_open(source: str, sizes: list[int], ages: list[float]) -> None:
    said = grown(source, sizes, ages).finish(defuse(source)) or []
    for part in said:
        assert len(re.findall(r"^```", part, re.MULTILINE)) % 2 == 0


def test_a_message_is_left_at_the_end_of_a_paragraph() -> None:
    source = "\n\n".join("A sentence of some words. " * 20 for _ in range(40))
    growth = grown(source, [300] * 80, [0.0])
    assert len(growth.parts) > 1
    for part in growth.parts:
        assert part.endswith("\n\n")
        assert ENOUGH < len(part) <= MOST


def test_a_message_that_is_old_is_left_in_time() -> None:
    text = visible("A sentence of words, and more of it ")
    growth = Growth()
    step = growth.step(text)
    assert step is not None
    growth = growth.after(step, text)
    assert growth.step(text, LATE) is None
    step = growth.step(text, LATEST)
    assert step is not None
    assert (step.text, step.closes) == ("", True)
    growth = growth.after(step, text)
    assert growth.finish("A sentence of words, and more of it here.") == [
        "A sentence of words, and more of it ",
        "here.",
    ]


def test_code_that_is_cut_is_closed_and_opened_again() -> None:
    source = "```python\na = 1\nb = 2\n"
    growth = Growth()
    step = growth.step(visible(source))
    assert step is not None
    growth = growth.after(step, source)
    step = growth.step(source, LATEST)
    assert step is not None
    growth = growth.after(step, source)
    assert growth.parts == ("```python\na = 1\nb = 2\n```",)
    assert growth.finish(source + "c = 3\n```") == [*growth.parts, "```python\nc = 3\n```"]
    assert growth.finish(source + "```") == [*growth.parts]


def test_a_table_is_shown_when_it_is_whole() -> None:
    assert visible("See:\n\n| a | b |\n| --- | --- |\n| 1 ") == "See:\n\n"
    assert "| 1 | 2 |" in visible("| a | b |\n| --- | --- |\n| 1 | 2 |\n\nDone. ")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("two wor", "two "),
        ("a [link of wor", "a "),
        ("a [link](https://exa", "a "),
        ("fish &am", "fish "),
        ("hello <@U1", "hello "),
    ],
)
def test_what_is_not_decided_is_held_back(source: str, shown: str) -> None:
    assert visible(source) == shown


def test_another_text_than_the_one_that_grew_is_not_its_end() -> None:
    text = "The beginning of it "
    growth = Growth().after(Growth().step(text), text)  # type: ignore[arg-type]
    assert growth.step("Another text ") is None
    assert growth.finish("Another text") is None


def test_a_dead_message_ends_where_it_stands() -> None:
    text = "The beginning of it "
    growth = Growth().after(Growth().step(text), text)  # type: ignore[arg-type]
    growth = growth.cut_off(text)
    assert growth.parts == (text,)
    assert growth.finish(text + "and its end") == [text, "and its end"]


def test_a_piece_is_cut_behind_what_is_said_already() -> None:
    text = "A sentence. " * 20 + "\n\n" + "Another one. " * 20
    first, opened = cut(text, 0, 300)
    assert (first.body, opened) == ("A sentence. " * 20 + "\n\n", "")
    second, opened = cut(text, 260, 300)
    assert 260 <= len(second.body) <= 300
    assert second.body.endswith(". ")
    assert text.startswith(second.body)
    assert opened == ""


def test_a_piece_that_ends_in_code_says_how_it_goes_on() -> None:
    text = "```python\n" + "a = 1\n" * 40
    assert cut(text, 50, 1000) == (Chunk(text, "", "```"), "```python\n")
    piece, opened = cut(text, 150, 200)
    assert piece.closed == "```"
    assert piece.body.endswith("a = 1\n")
    assert opened == "```python\n"


@pytest.mark.parametrize(
    ("text", "kind", "start"),
    [
        ("", "blank", 0),
        ("One.\n\n", "blank", 6),
        ("One.\n\nTwo", "paragraph", 6),
        ("One.\n\n| a |", "table", 6),
        ("```\na", "fence", 0),
        ("```\na\n```\n", "blank", 10),
    ],
)
def test_what_may_still_grow(text: str, kind: str, start: int) -> None:
    assert growing(text) == (kind, start)
