"""A review as it is submitted: what lands on a line of the diff, and what the body says; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from threadline_github.outbound.results import Finding, Review
from threadline_github.outbound.words import public, quoted
from threadline_github.workspace.diff import FileDiff, anchor

__all__ = ["Draft", "draft"]

_OWN = "own pull request"
_ELSEWHERE = "Not on lines that can be commented on:"
_SHA = 12


@dataclass(frozen=True, slots=True)
class Draft:
    """A review on its way: ``comments`` are as GitHub takes them, each with the finding it is."""

    commit: str
    event: Literal["COMMENT", "APPROVE", "REQUEST_CHANGES"]
    said: str
    notes: tuple[str, ...] = ()
    comments: tuple[tuple[Finding, dict[str, Any]], ...] = ()
    elsewhere: tuple[Finding, ...] = ()

    @property
    def body(self) -> str:
        """The text: what is noted of the review itself, what it says, and what has no line."""
        parts = [*(f"_{note}_" for note in self.notes), public(self.said).strip()]
        if self.elsewhere:
            parts += [_ELSEWHERE, *map(_shown, self.elsewhere)]
        return "\n\n".join(part for part in parts if part)

    def payload(self, body: str) -> dict[str, Any]:
        """Return what creates it."""
        payload: dict[str, Any] = {"commit_id": self.commit, "body": body, "event": self.event}
        if self.comments:
            payload["comments"] = [comment for _, comment in self.comments]
        return payload

    def lesser(self, refusal: str) -> Draft | None:
        """Return what to try when GitHub refused it as it is; None when nothing is left."""
        if _OWN in refusal and self.event != "COMMENT":
            return self.commented(_own_note(self.event))
        if self.comments:
            findings = tuple(finding for finding, _ in self.comments)
            return replace(self, comments=(), elsewhere=(*findings, *self.elsewhere))
        if self.event != "COMMENT":
            return self.commented(f"Meant as {_MEANT[self.event]}, which GitHub did not take.")
        return None

    def commented(self, note: str) -> Draft:
        """Return it as a review that only comments."""
        return replace(self, event="COMMENT", notes=(*self.notes, note))

    def on(self, head: str) -> Draft:
        """Return it as it may be when this is the pull request's newest commit."""
        if self.event != "APPROVE" or head == self.commit:
            return self
        return self.commented(
            f"No approval: this is a review of {self.commit[:_SHA]}, and the newest commit is "
            f"{head[:_SHA]}."
        )


_MEANT = {"APPROVE": "an approval", "REQUEST_CHANGES": "a request for changes"}


def draft(
    review: Review,
    commit: str,
    *,
    own: bool = False,
    fork: bool = False,
    files: Sequence[FileDiff] | None = None,
) -> Draft:
    """Return a review with its findings on lines of the diff; without one they stay as they are.

    ``own``: the pull request is the bot's, who can then only comment. ``fork``: its code is from
    elsewhere, and may have talked the model into an approval, so it gets none.
    """
    comments, elsewhere = [], []
    for finding in review.comments:
        comment = _placed(finding, files)
        if comment is None:
            elsewhere.append(finding)
        else:
            comments.append((finding, comment))
    made = Draft(commit, review.event, review.body, (), tuple(comments), tuple(elsewhere))
    if own and review.event != "COMMENT":
        return made.commented(_own_note(review.event))
    if fork and review.event == "APPROVE":
        return made.commented("No approval: the code of this pull request is from a fork.")
    return made


def _own_note(event: str) -> str:
    return f"Meant as {_MEANT[event]}; this pull request is the agent's own."


def _placed(finding: Finding, files: Sequence[FileDiff] | None) -> dict[str, Any] | None:
    """Return a finding as GitHub takes it; None when no line near it can be commented on."""
    line = finding.line
    if files is not None:
        landed = anchor(files, finding.path, line, finding.side)
        if landed is None:
            return None
        line = landed
    meant = "" if line == finding.line else f"_About line {finding.line}:_\n\n"
    comment = {
        "path": finding.path,
        "line": line,
        "side": finding.side,
        "body": meant + public(finding.body),
    }
    start = finding.start_line
    if start is not None and start < line == finding.line and _together(finding, files):
        comment |= {"start_line": start, "start_side": finding.side}
    return comment


def _together(finding: Finding, files: Sequence[FileDiff] | None) -> bool:
    """Tell whether the lines of a finding are all part of the diff."""
    assert finding.start_line is not None
    lines = range(finding.start_line, finding.line + 1)
    if files is None:
        return True
    for file in files:
        if file.path == finding.path or (finding.side == "LEFT" and file.before == finding.path):
            return all(file.takes(line, finding.side) for line in lines)
    return False


def _shown(finding: Finding) -> str:
    side = " (before)" if finding.side == "LEFT" else ""
    first = f"{finding.start_line}-" if finding.start_line not in (None, finding.line) else ""
    where = quoted(f"{finding.path}:{first}{finding.line}")
    return f"**{where}**{side}: {public(finding.body).strip()}"
