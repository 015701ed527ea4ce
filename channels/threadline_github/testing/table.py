"""What an endpoint is given, what it answers, and how endpoints are told apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlencode

from threadline_github.testing.activity import Activity
from threadline_github.testing.auth import Caller
from threadline_github.testing.events import Publisher
from threadline_github.testing.model import Account, Issue, Json, Pull, Repository
from threadline_github.testing.refusal import Refusal, invalid, not_found
from threadline_github.testing.state import State
from threadline_github.testing.webhooks import Webhooks
from threadline_github.testing.wire import Wire

__all__ = ["LONGEST", "Ask", "Desk", "Endpoint", "Reply", "Who", "decoded", "endpoint", "paged"]

Who: TypeAlias = Literal["app", "token", "repository", "anybody"]
LONGEST = 65_536  # characters of a text
_PAGE, _MOST = 30, 100


@dataclass(frozen=True, slots=True)
class Desk:
    """What endpoints work with."""

    state: State
    wire: Wire
    activity: Activity
    publisher: Publisher
    webhooks: Webhooks


@dataclass(slots=True)
class Reply:
    """An answer; ``text`` of some ``kind`` in place of JSON."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    kind: str = "text/html"


@dataclass(slots=True)
class Ask:
    """One call: ``params`` are of the path, ``body`` is the JSON, ``url`` is where it went."""

    desk: Desk
    caller: Caller
    params: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    accept: str
    url: str
    repository: Repository = field(init=False)

    @property
    def state(self) -> State:
        """What there is."""
        return self.desk.state

    @property
    def wire(self) -> Wire:
        """How it is written."""
        return self.desk.wire

    @property
    def activity(self) -> Activity:
        """How it changes."""
        return self.desk.activity

    @property
    def acting(self) -> Account:
        """Who is seen to act."""
        return self.caller.acting

    def number(self, name: str = "number") -> int:
        """Return a number of the path."""
        return int(self.params[name])

    def thread(self) -> Issue:
        """Return the issue or pull request of the path; raises Refusal."""
        found: Issue = _or_404(lambda: self.state.thread(self.repository, self.number()))
        return found

    def pull(self) -> Pull:
        """Return the pull request of the path; raises Refusal."""
        found: Pull = _or_404(lambda: self.state.pull(self.repository, self.number()))
        return found

    def find(self, found: Callable[[], Any]) -> Any:
        """Return what a look-up finds; raises Refusal."""
        return _or_404(found)

    @property
    def fields(self) -> Json:
        """The body's fields; raises Refusal when it is no object."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            raise Refusal(422, "Invalid request.\n\nThe body is not an object.")
        return self.body

    def text(self, resource: str, name: str = "body", *, blank: bool = False) -> str:
        """Return a text of the body; raises Refusal when it is missing, blank or too long."""
        value = self.fields.get(name)
        if value is None and blank:
            return ""
        if value is None:
            raise Refusal(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
        if not isinstance(value, str):
            raise Refusal(
                422, f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not a string."
            )
        if not value.strip() and not blank:
            raise invalid(resource, name, "missing_field")
        if len(value) > LONGEST:
            message = f"{name.capitalize()} is too long (maximum is {LONGEST} characters)"
            raise invalid(resource, "data", "unprocessable", message)
        return value


Answer: TypeAlias = Callable[[Ask], Reply]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path. ``needs`` are permissions, of which one is enough.

    ``below``: the path is below that of a repository.
    """

    method: str
    path: re.Pattern[str]
    answer: Answer
    who: Who
    needs: tuple[str, ...]
    below: bool


def endpoint(
    words: str, *needs: str, who: Who = "repository", below: bool | None = None
) -> Callable[[Answer], Endpoint]:
    """Declare an endpoint such as ``GET /issues/{number}``; paths are below a repository's.

    With another ``who`` they are below the API's beginning, unless ``below`` says otherwise.
    """
    method, _, path = words.partition(" ")
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path.replace(".", r"\."))
    pattern = re.sub(r"\(\?P<(number|id)>\[\^/\]\+\)", r"(?P<\1>[0-9]+)", pattern)

    def made(answer: Answer) -> Endpoint:
        within = who == "repository" if below is None else below
        return Endpoint(method, re.compile(pattern), answer, who, needs, within)

    return made


def paged(
    ask: Ask, items: Sequence[Any], write: Callable[[Any], Json], key: str | None = None
) -> Reply:
    """Answer with one page of a list, and where the others are; ``key`` when it is in an object.

    https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api
    """
    size = min(max(_whole(ask.query.get("per_page"), _PAGE), 1), _MOST)
    page = max(_whole(ask.query.get("page"), 1), 1)
    last = max(-(-len(items) // size), 1)
    shown = [write(one) for one in items[(page - 1) * size : page * size]]
    links = []
    if page > 1:
        links += [("prev", min(page - 1, last)), ("first", 1)]
    if page < last:
        links += [("next", page + 1), ("last", last)]
    header = ", ".join(f'<{_page(ask, number)}>; rel="{name}"' for name, number in links)
    body: Any = shown if key is None else {"total_count": len(items), key: shown}
    return Reply(body, headers={"Link": header} if header else {})


def _page(ask: Ask, number: int) -> str:
    return f"{ask.url}?{urlencode({**ask.query, 'page': number})}"


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() else otherwise


def _or_404(found: Callable[[], Any]) -> Any:
    try:
        return found()
    except LookupError:
        raise not_found() from None


def decoded(found: re.Match[str]) -> dict[str, str]:
    """Return the parts of a path, with their escapes undone."""
    return {name: unquote(value) for name, value in found.groupdict().items()}
