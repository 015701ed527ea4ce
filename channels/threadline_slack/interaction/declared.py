"""What a channel's code declares for buttons, selects, modals, commands, shortcuts and reactions.

Names lead to handlers that are declared in code, so a button works as long as its handler is there,
whichever process showed it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from threadline_slack.interaction.forms import Interaction, Kind

if TYPE_CHECKING:
    from threadline_slack.interaction.acting import InteractionContext

__all__ = ["OURS", "Declared", "Interactive", "Name"]

OURS = "threadline:"
"""How the ids begin that belong to this package."""

Handler: TypeAlias = "Callable[[InteractionContext, Interaction], Awaitable[Any]]"
Name: TypeAlias = "str | re.Pattern[str]"
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class Declared:
    """A handler, and how Slack shows what leads to it; None: the agent itself is asked."""

    handler: Handler | None
    description: str = ""
    hint: str = ""
    title: str = ""
    scope: Literal["message", "global"] = "message"


class Interactive:
    """The decorators of a Slack channel; each handler is ``async def handler(ctx, interaction)``.

    ``ctx`` is an :class:`~threadline_slack.interaction.acting.InteractionContext`. Slack is
    answered as soon as the interaction is kept durably; then the handler runs, and again if a crash
    cut it short. A name may be a pattern that has to match whole; exact names go first, then the
    order counts.
    """

    def __init__(self) -> None:
        self._exact: dict[tuple[Kind, str], Declared] = {}
        self._patterns: list[tuple[Kind, re.Pattern[str], Declared]] = []

    def action(self, action_id: Name) -> Callable[[H], H]:
        """Declare a handler of a button, select or other element, by its ``action_id``."""
        return self._declare("action", action_id)

    def view(self, callback_id: Name) -> Callable[[H], H]:
        """Declare a handler of a modal that is submitted, by its ``callback_id``.

        What it returns within two and a half seconds is Slack's ``response_action``, for example
        ``{"response_action": "errors", "errors": {"<block_id>": "…"}}``; None closes the modal.
        """
        return self._declare("view", callback_id)

    def view_closed(self, callback_id: Name) -> Callable[[H], H]:
        """Declare a handler of a modal that is closed; its view has ``notify_on_close``."""
        return self._declare("view_closed", callback_id)

    def options(self, action_id: Name) -> Callable[[H], H]:
        """Declare what a select with external options offers for ``interaction.value``.

        It returns, within two and a half seconds, a list of texts, of ``(text, value)`` or of
        options as Slack has them.
        """
        return self._declare("options", action_id)

    def command(self, name: str, *, description: str = "", hint: str = "") -> Callable[[H], H]:
        """Declare a handler of a slash command, ``/deploy``; ``!deploy`` in a thread is the same.

        ``interaction.value`` is what stands behind it. ``description``, by default the docstring's
        first line, and ``hint`` are shown by Slack.
        """
        _check_command(name)

        def declare(handler: H) -> H:
            about = description or _first_line(handler)
            self._keep("command", name, Declared(handler, about, hint))
            return handler

        return declare

    def shortcut(
        self,
        callback_id: str,
        *,
        title: str = "",
        description: str = "",
        scope: Literal["message", "global"] = "message",
    ) -> Callable[[H], H]:
        """Declare a handler of a shortcut: of a message's menu, or by ``scope`` a global one.

        ``title`` is what Slack shows, by default made from the id.
        """

        def declare(handler: H) -> H:
            about = description or _first_line(handler)
            made = Declared(handler, about, title=title, scope=scope)
            self._keep("shortcut", callback_id, made)
            return handler

        return declare

    def reaction(self, name: str) -> Callable[[H], H]:
        """Declare a handler of a reaction that a person adds, ``eyes``, in a channel of the bot."""
        return self._declare("reaction", name.strip(":"))

    @property
    def commands(self) -> Mapping[str, Declared]:
        """The declared slash commands, by name."""
        return self._named("command")

    @property
    def shortcuts(self) -> Mapping[str, Declared]:
        """The declared shortcuts, by callback id."""
        return self._named("shortcut")

    @property
    def reactions(self) -> Collection[str]:
        """The names of the reactions that have a handler."""
        return list(self._named("reaction"))

    def handler(self, kind: Kind, name: str) -> Handler | None:
        """Return the handler of a name."""
        if (exact := self._exact.get((kind, name))) is not None:
            return exact.handler
        for declared_kind, pattern, declared in self._patterns:
            if declared_kind == kind and pattern.fullmatch(name):
                return declared.handler
        return None

    def _offer(self, kind: Literal["command", "shortcut"], name: str, declared: Declared) -> None:
        """Declare what the agent itself answers."""
        if kind == "command":
            _check_command(name)
        self._exact.setdefault((kind, name), declared)

    def _named(self, kind: Kind) -> dict[str, Declared]:
        return {name: made for (one, name), made in self._exact.items() if one == kind}

    def _declare(self, kind: Kind, name: Name) -> Callable[[H], H]:
        def declare(handler: H) -> H:
            self._keep(kind, name, Declared(handler, _first_line(handler)))
            return handler

        return declare

    def _keep(self, kind: Kind, name: Name, declared: Declared) -> None:
        if declared.handler is not None:
            _check(declared.handler)
        if isinstance(name, re.Pattern):
            self._patterns.append((kind, name, declared))
            return
        if not name or name.startswith(OURS):
            raise ValueError(f"{name!r} cannot be declared: it is empty, or begins with {OURS!r}.")
        before = self._exact.get((kind, name))
        if before is not None and before.handler is not None:
            raise ValueError(f"There are two handlers of the {kind} {name!r}.")
        self._exact[kind, name] = declared


def _check_command(name: str) -> None:
    if re.fullmatch(r"/[a-z0-9_-]{1,31}", name) is None:
        raise ValueError(f"A command is like '/deploy', in lower case, not {name!r}.")


def _check(handler: Callable[..., Any]) -> None:
    """Raise TypeError for what cannot be called as a handler."""
    if not inspect.iscoroutinefunction(handler):
        raise TypeError(f"{getattr(handler, '__name__', handler)!r} must be 'async def'.")
    if len(inspect.signature(handler).parameters) != 2:
        raise TypeError(f"{handler.__name__}() must take a context and an interaction.")


def _first_line(handler: Callable[..., Any]) -> str:
    return (inspect.getdoc(handler) or "").partition("\n")[0]
