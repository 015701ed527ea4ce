"""What a route answers, read from its handler's return annotation.

===============================  ==========================================================
annotation                       answer
===============================  ==========================================================
``Accepted``                     202 with the delivery
``Delivery``                     200 with the delivery
``EventStream``                  200 with a session's lines, as NDJSON or server-sent events
``None``                         200 ``{"ok": true}``
a model, ``TypedDict``, dict …   200 with that JSON
``A | B``                        either
``Annotated[…, Media("…")]``     200 in that content type
``Reply``, ``Any``, nothing      whatever the handler says
===============================  ==========================================================
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Never, NoReturn, NotRequired

from pydantic import GetCoreSchemaHandler, WithJsonSchema, create_model
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from threadline.channel.context import Accepted, Delivery, EventStream, Reply
from threadline.events import EVENT_TYPES, Event, EventData
from threadline.session.admission import Admitted

__all__ = [
    "ANYTHING",
    "JSON",
    "NDJSON",
    "AcceptedAnswer",
    "Content",
    "DeliveryAnswer",
    "ErrorAnswer",
    "LoggedEvent",
    "Media",
    "Ok",
    "Status",
    "read_answers",
]

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
ANYTHING = "*/*"

Status = int | Literal["default"]


class Ok(TypedDict):
    """It was done."""

    ok: Literal[True]


class ErrorAnswer(TypedDict):
    """What went wrong: a stable code, and a sentence that says what to do."""

    ok: Literal[False]
    error: str
    message: str


class DeliveryAnswer(Ok):
    """The message is durable; ``continuationToken`` continues the conversation."""

    sessionId: str
    continuationToken: str
    deliveryId: str
    admitted: Admitted


class AcceptedAnswer(Ok):
    """The request was accepted; what it started goes on."""

    sessionId: NotRequired[str]
    continuationToken: NotRequired[str]
    deliveryId: NotRequired[str]
    admitted: NotRequired[Admitted]


class LoggedEvent:
    """A line of a session's log, as a type of an answer: any :class:`~threadline.events.Event`."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the union of all events, made only when a document is."""
        others = WithJsonSchema({"type": "string", "not": {"enum": list(EVENT_TYPES)}})
        union: Any = create_model(
            "UnknownEvent",
            __base__=Event[EventData],
            __doc__="An event of a newer version; readers skip it.",
            type=(Annotated[str, others], ...),
        )
        for type_, data in EVENT_TYPES.items():
            kind: Any = Literal[type_]
            base: Any = Event[data]  # type: ignore[valid-type]
            name = f"{data.__name__}Event"
            made = create_model(name, __base__=base, __doc__=data.__doc__, type=(kind, ...))
            union = union | made
        return handler.generate_schema(union)


@dataclass(frozen=True, slots=True)
class Media:
    """Names an answer's content type: ``-> Annotated[Reply, Media("image/png")]``."""

    type: str


@dataclass(frozen=True, slots=True)
class Content:
    """One body that an answer may have; ``type`` is an annotation, Any for one that nobody knows.

    ``lines`` says that it is a session's log.
    """

    media: str
    type: Any = Any
    lines: bool = False


_LINES = (Content(NDJSON, str, lines=True), Content(SSE, str, lines=True))


def read_answers(
    returns: Any, declared: Mapping[int, Any] | None = None
) -> dict[Status, list[Content]]:
    """Return each status with the bodies it may have; none is an answer without a body.

    ``declared`` has an annotation, or None for no body, for statuses beside what ``returns`` says;
    one below 300 in it replaces what ``returns`` says. ``"default"`` is any other status.
    """
    declared = declared or {}
    said = [] if any(status < 300 for status in declared) else list(_of(returns))
    known = [answer for answer in said if answer[1].media != ANYTHING]
    found: dict[Status, list[Content]] = {}
    # Beside what else is said, a Reply is one of those that are declared.
    for status, content in known if known and declared else said:
        found.setdefault(status, []).append(content)
    for status, annotation in declared.items():
        contents = found.setdefault(status, [])
        if annotation is not None:
            contents += [content for _, content in _of(annotation)]
    return found


def _of(annotation: Any) -> Iterator[tuple[Status, Content]]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _annotated(annotation)
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from _of(part)
    elif annotation in (Never, NoReturn):
        return
    elif annotation in (None, type(None)):
        yield 200, Content(JSON, Ok)
    elif annotation is Accepted:
        yield 202, Content(JSON, AcceptedAnswer)
    elif annotation is Delivery:
        yield 200, Content(JSON, DeliveryAnswer)
    elif annotation is EventStream:
        yield from ((200, content) for content in _LINES)
    elif _is_open(annotation):
        yield 200, Content(ANYTHING)
        yield "default", Content(ANYTHING)
    else:
        yield 200, Content(JSON, annotation)


def _annotated(annotation: Any) -> Iterator[tuple[Status, Content]]:
    inner, *notes = typing.get_args(annotation)
    media = next((note.type for note in notes if isinstance(note, Media)), None)
    if media is None:
        # Other notes, such as pydantic's constraints, belong to the type.
        yield from _of(inner) if _is_special(inner) else [(200, Content(JSON, annotation))]
    elif inner is EventStream:
        yield 200, Content(media, str, lines=True)
    else:
        yield 200, Content(media, Any if _is_open(inner) else inner)


def _is_special(annotation: Any) -> bool:
    return annotation in (Accepted, Delivery, EventStream) or _is_open(annotation)


def _is_open(annotation: Any) -> bool:
    """Tell whether only the handler knows the answer: a Reply, a response of the server, Any."""
    if annotation in (Any, object, Reply):
        return True
    # Looked up by name, so that a channel can be declared without the server's package.
    bases = annotation.__mro__ if isinstance(annotation, type) else ()
    return any(f"{b.__module__}.{b.__name__}".endswith("StreamResponse") for b in bases)
