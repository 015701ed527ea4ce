"""Continuation tokens: how a channel names a conversation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from threadline.errors import InvalidRequest

__all__ = ["TokenFormat", "any_string", "matching", "rotating"]

MAX_LENGTH = 500


@dataclass(frozen=True, slots=True)
class TokenFormat:
    """What a channel's tokens look like.

    ``rotates``: the core makes the tokens, and every accepted follow-up returns a new one.
    Otherwise the channel gives its own stable string, which must match ``pattern``; ``example`` is
    shown to whoever gets it wrong. A format that may change should carry a version, as
    ``ticket/v2:<id>``. Where letter case does not matter, ``folds`` reads tokens in lower case.
    """

    rotates: bool = False
    pattern: re.Pattern[str] | None = None
    example: str = ""
    folds: bool = False

    def normal(self, token: str) -> str:
        """Return the one spelling of a token."""
        return token.lower() if self.folds else token

    def check(self, token: str | None) -> None:
        """Raise InvalidRequest when a token that the channel gives is not of the format."""
        if token is None:
            if self.rotates:
                return
            raise InvalidRequest("send() needs continuation_token=, the conversation's name.")
        if not isinstance(token, str) or not 1 <= len(token) <= MAX_LENGTH:
            raise InvalidRequest(f"A continuation token has 1 to {MAX_LENGTH} characters.")
        if not token.isprintable():
            raise InvalidRequest("A continuation token has printable characters only.")
        if self.pattern is not None and self.pattern.fullmatch(token) is None:
            raise InvalidRequest(
                f"{token!r} is not a token of this channel; one looks like {self.example!r}."
            )


def any_string() -> TokenFormat:
    """Take any printable string of 1 to 500 characters."""
    return TokenFormat()


def matching(pattern: str, *, example: str, folds: bool = False) -> TokenFormat:
    """Take the strings that match a regular expression whole, in lower case if it ``folds``."""
    return TokenFormat(pattern=re.compile(pattern), example=example, folds=folds)


def rotating() -> TokenFormat:
    """Let the core make opaque tokens that rotate."""
    return TokenFormat(rotates=True)
