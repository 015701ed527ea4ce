"""Identifiers."""

from __future__ import annotations

import pytest

from threadline.ids import RESERVED_SLUGS, is_delivery_id, is_session_id, is_slug, new_id


def test_new_ids_are_different_and_well_formed() -> None:
    made = {new_id("ses") for _ in range(1000)}
    assert len(made) == 1000
    assert all(is_session_id(text) for text in made)
    assert all(len(text) == 26 for text in made)


@pytest.mark.parametrize("text", ["ses_a", "ses_fixture1", "ses_A-b_9", "ses_" + "x" * 64])
def test_session_ids(text: str) -> None:
    assert is_session_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        "../x",
        "ses_",
        "ses_a/../../b",
        "ses_a\x00b",
        "ses_a\n",
        "SES_FIXTURE1",
        "ses_" + "x" * 65,
        "ses_é",
        "ses_e\u0301",
        "ses_a.b",
        "/etc/passwd",
        "C:\\x",
        "con",
    ],
)
def test_what_is_no_session_id(text: str) -> None:
    assert not is_session_id(text)


def test_delivery_ids_are_short_and_printable() -> None:
    assert is_delivery_id("a")
    assert is_delivery_id("wh 1/é" + "x" * 194)
    for text in ("", "x" * 201, "a\n", "a\x00", "\u2028", "\ud800"):
        assert not is_delivery_id(text)


def test_slugs_name_no_route_of_the_host() -> None:
    assert is_slug("on-call2")
    for text in ("", ".", "..", "-a", "A", "a/b", "a_b", "a\n", *RESERVED_SLUGS):
        assert not is_slug(text)
