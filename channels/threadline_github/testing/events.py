"""Who hears of what: payloads of webhooks, and the hooks that they go to.

https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

from collections.abc import Iterator

from threadline_github.testing.model import (
    Account,
    App,
    Check,
    Comment,
    Hook,
    Installation,
    Issue,
    Json,
    Pull,
    Repository,
    Review,
    ReviewComment,
)
from threadline_github.testing.state import State
from threadline_github.testing.webhooks import Delivery, Webhooks
from threadline_github.testing.wire import Wire

__all__ = ["Publisher"]


class Publisher:
    """Tells apps and repository hooks what happened."""

    def __init__(self, state: State, wire: Wire, webhooks: Webhooks) -> None:
        self._state = state
        self._wire = wire
        self._webhooks = webhooks

    def tell(
        self,
        repository: Repository,
        sender: Account,
        event: str,
        payload: Json,
        *,
        only: App | None = None,
    ) -> list[Delivery]:
        """Send an event of a repository to every hook that is subscribed, or to one app's."""
        return [
            self._webhooks.send(hook, event, self._whole(repository, sender, payload, installed))
            for hook, installed in self._hooks(repository)
            if (hook.events is None or event in hook.events or event == "installation")
            and (only is None or (installed is not None and installed.app is only))
        ]

    def comment(
        self, action: str, comment: Comment, sender: Account, changes: Json | None = None
    ) -> None:
        """Tell of ``issue_comment``."""
        payload: Json = {"action": action}
        if changes is not None:
            payload["changes"] = changes
        payload["issue"] = self._wire.issue(comment.thread)
        payload["comment"] = self._wire.comment(comment)
        self.tell(comment.thread.repository, sender, "issue_comment", payload)

    def issue(self, action: str, issue: Issue, sender: Account, **more: object) -> None:
        """Tell of ``issues``."""
        payload: Json = {"action": action, "issue": self._wire.issue(issue), **more}
        self.tell(issue.repository, sender, "issues", payload)

    def pull(self, action: str, pull: Pull, sender: Account, **more: object) -> None:
        """Tell of ``pull_request``."""
        payload: Json = {
            "action": action,
            "number": pull.number,
            "pull_request": self._wire.pull(pull),
            **more,
        }
        self.tell(pull.repository, sender, "pull_request", payload)

    def push(self, pull: Pull, before: str, sender: Account) -> None:
        """Tell of ``push`` to the branch of a pull request that is in its repository."""
        if pull.is_fork:
            return
        payload: Json = {
            "ref": f"refs/heads/{pull.branch}",
            "before": before,
            "after": pull.head,
            "created": before == "0" * 40,
            "deleted": False,
            "forced": False,
            "base_ref": None,
            "compare": f"{self._wire.html(pull)}/files",
            "commits": [],
            "head_commit": None,
            "pusher": {"name": sender.login, "email": f"{sender.login}@users.noreply.github.com"},
        }
        self.tell(pull.repository, sender, "push", payload)

    def review(
        self, action: str, review: Review, sender: Account, changes: Json | None = None
    ) -> None:
        """Tell of ``pull_request_review``."""
        payload: Json = {"action": action}
        if changes is not None:
            payload["changes"] = changes
        payload["review"] = self._wire.review(review, hook=True)
        payload["pull_request"] = self._wire.pull(review.pull)
        self.tell(review.pull.repository, sender, "pull_request_review", payload)

    def review_comment(
        self, action: str, comment: ReviewComment, sender: Account, changes: Json | None = None
    ) -> None:
        """Tell of ``pull_request_review_comment``."""
        payload: Json = {"action": action}
        if changes is not None:
            payload["changes"] = changes
        payload["comment"] = self._wire.review_comment(comment)
        payload["pull_request"] = self._wire.pull(comment.pull)
        self.tell(comment.pull.repository, sender, "pull_request_review_comment", payload)

    def check(self, action: str, check: Check, sender: Account, **more: object) -> None:
        """Tell of ``check_run``; a wish to run it again is for its own app alone."""
        asked = action in ("rerequested", "requested_action")
        if asked and check.app is None:
            return
        payload: Json = {"action": action, "check_run": self._wire.check(check), **more}
        only = check.app if asked else None
        self.tell(check.repository, sender, "check_run", payload, only=only)

    def suite(self, action: str, pull: Pull, app: App, sender: Account) -> None:
        """Tell an app of ``check_suite``, all of its checks on a pull request's head."""
        payload: Json = {"action": action, "check_suite": self._wire.suite(pull, app)}
        self.tell(pull.repository, sender, "check_suite", payload, only=app)

    def workflow(self, pull: Pull, name: str, conclusion: str, sender: Account) -> None:
        """Tell of ``workflow_run``, that it is completed on a pull request's head."""
        run = self._wire.workflow(pull, name, conclusion, self._state.mint())
        payload: Json = {"action": "completed", "workflow_run": run}
        self.tell(pull.repository, sender, "workflow_run", payload)

    def ping(self, hook: Hook, sender: Account, repository: Repository | None = None) -> Delivery:
        """Send what a new hook gets first."""
        payload: Json = {
            "zen": "Approachable is better than simple.",
            "hook_id": hook.id,
            "hook": {
                "type": "App" if hook.kind == "integration" else "Repository",
                "id": hook.id,
                "name": "web",
                "active": True,
                "events": ["*"] if hook.events is None else sorted(hook.events),
                "config": self._wire.hook_config(hook),
            },
        }
        if repository is not None:
            payload["repository"] = self._wire.repository(repository)
        payload["sender"] = self._wire.account(sender)
        return self._webhooks.send(hook, "ping", payload)

    def installation(
        self, action: str, installation: Installation, sender: Account
    ) -> Delivery | None:
        """Tell an app that it was installed, removed or suspended."""
        hook = installation.app.hook
        if hook.url is None:
            return None
        payload: Json = {
            "action": action,
            "installation": self._wire.installation(installation),
            "sender": self._wire.account(sender),
        }
        return self._webhooks.send(hook, "installation", payload)

    def _hooks(self, repository: Repository) -> Iterator[tuple[Hook, Installation | None]]:
        for app in self._state.apps.values():
            installed = self._state.installed(app, repository)
            if installed is not None and app.hook.active and app.hook.url is not None:
                yield app.hook, installed
        yield from ((one, None) for one in repository.hooks if one.active and one.url is not None)

    def _whole(
        self,
        repository: Repository,
        sender: Account,
        payload: Json,
        installed: Installation | None,
    ) -> Json:
        whole = {**payload, "repository": self._wire.repository(repository)}
        owner = repository.owner
        if owner.type == "Organization":
            whole["organization"] = {
                "login": owner.login,
                "id": owner.id,
                "node_id": f"O_{owner.id}",
                "url": f"{self._state.api}/orgs/{owner.login}",
            }
        whole["sender"] = self._wire.account(sender)
        if installed is not None:
            whole["installation"] = {"id": installed.id, "node_id": f"I_{installed.id}"}
        return whole
