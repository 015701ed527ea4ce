"""The read models take whatever a log may hold."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from threadline import events
from threadline.events import EVENT_TYPES, EventData, parse_event

ENVELOPE = {"index": 3, "sessionId": "ses_a", "at": "2025-01-01T00:00:00.000Z"}


@pytest.mark.parametrize("type_", [t for t in EVENT_TYPES if t != "message.received"])
def test_every_known_type_reads_an_empty_object(type_: str) -> None:
    event = parse_event(ENVELOPE | {"type": type_, "data": {}})
    assert isinstance(event.data, EVENT_TYPES[type_])


def test_wire_names_become_python_names() -> None:
    line = (
        b'{"type":"message.received","index":1,"sessionId":"ses_a","turnId":"t1",'
        b'"at":"2025-01-01T00:00:00.000Z","data":{"text":"hi","deliveryIds":["d1"],'
        b'"parts":[{"deliveryId":"d1","text":"hi","at":"now"}]}}\n'
    )
    event = parse_event(line)
    assert event.turn_id == "t1"
    assert event.at.tzinfo is not None
    assert event.data.delivery_ids == ["d1"]
    assert event.data.parts[0].delivery_id == "d1"


def test_unknown_fields_and_types_are_kept() -> None:
    event = parse_event(ENVELOPE | {"type": "new.thing", "later": 1, "data": {"someField": [1]}})
    assert type(event.data) is EventData
    assert event.data.model_extra == {"someField": [1]}
    assert event.model_extra == {"later": 1}


def test_recovered_ranges_have_a_python_name() -> None:
    event = parse_event(ENVELOPE | {"type": "log.recovered", "data": {"from": 3, "to": 9}})
    assert (event.data.from_, event.data.to) == (3, 9)


def test_events_cannot_be_changed() -> None:
    event = parse_event(ENVELOPE | {"type": "turn.queued", "data": {"position": 1}})
    with pytest.raises(ValidationError):
        event.data.position = 2


@pytest.mark.parametrize("broken", [{}, {"type": "turn.queued"}, ENVELOPE])
def test_what_is_no_event_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        parse_event(broken)


def test_every_model_is_reachable_by_its_type() -> None:
    nested = {"ActionCall", "ErrorInfo", "Event", "EventData", "MessagePart", "Usage"}
    models = {name for name in events.__all__ if name[0].isupper() and name != "EVENT_TYPES"}
    assert {model.__name__ for model in EVENT_TYPES.values()} == models - nested
