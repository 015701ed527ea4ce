"""Which calls of a tool wait for a person, and who may decide them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from threadline.principal import Principal

__all__ = ["Approval", "ApprovalRequest", "Approvers", "named"]

_DAY = timedelta(days=1)
_GROUP = "group:"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that waits: its validated input, the session it belongs to, and who owns that."""

    call_id: str
    tool_name: str
    input: Any
    session_id: str
    owner: Principal


Approvers: TypeAlias = (
    Sequence[str | Principal] | Callable[[Principal, ApprovalRequest], bool | Awaitable[bool]]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Park a model's call until somebody decides; a direct call is a person's own and never waits.

    ``approvers``: principals, their keys (``"slack:T1/U2"``), groups (``"group:sre"``, looked up in
    the principal's attribute ``groups``), or a function of the principal and the request, async or
    not. None: whoever may speak in the session. ``expires``: how long the call waits. ``when``: a
    function of the call's input (the validated arguments by name) that says whether it needs an
    approval; without one, each call does.

    Raises ValueError for a value that cannot be.
    """

    approvers: Approvers | None = None
    expires: timedelta = _DAY
    when: Callable[[dict[str, Any]], bool] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.expires, timedelta) or self.expires <= timedelta(0):
            raise ValueError(f"Approval.expires must be a timedelta above 0, not {self.expires!r}.")
        if self.when is not None and not callable(self.when):
            raise ValueError(f"Approval.when must be a function, not {self.when!r}.")
        if self.approvers is None or callable(self.approvers):
            return
        if isinstance(self.approvers, str) or not all(
            isinstance(one, Principal) or (isinstance(one, str) and ":" in one)
            for one in self.approvers
        ):
            raise ValueError(
                'Approval.approvers must be a list such as ["group:sre", "user:alice"], or a '
                f"function, not {self.approvers!r}."
            )

    def to_wire(self) -> dict[str, Any]:
        """Return ``{approvers?, expiresSeconds}``."""
        shown = {} if self.shown is None else {"approvers": self.shown}
        return {**shown, "expiresSeconds": self.expires.total_seconds()}

    @property
    def shown(self) -> list[str] | None:
        """The approvers as events have them; None when a function or the session decides."""
        if self.approvers is None or callable(self.approvers):
            return None
        return [one.key if isinstance(one, Principal) else one for one in self.approvers]


def named(principal: Principal, approvers: Sequence[str]) -> bool:
    """Tell whether a list of keys and groups holds a principal."""
    groups = principal.attributes.get("groups") or ()
    held = {f"{_GROUP}{group}" for group in groups} if not isinstance(groups, str) else set()
    return principal.key in approvers or bool(held.intersection(approvers))
