"""What tools return: what is valid, what is said of what is not, and what is recognised."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from threadline_github.outbound.results import (
    CHECK_BYTES,
    OUTPUT_CHARACTERS,
    REVIEW_CHARACTERS,
    Annotation,
    Check,
    Finding,
    Labels,
    Review,
    result_of,
)

FINDING = {"path": "src/a.py", "line": 3, "body": "Why?"}
CHECK = {"conclusion": "success", "title": "All good", "summary": "Nothing found."}


@pytest.mark.parametrize(
    ("model", "given", "sentence"),
    [
        (Finding, FINDING | {"line": 0}, "greater than or equal to 1"),
        (Finding, FINDING | {"path": " "}, "at least 1 character"),
        (Finding, FINDING | {"body": " \n"}, "pattern"),
        (Finding, FINDING | {"side": "UP"}, "'RIGHT' or 'LEFT'"),
        (Finding, FINDING | {"start_line": 4}, r"start_line \(4\) comes after line \(3\)"),
        (Review, {}, "needs a body or comments"),
        (Review, {"body": " ", "event": "REQUEST_CHANGES"}, "needs a body or comments"),
        (Review, {"body": "x", "event": "REJECT"}, "'APPROVE'"),
        (Review, {"body": "x" * (REVIEW_CHARACTERS + 1)}, "50,001 characters, and at most 50,000"),
        (Review, {"comments": [FINDING] * 101}, "at most 100"),
        (Review, {"comments": [FINDING | {"body": "x" * 1_000}] * 50}, "at most 50,000 fit"),
        (Annotation, {"path": "a", "start_line": 2, "end_line": 1, "message": "m"}, "comes before"),
        (Check, CHECK | {"title": " "}, "at least 1 character"),
        (Check, CHECK | {"summary": ""}, "at least 1 character"),
        (Check, CHECK | {"conclusion": "stale"}, "'success'"),
        (Labels, {}, "Name labels to add or to remove"),
        (Labels, {"add": ["Bug"], "remove": ["bug"]}, "added and removed: bug"),
        (Labels, {"add": ["x" * 51]}, "at most 50 characters"),
        (Labels, {"add": [""]}, "at least 1 character"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    model: Any, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        model.model_validate(given)


def test_an_approval_needs_no_words() -> None:
    assert Review(event="APPROVE").body == ""


def test_a_long_summary_is_cut() -> None:
    check = Check.model_validate(CHECK | {"summary": "x" * 70_000, "text": "y" * 70_000})
    assert len(check.summary) == len(check.text) == OUTPUT_CHARACTERS
    assert check.summary.endswith("x\n\n… (cut)")


def test_a_check_has_a_size_that_the_log_keeps_whole() -> None:
    annotation = {"path": "a", "start_line": 1, "message": "\u6f22" * 100}
    with pytest.raises(ValidationError, match=f"at most {CHECK_BYTES:,} fit"):
        Check.model_validate(CHECK | {"annotations": [annotation] * 600})
    many = Check.model_validate(CHECK | {"annotations": [annotation] * 300})
    assert len(many.annotations) == 300


@pytest.mark.parametrize(
    "result",
    [
        Review(body="Fine.", comments=[Finding(path="a", line=1, body="b", start_line=1)]),
        Check.model_validate(CHECK),
        Labels(add=["bug"], remove=["triage"]),
    ],
)
def test_a_result_is_known_by_its_json(result: Review | Check | Labels) -> None:
    assert result_of(result.model_dump(mode="json")) == result


@pytest.mark.parametrize(
    "output", [None, "github_review", [], {}, {"type": "slack_message"}, {"type": "github_labels"}]
)
def test_anything_else_is_none(output: object) -> None:
    assert result_of(output) is None
