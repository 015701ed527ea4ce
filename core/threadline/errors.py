"""Every error that threadline raises.

ThreadlineError
├── InvalidRequest            400  the request is malformed
│   └── UnsupportedOption     400  a known option that this version does not honour yet
├── Unauthorized              401  no auth policy admitted the request
├── Forbidden                 403  another principal's session
├── NotFound                  404  the named resource does not exist
├── MethodNotAllowed          405  the path exists, the method does not
├── Conflict                  409  the resource's state rejects the request
│   ├── StaleToken
│   ├── TaskSession
│   ├── DeliveryConflict
│   ├── SessionBusy
│   ├── ApprovalClosed
│   └── IndexOutOfRange
├── TooLarge                  413  the body is over the limit
├── ToolFailed                500  a tool call ended in an error
│   └── TransientToolError    500  … and trying again may help
├── WorkspaceUnavailable      500  a workspace could not be made
├── HarnessFailed             500  a harness could not run a turn
├── Unavailable               503  try again later; nothing was recorded
│   ├── StoreUnavailable
│   └── Draining
├── LeaseLost                 500  this process may no longer write the session
├── StateRootError            500  the state root cannot be used; the host does not start
└── ProjectError              500  the agent project has problems; the host does not start
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ApprovalClosed",
    "Conflict",
    "DeliveryConflict",
    "Draining",
    "Forbidden",
    "HarnessFailed",
    "IndexOutOfRange",
    "InvalidRequest",
    "LeaseLost",
    "MethodNotAllowed",
    "NotFound",
    "ProjectError",
    "SessionBusy",
    "StaleToken",
    "StateRootError",
    "StoreUnavailable",
    "TaskSession",
    "ThreadlineError",
    "TooLarge",
    "ToolFailed",
    "Unauthorized",
    "Unavailable",
    "UnsupportedOption",
    "WorkspaceUnavailable",
]


class ThreadlineError(Exception):
    """The root of the tree: a stable code, an HTTP status and a sentence that says what to do."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_wire(self) -> dict[str, Any]:
        """Return the body of an error response: ``{ok, error, message, …details}``."""
        return {"ok": False, "error": self.code, "message": self.message, **self.details}


class InvalidRequest(ThreadlineError):
    """The request's body, query or parameters are malformed."""

    code = "invalid_request"
    status = 400


class UnsupportedOption(InvalidRequest):
    """The option is part of the contract, but this version does not honour it yet."""

    code = "unsupported_option"


class Unauthorized(ThreadlineError):
    """No auth policy admitted the request, or one refused it."""

    code = "unauthorized"
    status = 401


class Forbidden(ThreadlineError):
    """The caller does not own the session."""

    code = "forbidden"
    status = 403


class NotFound(ThreadlineError):
    """The named session, delivery, tool or route does not exist."""

    code = "not_found"
    status = 404


class MethodNotAllowed(ThreadlineError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    status = 405


class Conflict(ThreadlineError):
    """The resource's state rejects the request."""

    code = "conflict"
    status = 409


class StaleToken(Conflict):
    """A rotating continuation token was used after its successor was given out."""

    code = "stale_token"


class TaskSession(Conflict):
    """A follow-up was sent to a task session."""

    code = "task_session"


class DeliveryConflict(Conflict):
    """A delivery id was used again with another text or for another session."""

    code = "delivery_conflict"


class SessionBusy(Conflict):
    """A session-bound tool call met a running turn."""

    code = "session_busy"


class ApprovalClosed(Conflict):
    """The call waits for no approval any more: it was decided, it expired or was superseded."""

    code = "approval_closed"


class IndexOutOfRange(Conflict):
    """A reader asked for events beyond the next index."""

    code = "index_out_of_range"


class TooLarge(ThreadlineError):
    """The request body is over the host's limit."""

    code = "body_too_large"
    status = 413


class ToolFailed(ThreadlineError):
    """A tool call ended in an error."""

    code = "tool_failed"


class WorkspaceUnavailable(ThreadlineError):
    """The workspace that a call or turn needs could not be made."""

    code = "workspace_unavailable"


class HarnessFailed(ThreadlineError):
    """A harness could not run the turn; ``code`` says why."""

    def __init__(self, message: str, code: str = "harness_failed") -> None:
        super().__init__(message)
        self.failure_code = code


class Unavailable(ThreadlineError):
    """The host cannot take this now; nothing was recorded, so it is safe to send it again."""

    code = "unavailable"
    status = 503


class StoreUnavailable(Unavailable):
    """The store refused the write: a full or read-only disk, or a failed sync."""

    code = "store_unavailable"


class Draining(Unavailable):
    """The host is shutting down."""

    code = "draining"


class LeaseLost(ThreadlineError):
    """Another owner writes this session now, or it was deleted."""

    code = "lease_lost"


class StateRootError(ThreadlineError):
    """The state root is in use, foreign, unmounted, unreadable or read-only."""

    code = "state_root"


class ProjectError(ThreadlineError):
    """The agent project has problems; each is one line, ``file:line: what to do``."""

    code = "invalid_project"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems), problems=list(problems))
        self.problems = list(problems)
