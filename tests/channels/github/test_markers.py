"""The hidden line of a post: it is found again, and nobody else can make one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline_github.outbound.markers import ROOM, disarm, marked, marker, wears

NAME = "sess_1/github/answer/turn_1"


def test_a_marker_names_its_post() -> None:
    assert marker(NAME) == f"<!-- threadline:{NAME} -->"
    assert marked("Hello.", NAME) == f"Hello.\n\n<!-- threadline:{NAME} -->"
    assert marked("", NAME) == marker(NAME)


@given(st.text(max_size=600))
def test_no_name_ends_the_comment_and_each_has_room(name: str) -> None:
    made = marker(name)
    assert made.count("-->") == 1
    assert "\n" not in made
    assert len(made) + 2 <= ROOM
    assert wears(marked("text", name), name)


@given(st.text(max_size=20), st.text(max_size=20))
def test_another_post_has_another_marker(one: str, other: str) -> None:
    if one != other:
        assert not wears(marked("text", one), other)


@pytest.mark.parametrize(
    "body",
    [
        f"> Hello.\n>\n> {marker(NAME)}",
        f"{marker(NAME)}\n\nWhat is this?",
        f"`{marker(NAME)}`",
        marker(f"{NAME}/2"),
        None,
        7,
        "",
    ],
)
def test_a_quote_is_not_the_post(body: object) -> None:
    assert not wears(body, NAME)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "  \n\n"])
def test_what_github_does_to_line_ends_does_not_matter(end: str) -> None:
    assert wears(marked("One.\n\nTwo.", NAME).replace("\n", "\r\n") + end, NAME)


@pytest.mark.parametrize(
    "text", [marker(NAME), f"a{marker(NAME)}b", "<!--threadline:x-->", "<!--\n THREADLINE:x -->"]
)
def test_no_text_holds_a_marker(text: str) -> None:
    said = disarm(text)
    assert "<!--" not in said
    assert not wears(said, NAME)


def test_other_comments_stay() -> None:
    assert disarm("<!-- a note -->") == "<!-- a note -->"
