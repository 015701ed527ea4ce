"""Who may do what to a session: one pure function."""

from __future__ import annotations

from typing import Literal

from threadline.principal import Principal
from threadline.store.base import SessionRecord

__all__ = ["Action", "channel_principal", "may"]

Action = Literal["read", "send", "stop", "delete"]


def channel_principal(channel: str) -> Principal:
    """Return the owner of a shared channel's sessions: the channel itself."""
    return Principal(kind="channel", id=channel)


def may(principal: Principal, session: SessionRecord, action: Action, *, via: str) -> bool:
    """Tell whether a principal, admitted by the channel ``via``, may do this.

    The owner may do everything; an operator may read. A session that its channel owns is open to
    whoever that channel admits.
    """
    if principal.key == session.owner.key:
        return True
    if action == "read" and principal.operator:
        return True
    return session.owner == channel_principal(session.channel) and via == session.channel
