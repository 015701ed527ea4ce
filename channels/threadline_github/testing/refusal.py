"""How the API says no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "Refusal",
    "forbidden",
    "invalid",
    "not_found",
    "unauthorised",
    "unprocessable",
]

_DOCS = "https://docs.github.com/rest"


class Refusal(Exception):
    """An answer that is an error; ``errors`` are its details."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: Sequence[Any] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = list(errors)
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        found: dict[str, Any] = {"message": self.message}
        if self.errors:
            found["errors"] = self.errors
        return {**found, "documentation_url": _DOCS, "status": str(self.status)}


def not_found(message: str = "Not Found") -> Refusal:
    """Return what is said of things that do not exist, or that the caller may not know of."""
    return Refusal(404, message)


def forbidden(message: str = "Resource not accessible by integration") -> Refusal:
    """Return what is said when a permission is missing."""
    return Refusal(403, message)


def unauthorised(message: str = "Bad credentials") -> Refusal:
    """Return what is said of tokens that are wrong, expired or revoked."""
    return Refusal(401, message)


def invalid(resource: str, field: str, code: str, message: str | None = None) -> Refusal:
    """Return a refusal that names the field that is wrong."""
    detail = {"resource": resource, "field": field, "code": code}
    return Refusal(
        422,
        "Validation Failed",
        errors=[detail if message is None else {**detail, "message": message}],
    )


def unprocessable(*errors: str, message: str = "Unprocessable Entity") -> Refusal:
    """Return a refusal with sentences."""
    return Refusal(422, message, errors=errors)
