"""How a review is made up: each finding on a line of the diff, or in the text."""

from __future__ import annotations

from typing import Any

import pytest

from threadline_github.outbound.drafts import Draft, draft
from threadline_github.outbound.results import Finding, Review
from threadline_github.workspace.diff import FileDiff

SHA, HEAD = "1" * 40, "2" * 40
FILE = FileDiff("src/a.py", "src/old.py", 9, 9, "", right=frozenset({*range(10, 21), 40}))
LEFT = FileDiff("src/a.py", "src/old.py", 9, 9, "", left=frozenset(range(5, 8)))


def one(line: int, **more: Any) -> Draft:
    """Return the draft of a review with one finding."""
    finding = Finding(path=more.pop("path", "src/a.py"), line=line, body="Why?", **more)
    return draft(Review(comments=[finding]), SHA, files=[FILE])


def test_a_finding_stands_on_its_line() -> None:
    made = one(12)
    assert made.payload(made.body) == {
        "commit_id": SHA,
        "event": "COMMENT",
        "body": "",
        "comments": [{"path": "src/a.py", "line": 12, "side": "RIGHT", "body": "Why?"}],
    }


def test_several_lines_are_one_finding() -> None:
    (_, comment) = one(14, start_line=12).comments[0]
    assert (comment["start_line"], comment["start_side"], comment["line"]) == (12, "RIGHT", 14)


@pytest.mark.parametrize("start", [14, 8])
def test_lines_that_are_not_all_there_are_the_last_one(start: int) -> None:
    (_, comment) = one(14, start_line=start).comments[0]
    assert "start_line" not in comment
    assert comment["line"] == 14


def test_a_line_beside_the_diff_moves_and_says_so() -> None:
    (_, comment) = one(22, start_line=21).comments[0]
    assert (comment["line"], comment["body"]) == (20, "_About line 22:_\n\nWhy?")
    assert "start_line" not in comment


@pytest.mark.parametrize(("line", "path"), [(99, "src/a.py"), (12, "src/b.py")])
def test_what_is_not_in_the_diff_is_in_the_text(line: int, path: str) -> None:
    made = one(line, path=path)
    assert made.comments == ()
    assert made.body.endswith(f"**`{path}:{line}`**: Why?")


def test_the_old_side_goes_by_the_old_lines() -> None:
    review = Review(
        comments=[Finding(path="src/old.py", line=6, body="Why?", side="LEFT", start_line=5)]
    )
    (_, comment) = draft(review, SHA, files=[LEFT]).comments[0]
    assert (comment["line"], comment["side"], comment["start_line"]) == (6, "LEFT", 5)
    lost = draft(review, SHA, files=[FILE])
    assert lost.body.endswith("**`src/old.py:5-6`** (before): Why?")


def test_without_a_diff_lines_are_as_they_were_given() -> None:
    finding = Finding(path="a", line=5, body="b", start_line=3)
    (_, comment) = draft(Review(comments=[finding]), SHA).comments[0]
    assert (comment["line"], comment["start_line"]) == (5, 3)


def test_the_model_calls_no_team() -> None:
    finding = Finding(path="src/a.py", line=12, body="@org/team look")
    made = draft(Review(body="@org/team", comments=[finding]), SHA, files=[FILE])
    assert "@org" not in made.body
    assert "@org" not in made.comments[0][1]["body"]


@pytest.mark.parametrize(
    ("event", "meant"),
    [("APPROVE", "an approval"), ("REQUEST_CHANGES", "a request for changes")],
)
def test_of_its_own_pull_request_the_agent_only_comments(event: Any, meant: str) -> None:
    review = Review(body="Fine.", event=event)
    made = draft(review, SHA, own=True)
    said = f"_Meant as {meant}; this pull request is the agent's own._\n\nFine."
    assert (made.event, made.body) == ("COMMENT", said)
    refused = draft(review, SHA).lesser('"Can not approve your own pull request"')
    assert refused == made
    assert draft(Review(body="Fine."), SHA, own=True).notes == ()


def test_code_from_a_fork_is_not_approved() -> None:
    made = draft(Review(event="APPROVE", body="Fine."), SHA, fork=True)
    assert (made.event, made.body.partition(".")[2]) == ("COMMENT", "_\n\nFine.")
    refused = Review(event="REQUEST_CHANGES", body="No.")
    assert draft(refused, SHA, fork=True) == draft(refused, SHA)


def test_an_approval_is_of_the_commit_that_was_read() -> None:
    made = draft(Review(event="APPROVE"), SHA)
    assert made.on(SHA) is made
    other = made.on(HEAD)
    assert other.event == "COMMENT"
    assert "111111111111, and the newest commit is 222222222222" in other.body
    refusal = draft(Review(event="REQUEST_CHANGES", body="No."), SHA)
    assert refusal.on(HEAD) is refusal


def test_what_github_refuses_says_the_same_with_less() -> None:
    findings = [Finding(path="src/a.py", line=12, body="Why?")]
    made = draft(Review(body="Look.", event="APPROVE", comments=findings), SHA)
    text = made.lesser("Line could not be resolved")
    assert text is not None
    assert (text.event, text.comments) == ("APPROVE", ())
    assert text.body.startswith("Look.\n\n")
    assert text.body.endswith("**`src/a.py:12`**: Why?")
    comment = text.lesser("Whatever")
    assert comment is not None
    assert comment.event == "COMMENT"
    assert "Meant as an approval" in comment.body
    assert comment.lesser("Whatever") is None
