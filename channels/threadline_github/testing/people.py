"""What people do at GitHub: the side of it that a test plays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from threadline_github.testing.activity import Activity
from threadline_github.testing.diffs import Files
from threadline_github.testing.model import (
    Account,
    Check,
    Comment,
    Issue,
    Json,
    Pull,
    Reaction,
    Repository,
    Review,
    ReviewComment,
)
from threadline_github.testing.seeding import Seeding

__all__ = ["Person"]

_FILES: Files = {"src/upload.py": ("def send():\n    put()\n", "def send():\n    retry(put)\n")}


class Person:
    """Somebody at the keyboard. What they do happens at once; what it sets off goes on its way."""

    def __init__(self, account: Account, github: Seeding, activity: Activity) -> None:
        self.account = account
        self._github = github
        self._activity = activity

    @property
    def id(self) -> int:
        """The id of the account."""
        return self.account.id

    @property
    def login(self) -> str:
        """The account's name."""
        return self.account.login

    # Pull requests and issues

    def open_pull(
        self,
        repository: Repository | str | None = None,
        *,
        title: str = "Add retry to uploader",
        body: str | None = "Adds one retry.",
        files: Files | None = None,
        diff: str | None = None,
        branch: str = "retry",
        fork: bool = False,
        draft: bool = False,
        number: int | None = None,
        head: str | None = None,
        tell: bool = True,
    ) -> Pull:
        """Open a pull request.

        ``files`` are given as (before, after), None where there is none; or else ``diff`` is the
        whole diff. ``fork``: out of a repository of one's own. ``tell=False`` sends no webhook.
        """
        where = self._github.found(repository)
        source = self._github.fork(where, self.account) if fork else where
        changed = files if files is not None else {} if diff is not None else _FILES
        return self._activity.open_pull(
            where,
            self.account,
            title,
            body,
            files=changed,
            diff=diff,
            branch=branch,
            source=source,
            draft=draft,
            number=number,
            head=head,
            tell=tell,
        )

    def open_issue(
        self,
        repository: Repository | str | None = None,
        *,
        title: str = "Uploads fail",
        body: str | None = "They do.",
        number: int | None = None,
    ) -> Issue:
        """Open an issue."""
        where = self._github.found(repository)
        return self._activity.open_issue(where, self.account, title, body, number)

    def push(
        self,
        pull: Pull,
        *,
        files: Files | None = None,
        diff: str | None = None,
        head: str | None = None,
        force: bool = False,
    ) -> str:
        """Push a commit to a pull request; returns its id.

        Without files a line is added to the first file that the pull request changes, or to a new
        one. ``force`` throws away what was there.
        """
        changed = files if files is not None else {} if diff is not None else _more(pull)
        return self._activity.push(
            pull, self.account, files=changed, diff=diff, head=head, force=force
        )

    def close(self, thread: Issue, *, merge: bool = False) -> None:
        """Close an issue or pull request; ``merge`` merges it."""
        self._activity.close(thread, self.account, merge=merge)

    def reopen(self, thread: Issue) -> None:
        """Open it again."""
        self._activity.reopen(thread, self.account)

    def ready(self, pull: Pull) -> None:
        """Mark a draft as ready for review."""
        self._activity.draft(pull, self.account, draft=False)

    def to_draft(self, pull: Pull) -> None:
        """Convert a pull request to a draft."""
        self._activity.draft(pull, self.account, draft=True)

    def edit(self, thread: Issue, *, title: str | None = None, body: str | None = None) -> None:
        """Give an issue or pull request another title or text."""
        self._activity.edit(thread, self.account, title=title, body=body)

    edit_pull = edit

    def delete_fork(self, pull: Pull) -> None:
        """Delete the fork that a pull request came from; ``head.repo`` is null from then on."""
        if not pull.is_fork:
            raise LookupError("This pull request is of no fork.")
        pull.source = None

    def label(self, thread: Issue, name: str) -> None:
        """Put a label on."""
        self._activity.label(thread, self.account, name)

    # Talk

    def comment(self, thread: Issue, text: str) -> Comment:
        """Comment on an issue or pull request."""
        return self._activity.comment(thread, self.account, text)

    def edit_comment(self, comment: Comment | ReviewComment | Review, text: str) -> None:
        """Edit a comment, a review comment or a review."""
        if isinstance(comment, Comment):
            self._activity.edit_comment(comment, self.account, text)
        elif isinstance(comment, ReviewComment):
            self._activity.edit_review_comment(comment, self.account, text)
        else:
            self._activity.edit_review(comment, self.account, text)

    def delete_comment(self, comment: Comment | ReviewComment) -> None:
        """Delete a comment or a review comment."""
        if isinstance(comment, Comment):
            self._activity.delete_comment(comment, self.account)
        else:
            self._activity.delete_review_comment(comment, self.account)

    def react(self, comment: Comment | ReviewComment, content: str = "+1") -> Reaction:
        """Add an emoji."""
        return self._activity.react(comment.reactions, self.account, content)[0]

    # Reviews

    def review(
        self,
        pull: Pull,
        text: str = "",
        *,
        event: Literal["COMMENT", "APPROVE", "REQUEST_CHANGES"] = "COMMENT",
        comments: Sequence[Json] = (),
        commit: str | None = None,
    ) -> Review:
        """Submit a review; comments are ``{"path", "line", "body", "side"?}``."""
        return self._activity.review(pull, self.account, text, event, comments, commit=commit)

    def review_comment(
        self,
        pull: Pull,
        path: str = "src/upload.py",
        line: int | None = 2,
        text: str = "",
        *,
        side: Literal["RIGHT", "LEFT"] = "RIGHT",
        reply_to: ReviewComment | None = None,
    ) -> ReviewComment:
        """Comment on a line of the diff, or answer a comment there: then that says where."""
        if reply_to is not None:
            path, line = reply_to.path, reply_to.line
        return self._activity.review_comment(
            pull, self.account, text, path=path, line=line, side=side, reply_to=reply_to
        )

    def request_review(self, pull: Pull, of: Account | None = None) -> None:
        """Ask somebody for a review: the app's bot, unless said."""
        self._activity.request_review(pull, self.account, of or self._github.app.bot)

    # Checks

    def rerun(self, check: Check) -> None:
        """Press the button that runs a check again."""
        self._activity.rerun(check, self.account)

    def rerun_all(self, pull: Pull) -> None:
        """Press the button that runs all of the app's checks on the head again."""
        self._activity.rerun_all(pull, self._github.app, self.account)

    def press(self, check: Check, identifier: str) -> None:
        """Press a button that a check run has of its own."""
        if identifier not in [one["identifier"] for one in check.actions]:
            raise LookupError(f"The check run has no button {identifier!r}.")
        self._activity.rerun(check, self.account, requested_action={"identifier": identifier})

    def fail_check(self, pull: Pull, name: str = "ci", conclusion: str = "failure") -> Check:
        """Let a check of somebody else end on a pull request's head."""
        check = self._activity.check(pull.repository, None, self.account, name, pull.head)
        check.status, check.conclusion = "completed", conclusion
        check.started_at = check.completed_at = check.updated_at
        self._activity.check_changed(check, self.account, created=False, completed=True)
        return check

    def end_workflow(self, pull: Pull, name: str = "CI", conclusion: str = "failure") -> None:
        """Let a workflow end on a pull request's head."""
        self._activity.end_workflow(pull, self.account, name, conclusion)


def _more(pull: Pull) -> Files:
    path, (before, after) = next(iter(pull.files.items()), ("src/more.py", (None, None)))
    text = after if after is not None else before or ""
    return {path: (after, f"{text}# {len(pull.diffs)}\n")}
