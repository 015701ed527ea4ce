"""What a person sees of events: pure functions from an event to pieces of styled text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = ["Message", "Piece", "Renderer", "inline", "progress"]

_WIDTH = 72

_Handler = Callable[["Renderer", str, Mapping[str, Any]], Iterator["Piece"]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of text; ``line`` pieces stand on lines of their own, the others run on."""

    text: str
    style: str = ""
    line: bool = False


@dataclass(slots=True)
class Message:
    """A message that was typed here; ``busy`` says that the agent worked when it was sent."""

    text: str
    busy: bool = False
    interrupts: bool = False


def inline(value: Any, width: int = _WIDTH) -> str:
    """Return a value on one line, cut to a width."""
    if isinstance(value, Mapping):
        text = " ".join(f"{key}={_short(item)}" for key, item in value.items())
    else:
        text = _short(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def _short(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def progress(event: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield what a person who waits for a turn wants to know: its tools, and whether it waits."""
    data = event.get("data") or {}
    match event["type"]:
        case "turn.queued":
            yield _note(f"waiting for a free slot, position {data.get('position')}")
        case "turn.started" if data.get("resumes"):
            yield _note(f"continued after an interruption, attempt {data.get('attempt')}")
        case "actions.requested":
            for call in data.get("calls") or ():
                name = call.get("toolName")
                yield Piece(f"→ {name} {inline(call.get('input'))}".rstrip(), "cyan", line=True)
        case "action.tool_retry":
            said = inline((data.get("error") or {}).get("message"))
            yield _note(f"{data.get('toolName')} failed and runs again: {said}")
        case "action.result":
            yield _result(data)
        case "action.approval_requested":
            yield _note(waiting(data))
        case "action.approval_resolved":
            yield _note(decided(data))
        case "subagent.called":
            yield _note(f"asked {data.get('agent')}: {inline(data.get('prompt'))}")
        case "artifact.tagged":
            yield _note(f"artifact {data.get('kind')}: {data.get('title') or data.get('key')}")
        case "feedback.given":
            yield _note(rated(data))


def rated(data: Mapping[str, Any]) -> str:
    """Say who thinks what of an answer, by the data of ``feedback.given``."""
    by = data.get("by") or {}
    comment = f": {inline(data['comment'])}" if data.get("comment") else ""
    return f"{data.get('rating')} feedback by {by.get('name') or by.get('id')}{comment}"


def waiting(data: Mapping[str, Any]) -> str:
    """Say what waits for a person, by the data of ``action.approval_requested``."""
    call = f"{data.get('toolName')} {inline(data.get('input'))}".rstrip()
    who = ", ".join(map(str, data.get("approvers") or ()))
    until = str(data.get("expiresAt") or "")[:16].replace("T", " ")
    return (
        f"{call} waits for an approval"
        + (f" by {who}" if who else "")
        + (f", until {until} UTC" if until else "")
    )


def decided(data: Mapping[str, Any]) -> str:
    """Say how a call was decided, by the data of ``action.approval_resolved``."""
    by = data.get("by") or {}
    who = by.get("name") or by.get("id")
    reason = data.get("reason") if who else None
    return (
        f"{data.get('decision')}"
        + (f" by {inline(who)}" if who else "")
        + (f": {inline(reason)}" if reason else "")
    )


def _result(data: Mapping[str, Any]) -> Piece:
    took = _duration(data.get("durationMs"))
    name = data.get("toolName")
    if not data.get("isError"):
        return Piece(f"✓ {name}{took}", "green", line=True)
    error = data.get("error") or data.get("output")
    said = error.get("message") if isinstance(error, Mapping) else error
    return Piece(f"✗ {name}{took}: {inline(said)}", "red", line=True)


def _duration(milliseconds: Any) -> str:
    if not isinstance(milliseconds, (int, float)):
        return ""
    return f" ({milliseconds:.0f} ms)" if milliseconds < 1000 else f" ({milliseconds / 1000:.1f} s)"


def _note(text: str) -> Piece:
    return Piece(f"[{text}]", "yellow", line=True)


class Renderer:
    """Shows one conversation's events as they come.

    It knows the messages that were typed here by their delivery ids, so that it can say what became
    of those that were sent while the agent worked.
    """

    def __init__(self) -> None:
        self.mine: dict[str, Message] = {}
        self.turns: dict[str, set[str]] = {}
        self.failed = False
        self.parked: dict[str, str] = {}
        self._interrupted: set[str] = set()
        self._streamed: set[str] = set()

    @property
    def busy(self) -> bool:
        """True while a turn is open."""
        return bool(self.turns)

    @property
    def unsettled(self) -> bool:
        """True while a message that was typed here has no end of its turn."""
        return bool(self.mine)

    def sending(self, delivery_id: str, text: str, *, interrupts: bool = False) -> None:
        """Note that a message goes out."""
        self.mine[delivery_id] = Message(text, self.busy or self.unsettled, interrupts)

    def refused(self, delivery_id: str) -> None:
        """Note that a message was not accepted."""
        self.mine.pop(delivery_id, None)

    def show(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        """Yield the pieces that show an event."""
        kind, data = event["type"], event.get("data") or {}
        turn_id = event.get("turnId")
        if turn_id is not None and not kind.startswith("session."):
            self.turns.setdefault(turn_id, set())
        handler = self._HANDLERS.get(kind)
        yield from progress(event) if handler is None else handler(self, str(turn_id), data)

    def _parked(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        self.parked[str(data.get("callId"))] = str(data.get("toolName"))
        yield _note(f"{waiting(data)}: /approve or /deny, with a reason if you like")

    def _decided(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        tool = self.parked.pop(str(data.get("callId")), "the call")
        yield _note(f"{tool} was {decided(data)}")

    def _started(self, turn_id: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        if data.get("resumes"):
            self.turns[turn_id] |= self._interrupted
            self._interrupted = set()
        return progress({"type": "turn.started", "data": data})

    def _rested(self, _: str, __: Mapping[str, Any]) -> Iterator[Piece]:
        self._settle(self._interrupted)
        self._interrupted = set()
        yield from ()

    def _session_failed(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        yield Piece(f"failed: {inline(data.get('error'))}", "red", line=True)

    def _cleared(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        for delivery_id in data.get("deliveryIds") or ():
            if message := self.mine.pop(delivery_id, None):
                yield _note(f"dropped, not answered: {inline(message.text)}")

    def _reasoning(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        return self._appended(data.get("blockId"), data.get("delta"), "dim")

    def _reasoned(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        return self._completed(data.get("blockId"), data.get("text"), "dim")

    def _saying(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        return self._appended(data.get("messageId"), data.get("delta"), "")

    def _said(self, _: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        # A subagent's answer is a tool's output to the agent; the tool's line tells of it.
        if not data.get("parentCallId"):
            yield from self._completed(data.get("messageId"), data.get("text"), "")

    def _done(self, turn_id: str, _: Mapping[str, Any]) -> Iterator[Piece]:
        self._end(turn_id)
        yield from ()

    def _received(self, turn_id: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        ids = list(data.get("deliveryIds") or ())
        self.turns.setdefault(turn_id, set()).update(ids)
        for delivery_id in ids:
            message = self.mine.get(delivery_id)
            if message is not None and message.busy and not message.interrupts:
                yield _note(f"answered in the next turn: {inline(message.text)}")
        if not any(delivery_id in self.mine for delivery_id in ids):
            yield Piece(f"(elsewhere) {data.get('text', '')}", "bold", line=True)

    def _steered(self, turn_id: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        delivery_id = data.get("deliveryId")
        self.turns.setdefault(turn_id, set()).add(str(delivery_id))
        if delivery_id in self.mine:
            yield _note(f"added to the running turn: {inline(data.get('text'))}")
        else:
            yield Piece(f"(elsewhere, added) {data.get('text', '')}", "bold", line=True)

    def _appended(self, key: Any, delta: Any, style: str) -> Iterator[Piece]:
        if key not in self._streamed:
            self._streamed.add(key)
            yield Piece("", line=True)
        yield Piece(str(delta or ""), style)

    def _completed(self, key: Any, text: Any, style: str) -> Iterator[Piece]:
        """A whole text was seen piece by piece, or is shown now."""
        if key in self._streamed:
            self._streamed.discard(key)
            yield Piece("", line=True)
        else:
            yield Piece(str(text or ""), style, line=True)

    def _failed(self, turn_id: str, data: Mapping[str, Any]) -> Iterator[Piece]:
        self._streamed.clear()
        code = data.get("code")
        if data.get("status") == "interrupted":
            # It may be continued; its messages are settled when the session rests.
            self._interrupted |= self.turns.pop(turn_id, set())
            yield _note("interrupted by a restart of the host")
            return
        self._end(turn_id)
        if code == "preempted":
            yield _note("interrupted")
        elif data.get("status") == "cancelled":
            yield _note("stopped")
        else:
            self.failed = True
            yield Piece(f"the turn failed: {code}: {data.get('message')}", "red", line=True)

    def _end(self, turn_id: str) -> None:
        self._settle(self.turns.pop(turn_id, set()))

    def _settle(self, delivery_ids: set[str]) -> None:
        for delivery_id in delivery_ids:
            self.mine.pop(delivery_id, None)

    _HANDLERS: ClassVar[Mapping[str, _Handler]] = {
        "action.approval_requested": _parked,
        "action.approval_resolved": _decided,
        "deliveries.cleared": _cleared,
        "message.appended": _saying,
        "message.completed": _said,
        "message.received": _received,
        "nudge.delivered": _steered,
        "reasoning.appended": _reasoning,
        "reasoning.completed": _reasoned,
        "session.completed": _rested,
        "session.failed": _session_failed,
        "session.waiting": _rested,
        "turn.completed": _done,
        "turn.failed": _failed,
        "turn.started": _started,
    }
