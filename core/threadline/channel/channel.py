"""What a channel declares: tokens, routes, auth, event handlers, admission and owner."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, TypeAdapter

from threadline import events as ev
from threadline.channel.answers import Content, Status, read_answers
from threadline.channel.auth import Policy, local_dev_strict
from threadline.channel.context import Context, EventContext, Session
from threadline.channel.tokens import TokenFormat, any_string
from threadline.errors import ThreadlineError
from threadline.events import EVENT_TYPES, Event
from threadline.harness.base import ToolInfo
from threadline.principal import Principal
from threadline.session.access import Action, may
from threadline.session.prepare import PREPARE_SECONDS, Prepared
from threadline.store.base import Admission, DeliveryRecord, SessionRecord

__all__ = ["Channel", "ChannelEventHandlers", "Handler", "Method", "Route"]

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
SharedChain = Literal["session", "host"]
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
Handler = Callable[[Event[Any], EventContext], Awaitable[None]]
Prepare = Callable[[Context, DeliveryRecord], Awaitable[Prepared | None]]
RefuseTool = Callable[[Context, Session, ToolInfo], Awaitable[str | None]]

_E = Callable[[Event[ev.D], EventContext], Awaitable[None]]

ChannelEventHandlers = TypedDict(
    "ChannelEventHandlers",
    {
        "ab.assigned": "_E[ev.AbAssigned]",
        "action.approval_requested": "_E[ev.ApprovalRequested]",
        "action.approval_resolved": "_E[ev.ApprovalResolved]",
        "action.result": "_E[ev.ActionResult]",
        "action.tool_retry": "_E[ev.ToolRetry]",
        "actions.completed": "_E[ev.ActionsCompleted]",
        "actions.requested": "_E[ev.ActionsRequested]",
        "agent.bound": "_E[ev.AgentBound]",
        "artifact.tagged": "_E[ev.ArtifactTagged]",
        "deliveries.cleared": "_E[ev.DeliveriesCleared]",
        "feedback.given": "_E[ev.FeedbackGiven]",
        "log.recovered": "_E[ev.LogRecovered]",
        "message.appended": "_E[ev.MessageAppended]",
        "message.completed": "_E[ev.MessageCompleted]",
        "message.received": "_E[ev.MessageReceived]",
        "nudge.delivered": "_E[ev.NudgeDelivered]",
        "reasoning.appended": "_E[ev.ReasoningAppended]",
        "reasoning.completed": "_E[ev.ReasoningCompleted]",
        "session.completed": "_E[ev.SessionCompleted]",
        "session.failed": "_E[ev.SessionFailed]",
        "session.started": "_E[ev.SessionStarted]",
        "session.waiting": "_E[ev.SessionWaiting]",
        "step.completed": "_E[ev.StepCompleted]",
        "step.started": "_E[ev.StepStarted]",
        "subagent.called": "_E[ev.SubagentCalled]",
        "subagent.completed": "_E[ev.SubagentCompleted]",
        "turn.completed": "_E[ev.TurnCompleted]",
        "turn.failed": "_E[ev.TurnFailed]",
        "turn.queued": "_E[ev.TurnQueued]",
        "turn.started": "_E[ev.TurnStarted]",
    },
    total=False,
)
"""One handler an event type; a type checker knows each event's data."""


@dataclass(frozen=True, eq=False)
class Route:
    """One HTTP route of a channel, relative to its mount.

    ``path`` has parameters as ``/items/{id}``. The handler takes the context, and by name ``body``
    (validated from JSON) and ``query`` (a pydantic model).

    ``max_body`` is in bytes, where a request may be larger than the host allows the others.

    The rest is for the OpenAPI document, and may be left out. What the handler's annotation says
    that it returns is what the route answers, see :mod:`threadline.channel.answers`; ``responses``
    adds statuses, each with a type or None for no body. ``raises`` are the errors of its own, None
    for any; ``headers`` are the request headers that it reads, each with a sentence.
    """

    method: Method
    path: str
    handler: Callable[..., Awaitable[Any]]
    description: str = ""
    responses: Mapping[int, Any] = field(default_factory=dict)
    raises: Collection[type[ThreadlineError]] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    max_body: int | None = None

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.handler, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"{self.method} {self.path}: {error}. Import what a handler's annotations name "
                "at the top of the file, outside TYPE_CHECKING."
            ) from error

    @functools.cached_property
    def parameters(self) -> frozenset[str]:
        """The names that the handler takes beside its context."""
        names = list(inspect.signature(self.handler).parameters)[1:]
        unknown = set(names) - {"body", "query"}
        if unknown:
            raise TypeError(
                f"{self.method} {self.path}: the handler takes {', '.join(sorted(unknown))}; after "
                "its context it may take body and query. Path parameters are in ctx.params."
            )
        return frozenset(names)

    @functools.cached_property
    def body(self) -> TypeAdapter[Any] | None:
        """How the JSON body is validated; None when the handler takes no body."""
        return TypeAdapter(self._hints.get("body", Any)) if "body" in self.parameters else None

    @functools.cached_property
    def body_optional(self) -> bool:
        """True when an empty body is fine, because the parameter has a default."""
        parameter = inspect.signature(self.handler).parameters.get("body")
        return parameter is not None and parameter.default is not inspect.Parameter.empty

    @functools.cached_property
    def query(self) -> type[BaseModel] | None:
        """The model of the query; None when the handler takes none."""
        if "query" not in self.parameters:
            return None
        model = self._hints.get("query")
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"{self.method} {self.path}: query must be a pydantic model.")
        return model

    @functools.cached_property
    def answers(self) -> Mapping[Status, Sequence[Content]]:
        """The statuses that the handler answers with, and the bodies that each may have."""
        return read_answers(self._hints.get("return", Any), self.responses)

    def check(self) -> None:
        """Raise TypeError when the handler's signature cannot be served."""
        if not inspect.iscoroutinefunction(self.handler):
            raise TypeError(f"{self.method} {self.path}: the handler must be 'async def'.")
        if not inspect.signature(self.handler).parameters:
            raise TypeError(f"{self.method} {self.path}: the handler must take a context.")
        _ = self.body, self.query


class RouteOptions(TypedDict, total=False):
    """What a route may be declared with, see :class:`Route`; ``description`` is its docstring."""

    description: str
    responses: Mapping[int, Any]
    raises: Collection[type[ThreadlineError]] | None
    headers: Mapping[str, str]
    max_body: int | None


class Channel:
    """One surface on which conversations happen.

    ``auth``: the chain of policies; None is ``[local_dev_strict()]``, ``[]`` admits nobody.
    ``"session"`` is the agent's HTTP chain, ``"host"`` the command line's: its bearer token, its
    anonymous access, else callers on this machine. ``admission``: what a ``send`` without one does
    to a busy session. ``owner``: ``"caller"``, or ``"channel"`` when many speak in one
    conversation. ``tokens``: their format. ``mount``: the path prefix, by default
    ``/v1/channels/<id>``. ``prepare``: fetches what belongs to a message. ``id`` is set when the
    channel is mounted.
    """

    def __init__(
        self,
        *,
        auth: Sequence[Policy] | SharedChain | None = None,
        events: ChannelEventHandlers | None = None,
        routes: Sequence[Route] = (),
        admission: Admission = "preempt",
        owner: Literal["caller", "channel"] = "caller",
        tokens: TokenFormat | None = None,
        mount: str | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        if admission not in ("preempt", "coalesce"):
            raise ValueError(f"admission must be 'preempt' or 'coalesce', not {admission!r}.")
        if owner not in ("caller", "channel"):
            raise ValueError(f"owner must be 'caller' or 'channel', not {owner!r}.")
        self.id = ""
        if prepare is not None:
            self.prepare = prepare
        if isinstance(auth, str) and auth not in typing.get_args(SharedChain):
            raise ValueError(f"auth must be a list of policies, 'session' or 'host', not {auth!r}.")
        self.shares: SharedChain | None = auth if isinstance(auth, str) else None
        own = None if isinstance(auth, str) else auth
        self.auth: Sequence[Policy] = [local_dev_strict()] if own is None else list(own)
        self.admission: Admission = admission
        self.owner: Literal["caller", "channel"] = owner
        self.tokens = tokens or any_string()
        self.mount = _checked_mount(mount)
        self.routes: list[Route] = []
        self.events: dict[str, list[Handler]] = {}
        for route in routes:
            self._add(route)
        for type_, handler in (events or {}).items():
            self.on(type_)(typing.cast("Handler", handler))

    prepare: Prepare | None = None
    """Fetches what belongs to an accepted message before the model sees it; may be a method.

    It gets the context and the message's record, runs after the message is durable and has
    ``prepare_seconds``; what it returns is recorded with the prompt. For a message that was sent
    with ``steer=False`` it runs when the message's turn is about to begin.
    """

    prepare_seconds: float = PREPARE_SECONDS
    """How long ``prepare`` may take: the message's turn waits for it, a stop does not."""

    refuse_tool: RefuseTool | None = None
    """Says why the model may not use a tool in a session, None when it may; may be a method.

    It gets the context, the session and what is known of the tool, and is asked at each call before
    it runs or waits for an approval, and again after one. The model reads the sentence as the
    call's error, whose code is ``tool_not_allowed``. When it raises, the tool is refused.
    """

    @property
    def prefix(self) -> str:
        """The path under which the routes are mounted."""
        return f"/v1/channels/{self.id}" if self.mount is None else self.mount.rstrip("/")

    def route(self, method: Method, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declare a route; use ``get``, ``post`` and their kin."""

        def declare(handler: F) -> F:
            given: RouteOptions = {"description": inspect.getdoc(handler) or "", **options}
            self._add(Route(method, path, handler, **given))
            return handler

        return declare

    def get(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declare a GET route."""
        return self.route("GET", path, **options)

    def post(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declare a POST route."""
        return self.route("POST", path, **options)

    def put(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declare a PUT route."""
        return self.route("PUT", path, **options)

    def patch(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declare a PATCH route."""
        return self.route("PATCH", path, **options)

    def delete(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declare a DELETE route."""
        return self.route("DELETE", path, **options)

    def on(self, type_: str) -> Callable[[F], F]:
        """Declare a handler of one event type; it runs after the event is recorded, in order."""
        if type_ not in EVENT_TYPES:
            raise ValueError(
                f"There is no event {type_!r}. Events are: {', '.join(sorted(EVENT_TYPES))}."
            )

        def declare(handler: F) -> F:
            self.events.setdefault(type_, []).append(_two_arguments(handler))
            return handler

        return declare

    def may(self, principal: Principal, session: SessionRecord, action: Action) -> bool:
        """Tell whether a principal that this channel admitted may do this; override to widen."""
        return may(principal, session, action, via=self.id)

    async def on_start(self, ctx: Context) -> None:
        """Run when the host starts, before the first request."""

    async def on_stop(self, ctx: Context) -> None:
        """Run when the host stops, after the last turn."""

    def _add(self, route: Route) -> None:
        path = re.sub(r":([A-Za-z_]\w*)", r"{\1}", route.path)
        if not path.startswith("/"):
            raise ValueError(f"A route's path begins with '/', not {route.path!r}.")
        if any((r.method, r.path) == (route.method, path) for r in self.routes):
            raise ValueError(f"{route.method} {path} is declared twice.")
        self.routes.append(replace(route, path=path))


def _checked_mount(mount: str | None) -> str | None:
    if mount is not None and re.fullmatch(r"(/[A-Za-z0-9._~-]+)+|/", mount) is None:
        raise ValueError(f"mount must be a path such as '/v1/tickets', not {mount!r}.")
    return mount


def _two_arguments(handler: Callable[..., Awaitable[Any]]) -> Handler:
    """Let a handler leave out the context.

    Raises TypeError when the handler is an ordinary function.
    """
    if inspect.isfunction(handler) and not inspect.iscoroutinefunction(handler):
        raise TypeError(f"The event handler {handler.__name__} must be 'async def'.")
    if len(inspect.signature(handler).parameters) >= 2:
        return handler

    async def call(event: Event[Any], _: EventContext) -> None:
        await handler(event)

    return call


def check_channel(channel: Channel) -> Mapping[str, str]:
    """Return what is wrong with a channel's routes, by ``METHOD path``."""
    problems = {}
    for route in channel.routes:
        try:
            route.check()
        except TypeError as error:
            problems[f"{route.method} {route.path}"] = str(error)
    return problems
