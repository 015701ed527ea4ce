"""What a test reads: what stands in repositories, what was called, what hooks were told."""

from __future__ import annotations

from collections.abc import Callable

from threadline.testing.pulse import Pulse
from threadline_github.testing.api import Api, Call
from threadline_github.testing.faults import fits
from threadline_github.testing.model import (
    Check,
    Comment,
    Issue,
    Pull,
    Repository,
    Review,
    ReviewComment,
)
from threadline_github.testing.seeding import Seeding
from threadline_github.testing.webhooks import Delivery

__all__ = ["Reading"]


class Reading(Seeding):
    """Reads the state, and waits for it to become something."""

    api: Api
    pulse: Pulse

    # What stands

    def pull(self, number: int, repository: Repository | str | None = None) -> Pull:
        """Return a pull request; raises LookupError."""
        return self.state.pull(self.found(repository), number)

    def comments(self, thread: Issue) -> list[Comment]:
        """Return the comments on an issue or pull request, the oldest first."""
        return [one for one in thread.comments if not one.deleted]

    def visible(self, thread: Issue) -> list[str]:
        """Return the texts of the comments on an issue or pull request."""
        return [one.body for one in self.comments(thread)]

    def reviews(self, pull: Pull) -> list[Review]:
        """Return the reviews, but not those that only hold a comment made by itself."""
        return [one for one in pull.reviews if not one.implied]

    def review_comments(self, pull: Pull) -> list[ReviewComment]:
        """Return the comments on the diff, the oldest first."""
        return [one for one in pull.review_comments if not one.deleted]

    def checks(self, at: Pull | str, repository: Repository | str | None = None) -> list[Check]:
        """Return the check runs on a commit, or on any commit that a pull request ever had."""
        if isinstance(at, Pull):
            return [one for one in at.repository.checks if one.head_sha in at.diffs]
        return [one for one in self.found(repository).checks if one.head_sha == at]

    def labels(self, thread: Issue) -> list[str]:
        """Return the names of the labels."""
        return list(thread.labels)

    # Calls and deliveries

    def calls(self, method: str | None = None, path: str | None = None) -> list[Call]:
        """Return the calls of a method, and of a path that fits a pattern, as they came."""
        return [call for call in self.api.calls if fits(call, method, path)]

    def deliveries(self, event: str | None = None, action: str | None = None) -> list[Delivery]:
        """Return what was sent to hooks, each attempt on its own, as it was sent."""
        return [
            one
            for one in self.webhooks.all
            if event in (None, one.event) and action in (None, one.action)
        ]

    # Waiting

    async def settled(self, *, patience: float | None = None) -> None:
        """Return when nothing is under way: no call, no webhook without its answer.

        What waits for the clock or for a gate of the test does not count, and what an app does
        after it has answered is not known here: see ``until``.
        """
        await self.pulse.until(
            lambda: not self.pulse.under_way and not self.webhooks.starting,
            lambda: f"GitHub did not settle; under way: {', '.join(self.pulse.under_way)}.",
            patience,
        )

    async def until(
        self, predicate: Callable[[], object], *, patience: float | None = None
    ) -> None:
        """Return when the predicate is true; it is tried whenever anything has happened.

        Raises AssertionError after ``patience`` real seconds, with what there is.
        """
        await self.pulse.until(predicate, self.describe, patience)

    def describe(self) -> str:
        """Return in words what has happened here last, for a test that waits in vain."""
        lines = ["What was waited for did not happen. The last calls:"]
        lines += [
            f"  {one.method} {one.path} by {one.caller} -> {one.status or 'no answer'}"
            for one in self.api.calls[-12:]
        ]
        lines.append("The last deliveries:")
        for one in self.webhooks.all[-8:]:
            lines.append(f"  {one.event} {one.action or ''} -> {one.status} {one.answer[:200]}")
        lines.append(f"Under way: {', '.join(self.pulse.under_way) or 'nothing'}")
        return "\n".join(lines)
