"""Check runs: begun with a turn, completed with what it reports or how it ends.

Only an App may make them. GitHub itself offers to run one again.
https://docs.github.com/en/rest/checks/runs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from threadline import Context, Post, TryAgain
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.place import Place
from threadline_github.outbound.results import Annotation, Check, Conclusion
from threadline_github.outbound.words import public

__all__ = ["CheckRun", "State", "ended", "reported"]

_A_CALL = 50
_A_PAGE, _PAGES = 100, 10
_TITLE = 255
_OUTPUT = 65_535


@dataclass(frozen=True, slots=True)
class State:
    """What a check run says; without a conclusion it is in progress."""

    title: str = "In progress"
    summary: str = "The agent is at work on this commit."
    conclusion: Conclusion | None = None
    text: str = ""
    annotations: Sequence[Annotation] = ()

    def key(self) -> str:
        """Return a text that is another one for another state."""
        said = [one.model_dump() for one in self.annotations]
        parts = [self.title, self.summary, self.conclusion, self.text, said]
        return orjson.dumps(parts).decode()


_BEGUN = State()


def reported(check: Check) -> State:
    """Return the state that a tool reported."""
    title, summary, text = (
        public(said)[:most]
        for said, most in (
            (check.title, _TITLE),
            (check.summary, _OUTPUT),
            (check.text, _OUTPUT),
        )
    )
    return State(title, summary, check.conclusion, text, tuple(check.annotations))


def ended(title: str, summary: str, conclusion: Conclusion) -> State:
    """Return the state of a check that a turn ends without a report."""
    return State(title, public(summary)[:_OUTPUT], conclusion)


class CheckRun(Place):
    """A check run as a place to post; a reference is its path, ``check-runs/1``.

    ``sha`` is its commit, None for the newest one. The post's text is the state's key.
    """

    def __init__(
        self, hub: Hub, ctx: Context, thread: Thread, name: str, sha: str | None, state: State
    ) -> None:
        super().__init__(hub, ctx, thread)
        self._name = name
        self._sha = sha
        self._state = state

    async def send(self, post: Post) -> str:
        """Make the check run, and bring it to its state."""
        made = await self.call(
            "POST",
            "/check-runs",
            {
                "name": self._name,
                "head_sha": await self._commit(),
                "external_id": self._identity(post),
                "status": "in_progress",
                "output": {"title": _BEGUN.title, "summary": _BEGUN.summary},
            },
        )
        ref = f"check-runs/{made['id']}"
        if self._state.conclusion is not None:
            try:
                await self._complete(ref, self._state.annotations)
            except TryAgain as again:
                # Also where that call had no effect, as at a limit: the check run is there.
                raise TryAgain(str(again), retry_after=again.retry_after) from again
        return ref

    async def find(self, post: Post) -> str | None:
        """Look for the check run, and bring it to its state: it may have been left on the way."""
        sha = await self._commit()
        for page in range(1, _PAGES + 1):
            query = urlencode(
                {"check_name": self._name, "filter": "all", "per_page": _A_PAGE, "page": page}
            )
            answer = await self.call("GET", f"/commits/{sha}/check-runs?{query}")
            runs = answer.get("check_runs") or []
            for run in runs:
                if run.get("external_id") == self._identity(post):
                    ref = f"check-runs/{run['id']}"
                    await self.edit(ref, post)
                    return ref
            if len(runs) < _A_PAGE:
                break
        return None

    async def edit(self, ref: str, post: Post) -> None:
        """Bring the check run to its state; annotations that it has already are not added again."""
        if self._state.conclusion is None:
            await self.call("PATCH", f"/{ref}", {"status": "in_progress"})
            return
        left = list(self._state.annotations)
        if left and await self._has_annotations(ref):
            there = await self.pages(f"/{ref}/annotations?per_page=100")
            known = {_identity(one) for one in there}
            left = [one for one in left if _identity(_annotation(one)) not in known]
        await self._complete(ref, left)

    async def _has_annotations(self, ref: str) -> bool:
        run = await self.call("GET", f"/{ref}")
        return bool((run.get("output") or {}).get("annotations_count"))

    async def _complete(self, ref: str, annotations: Sequence[Annotation]) -> None:
        """Add annotations, 50 a call, and with the last of them the conclusion."""
        state = self._state
        output = {"title": state.title, "summary": state.summary}
        if state.text:
            output["text"] = state.text
        batches = [
            [_annotation(one) for one in annotations[at : at + _A_CALL]]
            for at in range(0, len(annotations), _A_CALL)
        ]
        for batch in batches[:-1]:
            await self.call("PATCH", f"/{ref}", {"output": {**output, "annotations": batch}})
        last = {"annotations": batches[-1]} if batches else {}
        await self.call(
            "PATCH",
            f"/{ref}",
            {"status": "completed", "conclusion": state.conclusion, "output": {**output, **last}},
        )

    def _identity(self, post: Post) -> str:
        """Return what the check run is known by: GitHub names no pull request of a fork."""
        return f"{self.number}:{post.id}"

    async def _commit(self) -> str:
        if self._sha is None:
            pull = await self.call("GET", f"/pulls/{self.number}")
            self._sha = str(pull["head"]["sha"])
        return self._sha


def _annotation(one: Annotation) -> dict[str, Any]:
    """Return an annotation as GitHub takes it."""
    made: dict[str, Any] = {
        "path": one.path,
        "start_line": one.start_line,
        "end_line": one.end_line or one.start_line,
        "annotation_level": one.level,
        "message": one.message,
    }
    return made | ({"title": one.title} if one.title else {})


def _identity(annotation: Mapping[str, Any]) -> tuple[Any, ...]:
    names = "path", "start_line", "end_line", "annotation_level", "message"
    return *(annotation.get(name) for name in names), annotation.get("title") or ""
