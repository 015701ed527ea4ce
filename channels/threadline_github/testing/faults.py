"""What a test has in store for API calls: errors, limits, outages, lost answers, gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from threadline.clock import Clock
from threadline.testing.gates import CallGate, Place

if TYPE_CHECKING:
    from threadline_github.testing.api import Call

__all__ = ["Fault", "Faults", "fits"]

When: TypeAlias = "Callable[[Call], bool] | None"

_SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)
_PRIMARY = "API rate limit exceeded for installation ID 4401."
_PHRASES = {
    400: "Bad Request",
    401: "Bad credentials",
    403: "Resource not accessible by integration",
    404: "Not Found",
    410: "This comment was deleted",
    422: "Validation Failed",
    429: _SECONDARY,
}


@dataclass(slots=True)
class Fault:
    """What happens to the calls that meet it; see :class:`Faults` for what each does."""

    method: str
    path: str
    times: int | None
    when: Callable[[Call], bool]
    status: int | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    effect: bool = False
    drop: Place | None = None
    delay: float = 0.0
    gate: CallGate | None = None


class Faults:
    """Faults by method and path, ``"*"`` for all; each call meets the newest that fits it.

    Paths are patterns over the whole path, without the API's own prefix and the query: ``*`` goes
    over slashes, letter case does not matter. ``times`` None is for ever.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: list[Fault] = []

    def fail(
        self,
        method: str,
        path: str,
        status: int = 500,
        message: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        times: int | None = 1,
        effect: bool = False,
        body: Any = None,
        when: When = None,
    ) -> Fault:
        """Answer with an error; ``effect``: although it was done.

        From 500 on the answer is a page of HTML, as of a proxy, unless there is a ``message``.
        """
        fault = Fault(method, path, times, when or _any, status, body, headers or {}, effect)
        if body is None and (message is not None or status < 500):
            text = message or _PHRASES.get(status, "Error")
            fault.body = {
                "message": text,
                "documentation_url": "https://docs.github.com/rest",
                "status": str(status),
            }
        return self._add(fault)

    def limit(
        self,
        kind: Literal["secondary", "primary", "bare"] = "secondary",
        *,
        method: str = "*",
        path: str = "*",
        status: Literal[403, 429] = 403,
        retry_after: int = 60,
        reset: int = 3600,
        times: int | None = 1,
        when: When = None,
    ) -> Fault:
        """Refuse for a rate limit.

        ``secondary`` says ``Retry-After``, ``bare`` is the same without it; ``primary`` has no
        calls left until so many seconds from now.
        """
        headers = {"Retry-After": str(retry_after)} if kind == "secondary" else {}
        if kind == "primary":
            moment = int(self._clock.now().timestamp()) + reset
            headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(moment)}
        message = _PRIMARY if kind == "primary" else _SECONDARY
        return self.fail(method, path, status, message, headers=headers, times=times, when=when)

    def drop(
        self,
        method: str,
        path: str,
        place: Place = "after",
        *,
        times: int | None = 1,
        when: When = None,
    ) -> Fault:
        """Cut the connection before the effect, or after it: it is done, unknown to the caller."""
        return self._add(Fault(method, path, times, when or _any, drop=place))

    def delay(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        times: int | None = 1,
        when: When = None,
    ) -> Fault:
        """Do it at once, and answer so many seconds of the clock later."""
        return self._add(Fault(method, path, times, when or _any, delay=seconds))

    def hold(
        self,
        method: str,
        path: str,
        place: Place = "after",
        *,
        times: int | None = None,
        when: When = None,
    ) -> CallGate:
        """Let calls wait before their effect, or after it, until the gate is released."""
        gate = CallGate(place)
        self._add(Fault(method, path, times, when or _any, gate=gate))
        return gate

    def heal(self, fault: Fault | None = None) -> None:
        """Take a fault back, or all of them; calls that wait go on."""
        gone = self._faults if fault is None else [fault]
        for one in list(gone):
            if one.gate is not None:
                one.gate.release()
            if one in self._faults:
                self._faults.remove(one)

    def take(self, call: Call) -> Fault | None:
        """Return the fault that a call meets, and count it down."""
        for fault in reversed(self._faults):
            if fits(call, fault.method, fault.path) and fault.when(call):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                return fault
        return None

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault


def fits(call: Call, method: str | None, path: str | None) -> bool:
    """Whether a call is of a method, and of a path that fits a pattern."""
    if method not in (None, "*", call.method):
        return False
    return path is None or fnmatchcase(call.path.lower(), path.lower())


def _any(call: Call) -> bool:
    del call
    return True
