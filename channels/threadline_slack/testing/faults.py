"""What a test has in store for Web API calls: errors, limits, outages, lost answers, gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from threadline.testing.gates import CallGate, Place
from threadline_slack.testing.model import Json

if TYPE_CHECKING:
    from threadline_slack.testing.api import Call

__all__ = ["Fault", "Faults"]


@dataclass(slots=True)
class Fault:
    """What happens to the calls that meet it; see :class:`Faults` for what each does."""

    method: str
    times: int | None
    when: Callable[[Json], bool]
    reply: Json | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    effect: bool = False
    drop: Place | None = None
    delay: float = 0.0
    gate: CallGate | None = None
    text: str | None = None


class Faults:
    """Faults by method, ``"*"`` for all; each call meets the first that fits it, newest first.

    ``times`` None is for ever; ``when`` sees the arguments of the call.
    """

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def fail(
        self,
        method: str,
        error: str = "internal_error",
        *,
        times: int | None = 1,
        retry_after: int | None = None,
        status: int | None = None,
        effect: bool = False,
        when: Callable[[Json], bool] | None = None,
        **more: Any,
    ) -> Fault:
        """Answer with an error; ``effect``: although it was done.

        ``ratelimited`` is HTTP 429 with ``Retry-After``, a ``status`` from 500 on a page of HTML.
        ``more`` are further fields of the answer, such as ``needed``.
        """
        limited = error == "ratelimited"
        status = status or (429 if limited else 200)
        headers = {"Retry-After": str(retry_after or 1)} if limited or retry_after else {}
        fault = Fault(method, times, when or _any, {"ok": False, "error": error, **more}, status)
        fault.headers, fault.effect = headers, effect
        if status >= 500:
            fault.text = f"<html><body>{status}</body></html>"
        return self._add(fault)

    def stub(
        self,
        method: str,
        reply: Json,
        *,
        times: int | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        effect: bool = False,
        when: Callable[[Json], bool] | None = None,
    ) -> Fault:
        """Answer with ``reply``, whatever it says.

        With ``effect`` the call is done as well, and ``reply`` is laid over its answer; a ``ts`` in
        it is the one that the message gets.
        """
        fault = Fault(method, times, when or _any, dict(reply), status, headers or {}, effect)
        return self._add(fault)

    def drop(
        self,
        method: str,
        place: Place = "after",
        *,
        times: int | None = 1,
        when: Callable[[Json], bool] | None = None,
    ) -> Fault:
        """Cut the connection before the effect, or after it: it is done, unknown to the caller."""
        return self._add(Fault(method, times, when or _any, drop=place))

    def delay(
        self,
        method: str,
        seconds: float,
        *,
        times: int | None = 1,
        when: Callable[[Json], bool] | None = None,
    ) -> Fault:
        """Do it at once, and answer so many seconds of the clock later."""
        return self._add(Fault(method, times, when or _any, delay=seconds))

    def hold(
        self,
        method: str,
        place: Place = "after",
        *,
        times: int | None = None,
        when: Callable[[Json], bool] | None = None,
    ) -> CallGate:
        """Let calls wait before their effect, or after it, until the gate is released."""
        gate = CallGate(place)
        self._add(Fault(method, times, when or _any, gate=gate))
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
            if fault.method in ("*", call.method) and fault.when(call.args):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                return fault
        return None

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault


def _any(args: Json) -> bool:
    del args
    return True
