"""What happens in repositories, by whomever: it is written down, and hooks are told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadline_github.testing import git
from threadline_github.testing.diffs import Files, hunk_at, written
from threadline_github.testing.events import Publisher
from threadline_github.testing.model import (
    Account,
    App,
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
from threadline_github.testing.state import State
from threadline_github.testing.wire import Wire

__all__ = ["Activity"]

_STATES = {
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
    "PENDING": "PENDING",
}


class Activity:
    """Changes what there is. ``app`` is the one through which somebody acts, if it is one."""

    def __init__(self, state: State, publisher: Publisher, wire: Wire) -> None:
        self._state = state
        self._publisher = publisher
        self._wire = wire

    # Comments

    def comment(self, thread: Issue, author: Account, body: str, app: App | None = None) -> Comment:
        """Comment on an issue or pull request."""
        now = self._touch(thread)
        made = Comment(self._state.mint(), thread, author, body, now, now, app)
        thread.comments.append(made)
        self._publisher.comment("created", made, author)
        return made

    def edit_comment(self, comment: Comment, by: Account, body: str) -> Comment:
        """Give a comment another text."""
        before, comment.body = comment.body, body
        comment.history.append(before)
        comment.updated_at = self._touch(comment.thread)
        self._publisher.comment("edited", comment, by, {"body": {"from": before}})
        return comment

    def delete_comment(self, comment: Comment, by: Account) -> None:
        """Delete a comment."""
        comment.deleted = True
        self._touch(comment.thread)
        self._publisher.comment("deleted", comment, by)

    def react(self, found: list[Reaction], account: Account, content: str) -> tuple[Reaction, bool]:
        """Add an emoji; the second value says whether it is new."""
        for one in found:
            if one.account is account and one.content == content:
                return one, False
        made = Reaction(self._state.mint(), account, content, self._state.now())
        found.append(made)
        return made, True

    # Issues and pull requests

    def open_issue(
        self,
        repository: Repository,
        author: Account,
        title: str,
        body: str | None,
        number: int | None = None,
    ) -> Issue:
        """Open an issue."""
        now = self._state.now()
        made = Issue(
            self._state.mint(),
            self._number(repository, number),
            repository,
            author,
            title,
            body,
            now,
            now,
        )
        repository.threads[made.number] = made
        self._publisher.issue("opened", made, author)
        return made

    def open_pull(
        self,
        repository: Repository,
        author: Account,
        title: str,
        body: str | None,
        *,
        files: Files,
        diff: str | None = None,
        branch: str = "change",
        source: Repository | None = None,
        draft: bool = False,
        number: int | None = None,
        head: str | None = None,
        tell: bool = True,
    ) -> Pull:
        """Open a pull request of the changes to these files, or with a diff as it is given."""
        now = self._state.now()
        made = Pull(
            self._state.mint(),
            self._number(repository, number),
            repository,
            author,
            title,
            body,
            now,
            now,
            base=repository.default_branch,
            base_sha=repository.base_sha,
            branch=branch,
            draft=draft,
            source=source or repository,
        )
        repository.threads[made.number] = made
        self._found(made, files)
        self._commit(made, author, files, diff, head, parent=made.base_sha)
        if tell:
            self._publisher.push(made, "0" * 40, author)
            self._publisher.pull("opened", made, author)
        return made

    def push(
        self,
        pull: Pull,
        by: Account,
        *,
        files: Files,
        diff: str | None = None,
        head: str | None = None,
        force: bool = False,
    ) -> str:
        """Put a commit on a pull request's branch; with ``force`` in place of what was there."""
        before = pull.head
        if force:
            pull.files = {}
        parent = pull.base_sha if force else before
        self._commit(pull, by, files, diff, head, parent=parent)
        self._touch(pull)
        self._publisher.push(pull, before, by)
        self._publisher.pull("synchronize", pull, by, before=before, after=pull.head)
        return pull.head

    def close(self, thread: Issue, by: Account, *, merge: bool = False) -> None:
        """Close an issue or a pull request, which may be merged."""
        now = self._touch(thread)
        thread.state, thread.closed_at = "closed", now
        if isinstance(thread, Pull):
            if merge:
                thread.merged, thread.merged_at, thread.merged_by = True, now, by
            self._publisher.pull("closed", thread, by)
        else:
            self._publisher.issue("closed", thread, by)

    def reopen(self, thread: Issue, by: Account) -> None:
        """Open it again."""
        self._touch(thread)
        thread.state, thread.closed_at = "open", None
        if isinstance(thread, Pull):
            self._publisher.pull("reopened", thread, by)
        else:
            self._publisher.issue("reopened", thread, by)

    def draft(self, pull: Pull, by: Account, *, draft: bool) -> None:
        """Make a draft ready for review, or the other way round."""
        self._touch(pull)
        pull.draft = draft
        self._publisher.pull("converted_to_draft" if draft else "ready_for_review", pull, by)

    def edit(
        self, thread: Issue, by: Account, *, title: str | None = None, body: str | None = None
    ) -> None:
        """Give an issue or pull request another title or text."""
        changes: Json = {}
        if title is not None:
            changes["title"], thread.title = {"from": thread.title}, title
        if body is not None:
            changes["body"], thread.body = {"from": thread.body}, body
        self._touch(thread)
        if isinstance(thread, Pull):
            self._publisher.pull("edited", thread, by, changes=changes)
        else:
            self._publisher.issue("edited", thread, by, changes=changes)

    def request_review(self, pull: Pull, by: Account, of: Account) -> None:
        """Ask somebody for a review."""
        self._touch(pull)
        if of not in pull.requested:
            pull.requested.append(of)
        reviewer = self._wire.account(of)
        self._publisher.pull("review_requested", pull, by, requested_reviewer=reviewer)

    def label(self, thread: Issue, by: Account, name: str, *, add: bool = True) -> None:
        """Put a label on, or take it off."""
        if (name in thread.labels) is add:
            return
        if add:
            thread.labels.append(name)
        else:
            thread.labels.remove(name)
        self._touch(thread)
        action = "labeled" if add else "unlabeled"
        label = self._wire.label(thread.repository, name)
        if isinstance(thread, Pull):
            self._publisher.pull(action, thread, by, label=label)
        else:
            self._publisher.issue(action, thread, by, label=label)

    # Reviews

    def review(
        self,
        pull: Pull,
        author: Account,
        body: str,
        event: str,
        comments: Sequence[Json] = (),
        *,
        commit: str | None = None,
        app: App | None = None,
    ) -> Review:
        """Submit a review; its comments are on lines that have been looked up before."""
        now = self._touch(pull)
        made = Review(
            self._state.mint(),
            pull,
            author,
            body,
            _STATES[event],
            commit or pull.head,
            None if event == "PENDING" else now,
            app,
        )
        pull.reviews.append(made)
        if author in pull.requested:
            pull.requested.remove(author)
        if event != "PENDING":
            self._publisher.review("submitted", made, author)
        for one in comments:
            self.review_comment(
                pull,
                author,
                one["body"],
                path=one["path"],
                line=one.get("line"),
                side=one.get("side") or "RIGHT",
                start_line=one.get("start_line"),
                commit=made.commit,
                review=made.id,
                app=app,
                quiet=event == "PENDING",
            )
        return made

    def review_comment(
        self,
        pull: Pull,
        author: Account,
        body: str,
        *,
        path: str,
        line: int | None,
        side: str = "RIGHT",
        start_line: int | None = None,
        commit: str | None = None,
        review: int | None = None,
        reply_to: ReviewComment | None = None,
        app: App | None = None,
        quiet: bool = False,
    ) -> ReviewComment:
        """Comment on a line, or answer such a comment; alone it is a review of its own."""
        now = self._touch(pull)
        at = commit or pull.head
        hunk = hunk_at(pull.diffs[at], path, line, side) if line is not None else None
        if reply_to is not None:
            at, hunk = reply_to.commit, reply_to.hunk
        if review is None:
            own = Review(
                self._state.mint(), pull, author, "", "COMMENTED", at, now, app, implied=True
            )
            pull.reviews.append(own)
            review = own.id
            self._publisher.review("submitted", own, author)
        made = ReviewComment(
            self._state.mint(),
            pull,
            author,
            body,
            path,
            line,
            side,
            at,
            hunk or "",
            now,
            now,
            start_line,
            review,
            None if reply_to is None else reply_to.reply_to or reply_to.id,
            app,
        )
        pull.review_comments.append(made)
        if not quiet:
            self._publisher.review_comment("created", made, author)
        return made

    def edit_review_comment(self, comment: ReviewComment, by: Account, body: str) -> None:
        """Give a review comment another text."""
        before, comment.body = comment.body, body
        comment.history.append(before)
        comment.updated_at = self._touch(comment.pull)
        self._publisher.review_comment("edited", comment, by, {"body": {"from": before}})

    def delete_review_comment(self, comment: ReviewComment, by: Account) -> None:
        """Delete a review comment."""
        comment.deleted = True
        self._touch(comment.pull)
        self._publisher.review_comment("deleted", comment, by)

    def edit_review(self, review: Review, by: Account, body: str) -> None:
        """Give a review another text."""
        before, review.body = review.body, body
        review.history.append(before)
        self._touch(review.pull)
        self._publisher.review("edited", review, by, {"body": {"from": before}})

    # Checks

    def check(
        self, repository: Repository, app: App | None, by: Account, name: str, head_sha: str
    ) -> Check:
        """Make a check run, which nobody is told of before it is filled in."""
        del by
        made = Check(self._state.mint(), repository, app, name, head_sha, self._state.now())
        repository.checks.append(made)
        return made

    def check_changed(self, check: Check, by: Account, *, created: bool, completed: bool) -> None:
        """Tell of a check run that was made, or that has ended."""
        check.updated_at = self._state.now()
        if created:
            self._publisher.check("created", check, by)
        if completed:
            self._publisher.check("completed", check, by)

    def rerun(self, check: Check, by: Account, **more: Any) -> None:
        """Wish for another run, or press a button of a check run: ``requested_action``."""
        action = "requested_action" if more else "rerequested"
        self._publisher.check(action, check, by, **more)

    def rerun_all(self, pull: Pull, app: App, by: Account) -> None:
        """Wish for another run of all of an app's checks on the head."""
        self._publisher.suite("rerequested", pull, app, by)

    def end_workflow(self, pull: Pull, by: Account, name: str, conclusion: str) -> None:
        """Let a workflow end on the head."""
        self._publisher.workflow(pull, name, conclusion, by)

    # Smaller things

    def _touch(self, thread: Issue) -> Any:
        thread.updated_at = self._state.now()
        return thread.updated_at

    def _number(self, repository: Repository, number: int | None) -> int:
        found = number or max(repository.threads, default=0) + 1
        if found in repository.threads:
            raise ValueError(f"There is a {repository.full_name}#{found} already.")
        return found

    def _found(self, pull: Pull, files: Files) -> None:
        """Have the files in the base as they were before, if a real repository lacks them."""
        repository = pull.repository
        before = {path: (None, text) for path, (text, _) in files.items() if text is not None}
        if repository.bare is None or not before:
            return
        sha = git.change(
            repository.bare,
            f"refs/heads/{pull.base}",
            before,
            "Files",
            repository.base_sha,
            int(self._state.now().timestamp()),
        )
        repository.base_sha = repository.branches[pull.base] = pull.base_sha = sha

    def _commit(
        self,
        pull: Pull,
        by: Account,
        files: Files,
        diff: str | None,
        head: str | None,
        *,
        parent: str,
    ) -> None:
        for path, (before, after) in files.items():
            pull.files[path] = (pull.files[path][0] if path in pull.files else before, after)
        repository = pull.repository
        if repository.bare is None or head is not None:
            pull.head = head or self._state.sha()
            pull.diffs[pull.head] = written(pull.files) if diff is None else diff
        else:
            ref, moment = f"refs/pull/{pull.number}/head", int(self._state.now().timestamp())
            bare = repository.bare
            pull.head = git.change(bare, ref, files, pull.title, parent, moment, by)
            pull.diffs[pull.head] = git.diff_of(repository, pull, pull.head)
            if not pull.is_fork:
                git.copy(bare, f"refs/heads/{pull.branch}", pull.head)
        if not pull.is_fork:
            repository.branches[pull.branch] = pull.head
