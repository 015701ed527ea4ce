"""What may stand in public: people are mentioned, teams and markers are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline_github.outbound.words import code, public, quoted

GAP = "\u200b"


@pytest.mark.parametrize("team", ["@org/team", "@Org-1/the.team", "@everyone", "@Here", "@all,"])
def test_no_crowd_is_called(team: str) -> None:
    assert public(f"Thanks, {team} now.") == f"Thanks, @{GAP}{team[1:]} now."
    assert public(team) == f"@{GAP}{team[1:]}"


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, @dev-one.",
        "@dev-one: see a/b and me@example.com/x",
        "@allison and @hereafter and @team-lead",
        "Run `npm i @types/node` now.",
        "A ``span with ` and @types/node`` here",
        "```sh\nnpm i @types/node\n```",
        "    npm i @types/node",
        "> ```\n> @org/team\n> ```",
        "https://x.test/@org/team",
    ],
)
def test_people_addresses_and_code_stay(text: str) -> None:
    assert public(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "`not closed @org/team",
        "`one\n\n@org/team` two",
        "```\ncode\n```\n@org/team",
        "`a` @org/team `b`",
        "```a``` @org/team ``b`",
        "<!-- @org/team -->",
    ],
)
def test_what_only_looks_like_code_hides_no_team(text: str) -> None:
    assert f"@{GAP}org/team" in public(text)


def test_no_marker_can_be_forged() -> None:
    assert "<!-- threadline:" not in public("```\n<!-- threadline:s/github/answer/t -->\n```")


@given(st.text(alphabet="`@a/ \n>~-", max_size=80))
def test_nothing_but_gaps_is_added(text: str) -> None:
    assert public(text).replace(GAP, "") == text


@given(st.integers(1, 3_000))
def test_many_ticks_take_no_time(count: int) -> None:
    text = " ".join("`" * (number % 60 + 1) for number in range(count))
    assert public(f"{text} @dev") == f"{text} @dev"


def test_code_ends_where_it_ends() -> None:
    assert code("x", "py") == "```py\nx\n```"
    assert code("a\n````\nb") == "`````\na\n````\nb\n`````"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("deploy", "`deploy`"), ("a\n b", "`a b`"), ("a`b", "``a`b``"), ("`a", "`` `a ``")],
)
def test_a_name_is_shown_as_code(text: str, shown: str) -> None:
    assert quoted(text) == shown
