"""What the log says of a turn: who asked, where, and what it came to."""

from __future__ import annotations

from typing import Any

from threadline_github.config import API_URL
from threadline_github.inbound.names import Repository, Thread
from threadline_github.outbound.links import link
from threadline_github.outbound.results import Check
from threadline_github.outbound.turns import Asked, told

CHECK = Check(conclusion="success", title="Good", summary="So.").model_dump(mode="json")


def event(type_: str, turn: str = "t1", **data: Any) -> dict[str, Any]:
    return {"type": type_, "turnId": turn, "at": "2025-10-09T09:00:00.000Z", "data": data}


def sender(kind: str = "github", **attributes: Any) -> dict[str, Any]:
    return {"kind": kind, "id": "501", "attributes": attributes}


def received(*senders: dict[str, Any], turn: str = "t1") -> dict[str, Any]:
    parts = [{"deliveryId": f"d{n}", "sender": one} for n, one in enumerate(senders)]
    ids = [part["deliveryId"] for part in parts]
    return event("message.received", turn, parts=parts, deliveryIds=ids)


def turn(*events: dict[str, Any]) -> Asked:
    return told(events)["t1"]


def test_the_newest_question_says_where() -> None:
    found = turn(received(sender(comment=1, review_comment=7), sender(comment=2)))
    assert (found.review_comment, found.elsewhere) == (None, [7])
    found = turn(received(sender(comment=2), sender(comment=1, review_comment=7)))
    assert (found.review_comment, found.elsewhere) == (7, [None])
    assert found.delivery_ids == ["d0", "d1"]


def test_what_the_code_does_is_nobody_elsewhere() -> None:
    found = turn(received(sender(trigger="opened", head="a"), sender(comment=1, review_comment=7)))
    assert found.elsewhere == []
    assert found.on_code
    assert found.head == "a"
    assert not turn(received(sender(trigger="mention", comment=1))).on_code


def test_who_speaks_meanwhile_is_somewhere_too() -> None:
    nudges = [
        event("nudge.delivered", sender=sender(comment=2, review_comment=7)),
        event("nudge.delivered", sender=sender(comment=3, review_comment=7)),
        event("nudge.delivered", sender=sender(comment=4)),
        event("nudge.delivered", sender=sender("http", comment=5, review_comment=9)),
        event("nudge.delivered"),
    ]
    assert turn(received(sender(comment=1)), *nudges).elsewhere == [7]


def test_a_message_from_elsewhere_has_no_place() -> None:
    found = turn(received(sender("http", review_comment=7, trigger="opened")))
    assert (found.review_comment, found.on_code, found.elsewhere) == (None, False, [])


def test_an_answer_is_the_last_word_of_the_agent_itself() -> None:
    asked = received(sender(comment=1))
    assert not turn(asked, event("message.completed", finishReason="tool_calls")).answered
    part = event("message.completed", finishReason="stop", parentCallId="c")
    assert not turn(asked, part).answered
    assert turn(asked, event("message.completed", finishReason="stop")).answered


def test_a_turn_that_is_taken_up_again_is_one_turn() -> None:
    asked = received(sender(comment=1))
    fails = event("turn.failed", status="interrupted", message="The host restarted.")
    found = turn(asked, event("turn.started"), fails)
    assert (found.ended, found.interrupted) == (True, "The host restarted.")
    resumed = event("turn.started", "t2", resumes="t1")
    both = told([asked, fails, resumed, event("message.completed", "t2", finishReason="stop")])
    assert both["t1"] is both["t2"]
    assert (both["t2"].id, both["t2"].ended, both["t2"].interrupted) == ("t1", False, "")
    assert both["t2"].answered
    assert told([asked, fails, resumed, event("turn.completed", "t2")])["t2"].ended


def test_a_turn_that_asks_does_not_go_on() -> None:
    fails = event("turn.failed", status="interrupted", message="Was it done?", asks=True)
    assert turn(received(sender(comment=1)), fails).interrupted == ""


def test_a_check_that_was_reported_is_known() -> None:
    asked = received(sender(trigger="opened"))
    named = {**CHECK, "name": "lint"}
    assert turn(asked, event("action.result", output=CHECK)).checked("agent")
    assert not turn(asked, event("action.result", output=named)).checked("agent")
    assert turn(asked, event("action.result", output=named)).checked("lint")
    assert not turn(asked, event("action.result", output=CHECK, isError=True)).checks
    assert not turn(asked, event("action.result", output=CHECK, dryRun=True)).checks
    preview = '{"type":"github_check","conclusion":"succ'
    assert turn(asked, event("action.result", output=preview)).checked("agent")


def test_a_turn_that_the_events_do_not_begin_is_not_told_of() -> None:
    assert told([event("turn.started"), event("turn.started", "t2", resumes="t1")]) == {}


def test_a_comment_has_an_address() -> None:
    repository = Repository(1, "Octo/Widget", "octo/widget")
    pull, issue = Thread(repository, "pr", 7), Thread(repository, "issue", 9)
    here = "https://github.com/Octo/Widget"
    assert link(API_URL, pull, "issues/comments/5") == f"{here}/pull/7#issuecomment-5"
    assert link(API_URL, pull, "pulls/comments/5") == f"{here}/pull/7#discussion_r5"
    assert link(API_URL, issue, "issues/comments/5") == f"{here}/issues/9#issuecomment-5"
    own = link("https://git.example/api/v3", issue, "issues/comments/5")
    assert own == "https://git.example/Octo/Widget/issues/9#issuecomment-5"
