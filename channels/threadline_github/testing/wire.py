"""Things as the API and webhooks write them; no I/O.

https://docs.github.com/en/rest, https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

from threadline_github.testing.diffs import patches
from threadline_github.testing.model import (
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
from threadline_github.testing.places import Places, stamp

__all__ = ["EMOJI", "Wire"]

EMOJI = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")


class Wire(Places):
    """Writes what stands in repositories, too."""

    # Issues and pull requests

    def issue(self, issue: Issue) -> Json:
        """An issue, or a pull request as an issue."""
        api = self.at(issue.repository, f"/issues/{issue.number}")
        made: Json = {
            "url": api,
            "repository_url": self.at(issue.repository),
            "comments_url": f"{api}/comments",
            "html_url": self.html(issue),
            "id": issue.id,
            "node_id": f"I_{issue.id}",
            "number": issue.number,
            **self._thread(issue),
            "comments": len(self._standing(issue)),
            "reactions": self.reactions(issue.reactions, api),
        }
        if isinstance(issue, Pull):
            pull = self.at(issue.repository, f"/pulls/{issue.number}")
            made["draft"] = issue.draft
            made["pull_request"] = {
                "url": pull,
                "html_url": self.html(issue),
                "diff_url": f"{self.html(issue)}.diff",
                "patch_url": f"{self.html(issue)}.patch",
                "merged_at": stamp(issue.merged_at),
            }
        return made

    def pull(self, pull: Pull) -> Json:
        """A pull request."""
        api = self.at(pull.repository, f"/pulls/{pull.number}")
        issue = self.at(pull.repository, f"/issues/{pull.number}")
        changed = patches(pull.diff)
        return {
            "url": api,
            "id": pull.id,
            "node_id": f"PR_{pull.id}",
            "html_url": self.html(pull),
            "diff_url": f"{self.html(pull)}.diff",
            "patch_url": f"{self.html(pull)}.patch",
            "issue_url": issue,
            "comments_url": f"{issue}/comments",
            "review_comments_url": f"{api}/comments",
            "commits_url": f"{api}/commits",
            "number": pull.number,
            **self._thread(pull),
            "merged_at": stamp(pull.merged_at),
            "merge_commit_sha": None,
            "requested_reviewers": [self.account(one) for one in pull.requested],
            "requested_teams": [],
            "draft": pull.draft,
            "head": self._side(pull, head=True),
            "base": self._side(pull, head=False),
            "_links": {
                "self": {"href": api},
                "html": {"href": self.html(pull)},
                "issue": {"href": issue},
                "comments": {"href": f"{issue}/comments"},
                "review_comments": {"href": f"{api}/comments"},
                "commits": {"href": f"{api}/commits"},
            },
            "auto_merge": None,
            "merged": pull.merged,
            "mergeable": None,
            "rebaseable": None,
            "mergeable_state": "unknown",
            "merged_by": None if pull.merged_by is None else self.account(pull.merged_by),
            "comments": len(self._standing(pull)),
            "review_comments": sum(not one.deleted for one in pull.review_comments),
            "maintainer_can_modify": False,
            "commits": len(pull.diffs),
            "additions": sum(one.additions for one in changed),
            "deletions": sum(one.deletions for one in changed),
            "changed_files": len(changed),
        }

    def files(self, pull: Pull, head: str | None = None) -> list[Json]:
        """The files that a pull request changes, or changed at a head that it had."""
        found, at = [], head or pull.head
        for patch in patches(pull.diffs[at]):
            one: Json = {
                "sha": at,
                "filename": patch.path,
                "status": patch.status,
                "additions": patch.additions,
                "deletions": patch.deletions,
                "changes": patch.additions + patch.deletions,
                "contents_url": self.at(pull.repository, f"/contents/{quote(patch.path)}?ref={at}"),
            }
            if patch.hunks:
                one["patch"] = patch.text
            if patch.status == "renamed":
                one["previous_filename"] = patch.previous
            found.append(one)
        return found

    def html(self, issue: Issue) -> str:
        """Return the address that people see."""
        kind = "pull" if isinstance(issue, Pull) else "issues"
        return f"{self._state.url}/{issue.repository.full_name}/{kind}/{issue.number}"

    def _thread(self, issue: Issue) -> Json:
        return {
            "state": issue.state,
            "locked": issue.locked,
            "title": issue.title,
            "user": self.account(issue.author),
            "body": issue.body,
            "labels": [self.label(issue.repository, name) for name in issue.labels],
            "assignee": None,
            "assignees": [],
            "milestone": None,
            "created_at": stamp(issue.created_at),
            "updated_at": stamp(issue.updated_at),
            "closed_at": stamp(issue.closed_at),
            "author_association": self._association(issue.repository, issue.author),
            "active_lock_reason": None,
        }

    def _side(self, pull: Pull, *, head: bool) -> Json:
        repository = pull.source if head else pull.repository
        ref, sha = (pull.branch, pull.head) if head else (pull.base, pull.base_sha)
        if repository is None:
            return {"label": f"unknown:{ref}", "ref": ref, "sha": sha, "user": None, "repo": None}
        return {
            "label": f"{repository.owner.login}:{ref}",
            "ref": ref,
            "sha": sha,
            "user": self.account(repository.owner),
            "repo": self.repository(repository),
        }

    # What people say

    def comment(self, comment: Comment) -> Json:
        """A comment on an issue or pull request."""
        repository = comment.thread.repository
        api = self.at(repository, f"/issues/comments/{comment.id}")
        return {
            "url": api,
            "html_url": f"{self.html(comment.thread)}#issuecomment-{comment.id}",
            "issue_url": self.at(repository, f"/issues/{comment.thread.number}"),
            "id": comment.id,
            "node_id": f"IC_{comment.id}",
            "user": self.account(comment.author),
            "created_at": stamp(comment.created_at),
            "updated_at": stamp(comment.updated_at),
            "author_association": self._association(repository, comment.author),
            "body": comment.body,
            "reactions": self.reactions(comment.reactions, api),
            "performed_via_github_app": self.app(comment.app),
        }

    def review_comment(self, comment: ReviewComment) -> Json:
        """A comment on the diff; ``line`` is null once the head has another one there."""
        pull = comment.pull
        api = self.at(pull.repository, f"/pulls/comments/{comment.id}")
        outdated = comment.commit != pull.head
        made: Json = {
            "url": api,
            "pull_request_review_id": comment.review,
            "id": comment.id,
            "node_id": f"PRRC_{comment.id}",
            "diff_hunk": comment.hunk,
            "path": comment.path,
            "commit_id": pull.head,
            "original_commit_id": comment.commit,
            "user": self.account(comment.author),
            "body": comment.body,
            "created_at": stamp(comment.created_at),
            "updated_at": stamp(comment.updated_at),
            "html_url": f"{self.html(pull)}#discussion_r{comment.id}",
            "pull_request_url": self.at(pull.repository, f"/pulls/{pull.number}"),
            "author_association": self._association(pull.repository, comment.author),
            "reactions": self.reactions(comment.reactions, api),
            "start_line": None if outdated else comment.start_line,
            "original_start_line": comment.start_line,
            "start_side": comment.side if comment.start_line is not None else None,
            "line": None if outdated else comment.line,
            "original_line": comment.line,
            "side": comment.side,
            "subject_type": "file" if comment.line is None else "line",
            "performed_via_github_app": self.app(comment.app),
        }
        if comment.reply_to is not None:
            made["in_reply_to_id"] = comment.reply_to
        return made

    def review(self, review: Review, *, hook: bool = False) -> Json:
        """A review; webhooks write its state in lower case."""
        pull = review.pull
        made: Json = {
            "id": review.id,
            "node_id": f"PRR_{review.id}",
            "user": self.account(review.author),
            "body": review.body,
            "state": review.state.lower() if hook else review.state,
            "html_url": f"{self.html(pull)}#pullrequestreview-{review.id}",
            "pull_request_url": self.at(pull.repository, f"/pulls/{pull.number}"),
            "author_association": self._association(pull.repository, review.author),
            "commit_id": review.commit,
        }
        if review.submitted_at is not None:
            made["submitted_at"] = stamp(review.submitted_at)
        return made

    def reaction(self, reaction: Reaction) -> Json:
        """An emoji by somebody."""
        return {
            "id": reaction.id,
            "node_id": f"REA_{reaction.id}",
            "user": self.account(reaction.account),
            "content": reaction.content,
            "created_at": stamp(reaction.created_at),
        }

    def reactions(self, found: list[Reaction], api: str) -> Json:
        """How many emoji there are."""
        counted = Counter(one.content for one in found)
        return {
            "url": f"{api}/reactions",
            "total_count": len(found),
            **{content: counted[content] for content in EMOJI},
        }

    def label(self, repository: Repository, name: str) -> Json:
        """A label."""
        return {
            "id": 1_000 + sum(name.encode()),
            "node_id": f"LA_{name}",
            "url": self.at(repository, f"/labels/{quote(name)}"),
            "name": name,
            "color": "ededed",
            "default": False,
            "description": None,
        }

    # Checks

    def check(self, check: Check) -> Json:
        """A check run."""
        repository = check.repository
        api = self.at(repository, f"/check-runs/{check.id}")
        pulls = [self._small(one) for one in self._pulls_at(repository, check.head_sha)]
        branch = next((one["head"]["ref"] for one in pulls), None)
        return {
            "id": check.id,
            "name": check.name,
            "node_id": f"CR_{check.id}",
            "head_sha": check.head_sha,
            "external_id": check.external_id,
            "url": api,
            "html_url": f"{self._state.url}/{repository.full_name}/runs/{check.id}",
            "details_url": check.details_url,
            "status": check.status,
            "conclusion": check.conclusion,
            "started_at": stamp(check.started_at),
            "completed_at": stamp(check.completed_at),
            "output": {
                "title": check.title,
                "summary": check.summary,
                "text": check.text,
                "annotations_count": len(check.annotations),
                "annotations_url": f"{api}/annotations",
            },
            "check_suite": {
                "id": check.id + 1_000_000,
                "head_branch": branch,
                "head_sha": check.head_sha,
                "status": check.status,
                "conclusion": check.conclusion,
                "pull_requests": pulls,
                "app": self._runner(check),
            },
            "app": self._runner(check),
            "pull_requests": pulls,
        }

    def suite(self, pull: Pull, app: App) -> Json:
        """All check runs of an app on a pull request's head."""
        small = self._pulls_at(pull.repository, pull.head)
        return {
            "id": pull.id + 2_000_000,
            "node_id": f"CS_{pull.id}",
            "head_branch": pull.branch,
            "head_sha": pull.head,
            "status": "completed",
            "conclusion": "neutral",
            "url": self.at(pull.repository, f"/check-suites/{pull.id + 2_000_000}"),
            "before": pull.base_sha,
            "after": pull.head,
            "pull_requests": [self._small(one) for one in small],
            "app": self.app(app),
            "created_at": stamp(pull.created_at),
            "updated_at": stamp(self._state.now()),
        }

    def workflow(self, pull: Pull, name: str, conclusion: str, identity: int) -> Json:
        """A run of a workflow on a pull request's head."""
        small = self._pulls_at(pull.repository, pull.head)
        return {
            "id": identity,
            "name": name,
            "node_id": f"WFR_{identity}",
            "head_branch": pull.branch,
            "head_sha": pull.head,
            "path": ".github/workflows/ci.yml",
            "run_number": 1,
            "run_attempt": 1,
            "event": "pull_request",
            "status": "completed",
            "conclusion": conclusion,
            "workflow_id": 1,
            "url": self.at(pull.repository, f"/actions/runs/{identity}"),
            "html_url": f"{self._state.url}/{pull.repository.full_name}/actions/runs/{identity}",
            "pull_requests": [self._small(one) for one in small],
            "created_at": stamp(pull.created_at),
            "updated_at": stamp(self._state.now()),
            "actor": self.account(pull.author),
            "head_repository": None if pull.source is None else self.repository(pull.source),
        }

    def _runner(self, check: Check) -> Json:
        mine = self.app(check.app)
        if mine is not None:
            return mine
        return {
            "id": 15368,
            "slug": "github-actions",
            "name": "GitHub Actions",
            "node_id": "A_15368",
            "owner": {"login": "github", "id": 9919, "type": "Organization"},
        }

    def _pulls_at(self, repository: Repository, sha: str) -> list[Pull]:
        """Return what a check is listed with: forks' pull requests are left out, as GitHub does."""
        return [
            one
            for one in self._state.pulls(repository)
            if one.head == sha and one.state == "open" and not one.is_fork
        ]

    def _small(self, pull: Pull) -> Json:
        repository = {
            "id": pull.repository.id,
            "url": self.at(pull.repository),
            "name": pull.repository.name,
        }
        return {
            "url": self.at(pull.repository, f"/pulls/{pull.number}"),
            "id": pull.id,
            "number": pull.number,
            "head": {"ref": pull.branch, "sha": pull.head, "repo": repository},
            "base": {"ref": pull.base, "sha": pull.base_sha, "repo": repository},
        }

    # Smaller things

    def _standing(self, issue: Issue) -> list[Comment]:
        return [one for one in issue.comments if not one.deleted]
