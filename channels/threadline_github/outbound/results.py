"""What a tool returns to have the channel post it: a review, a check, labels.

The channel acts on the result once it is recorded, in the pull request or issue that the session
belongs to; the model reads it as JSON.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

__all__ = [
    "Annotation",
    "Check",
    "Conclusion",
    "Finding",
    "Labels",
    "Result",
    "Review",
    "result_of",
]

REVIEW_CHARACTERS = 50_000
"""All words of a review, so that it fits its body even if no finding lands on a line."""
CHECK_BYTES = 200_000
OUTPUT_CHARACTERS = 65_535
"""https://docs.github.com/en/rest/checks/runs"""
_PER_FINDING = 40
_CUT = "\n\n… (cut)"

Conclusion: TypeAlias = Literal[
    "success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"
]
Path: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)
]
Line: TypeAlias = Annotated[int, Field(ge=1)]
Words: TypeAlias = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Label: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=50)
]


class Finding(BaseModel):
    """A comment on a line of the change, or on the lines from ``start_line`` to ``line``.

    ``path`` is relative to the repository. Side ``RIGHT`` has the new file's line numbers,
    ``LEFT`` the old one's. A line that is no part of the diff moves to one near it, or into the
    review's own text.
    """

    path: Path
    line: Line
    body: Words
    side: Literal["RIGHT", "LEFT"] = "RIGHT"
    start_line: Line | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start_line is not None and self.start_line > self.line:
            raise ValueError(
                f"start_line ({self.start_line}) comes after line ({self.line}): line is the last."
            )
        return self


class Review(BaseModel):
    """A review of the commit that the turn works on; all in all 50,000 characters at most."""

    type: Literal["github_review"] = "github_review"
    body: str = ""
    event: Literal["COMMENT", "APPROVE", "REQUEST_CHANGES"] = "COMMENT"
    comments: list[Finding] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.event != "APPROVE" and not self.body.strip() and not self.comments:
            raise ValueError("A review that does not approve needs a body or comments.")
        findings = sum(len(one.path) + len(one.body) + _PER_FINDING for one in self.comments)
        if len(self.body) + findings > REVIEW_CHARACTERS:
            raise ValueError(
                f"The review has {len(self.body) + findings:,} characters, and at most "
                f"{REVIEW_CHARACTERS:,} fit: shorten it, or say the rest in the answer."
            )
        return self


class Annotation(BaseModel):
    """A remark of a check on lines of a file, as they are at the commit."""

    path: Path
    start_line: Line
    end_line: Line | None = None
    level: Literal["notice", "warning", "failure"] = "warning"
    message: Words
    title: str | None = Field(default=None, max_length=255)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.end_line is not None and self.end_line < self.start_line:
            raise ValueError(f"end_line ({self.end_line}) comes before start_line.")
        return self


class Check(BaseModel):
    """The outcome of a check run; ``summary`` and ``text`` are Markdown.

    ``name`` is that of the channel's option ``check`` if none is given. GitHub takes 65,535
    characters of summary and text each, so they are cut there.
    """

    type: Literal["github_check"] = "github_check"
    conclusion: Conclusion
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255)]
    summary: Words
    text: str = ""
    annotations: list[Annotation] = Field(default_factory=list, max_length=1_000)
    name: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.summary, self.text = _cut(self.summary), _cut(self.text)
        size = len(self.model_dump_json().encode())
        if size > CHECK_BYTES:
            raise ValueError(
                f"The check has {size:,} bytes as JSON, and at most {CHECK_BYTES:,} fit: "
                "give fewer annotations or a shorter text."
            )
        return self


class Labels(BaseModel):
    """Labels to put on the pull request or issue, and to take off; a new one is created."""

    type: Literal["github_labels"] = "github_labels"
    add: list[Label] = Field(default_factory=list, max_length=100)
    remove: list[Label] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not self.add and not self.remove:
            raise ValueError("Name labels to add or to remove.")
        both = {one.casefold() for one in self.add} & {one.casefold() for one in self.remove}
        if both:
            raise ValueError(f"A label cannot be added and removed: {', '.join(sorted(both))}.")
        return self


Result: TypeAlias = Review | Check | Labels
_MODELS: dict[str, type[Result]] = {
    "github_check": Check,
    "github_labels": Labels,
    "github_review": Review,
}


def result_of(output: object) -> Result | None:
    """Return what a tool's output has the channel do; None when that is nothing."""
    model = _MODELS.get(str(output.get("type"))) if isinstance(output, dict) else None
    if model is None:
        return None
    try:
        return model.model_validate(output)
    except ValidationError:
        return None


def _cut(text: str) -> str:
    if len(text) <= OUTPUT_CHARACTERS:
        return text
    return text[: OUTPUT_CHARACTERS - len(_CUT)] + _CUT
