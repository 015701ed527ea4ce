"""What an event means: the cases of inbound Slack by their ids, and what they do not name."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threadline_slack.inbound.backfill import Said
from threadline_slack.inbound.decide import (
    Ask,
    Decision,
    Gone,
    Ignore,
    Me,
    Place,
    Rules,
    Stop,
    decide,
)
from threadline_slack.inbound.watch import watch
from threadline_slack.interaction.forms import interactions, parse

CASES = {
    case["id"]: case
    for case in map(
        json.loads, (Path(__file__).parent / "inbound_cases.jsonl").read_text("utf-8").splitlines()
    )
}
ME = Me("U0AGENT001", "B0AGENT001", "A0AGENT001")
TOKEN = "slack:T0AGENT001:C0CHAN0001:"


def envelopes(case_id: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a case, in order."""
    case = copy.deepcopy(CASES[case_id])
    if "payload" in case:
        yield case["payload"]
    for step in case.get("steps", ()):
        body = step.get("body") or step.get("frame", {}).get("payload")
        if isinstance(body, dict) and body.get("type") == "event_callback":
            yield body


def played(case_id: str, rules: Rules | None = None, variant: str = "") -> list[Decision]:
    """Return the decision on each event; who was asked once is in the thread."""
    sessions: set[str] = set()
    found: list[Decision] = []
    for envelope in envelopes(case_id):
        filled = json.loads(json.dumps(envelope).replace("{variant}", json.dumps(variant)[1:-1]))
        decision = decide(filled, ME, rules or Rules(), joined=sessions.__contains__)
        if isinstance(decision, Ask):
            sessions.add(decision.place.token)
        found.append(decision)
    return found


def asks(case_id: str, rules: Rules | None = None, variant: str = "") -> list[Ask]:
    decisions = played(case_id, rules, variant)
    return [decision for decision in decisions if isinstance(decision, Ask)]


def event(**fields: Any) -> dict[str, Any]:
    """Return an envelope of a person's post in a channel."""
    said = {
        "type": "message",
        "channel": "C0CHAN0001",
        "channel_type": "channel",
        "user": "U0HUMAN001",
        "team": "T0AGENT001",
        "ts": "1760000000.000100",
        "text": "hello",
    }
    return {
        "type": "event_callback",
        "team_id": "T0AGENT001",
        "api_app_id": "A0AGENT001",
        "event": said | fields,
    }


def test_s01_twins_have_one_name() -> None:
    first, second = asks("S-01")
    assert first.delivery_id == second.delivery_id == "T0AGENT001:C0CHAN0001:1760000000.000100"
    assert first.place == second.place
    assert first.text == second.text == "why is checkout slow?"


@pytest.mark.parametrize("case_id", ["S-04", "S-06"])
def test_s04_s06_a_retry_is_a_post_like_any_other(case_id: str) -> None:
    (ask,) = asks(case_id)
    assert ask.text == "why is checkout slow?"


def test_s07_the_same_envelope_has_the_same_name_again() -> None:
    assert len({ask.delivery_id for ask in asks("S-07")}) == 1


def test_s11_the_author_of_an_edit_is_the_author_of_the_post() -> None:
    blocked = Rules(blocked=frozenset({"U0BLOCKED1"}))
    (decision,) = played("S-11", blocked)
    assert isinstance(decision, Ignore)
    assert decision.reason == "a person who may not ask"
    (other,) = played("S-11", Rules(allowed=frozenset({"U0HUMAN001"})))
    assert isinstance(other, Ignore)
    (envelope,) = envelopes("S-11")
    del envelope["event"]["message"]["user"]
    assert isinstance(decide(envelope, ME, Rules()), Ignore)


def test_an_edit_that_adds_the_first_mention_runs_once_under_the_posts_own_name() -> None:
    (ask,) = asks("S-11")
    assert ask.delivery_id.endswith(":1760000000.000100")
    (envelope,) = envelopes("S-11")
    envelope["event"]["previous_message"] = envelope["event"]["message"]
    assert isinstance(decide(envelope, ME, Rules()), Ignore)


def test_s15_a_file_share_is_a_post() -> None:
    (ask,) = asks("S-15")
    assert ask.text == "read this"
    assert [(f.name, f.mimetype, f.size) for f in ask.files] == [
        ("trace.pdf", "application/pdf", 48211)
    ]


def test_s16_no_words_is_still_a_question() -> None:
    (ask,) = asks("S-16")
    assert ask.files
    assert all(file.name in ask.text for file in ask.files)
    bare = decide(event(type="app_mention", text="<@U0AGENT001>"), ME, Rules())
    assert isinstance(bare, Ask)
    assert bare.text.strip()


def test_s19_own_posts_are_known_by_user_bot_or_app() -> None:
    (decision,) = played("S-19", Rules(bots=True))
    assert decision == Ignore("the agent's own post")
    for own in ({"user": ME.user}, {"bot_id": ME.bot}, {"app_id": ME.app}):
        posted = event(channel="D0DM000001", **own)
        assert isinstance(decide(posted, ME, Rules(bots=True)), Ignore), own


def test_s20_other_bots_are_not_heard_unless_allowed() -> None:
    assert not asks("S-20")
    heard = asks("S-20", Rules(bots=True))
    assert heard
    assert all(ask.person.bot for ask in heard if ask.person.user == "U0OTHERBOT")


def test_s23_a_mention_with_a_label_is_one() -> None:
    said = asks("S-23")
    assert said
    assert "summarise what @" in said[0].text
    assert said[0].said.users == ("U0HUMAN002",)


def test_s24_entities_are_decoded_once() -> None:
    (ask,) = asks("S-24")
    assert "a < b && c > d" in ask.text
    assert "&lt;@U0HUMAN002&gt;" in ask.text
    assert "<@U0HUMAN002>" in ask.text
    assert "https://x.test/?a=1&b=2" in ask.text
    assert ask.said.users == ()


def test_s25_groups_channels_and_broadcasts_are_words() -> None:
    (ask,) = asks("S-25")
    for word in ("@oncall", "#alerts", "@here", "2025-10-09"):
        assert word in ask.text
    assert "<!" not in ask.text
    group = event(text="<!subteam^S0GROUP001|@oncall> look")
    assert isinstance(decide(group, ME, Rules()), Ignore)


def test_s26_a_direct_message_has_its_threads_session() -> None:
    one, two, under, three = asks("S-26")
    assert under.place == one.place
    assert len({ask.place.token for ask in (one, two, three)}) == 3
    assert one.place.root == "1760000100.000100"


def test_s26_a_flat_direct_conversation_is_one_session_beside_its_threads() -> None:
    one, two, under, three = asks("S-26", Rules(flat_dms=True))
    assert one.place == two.place == three.place
    assert one.place.token == "slack:T0AGENT001:D0DM000001:dm"
    assert one.place.root is None
    assert under.place.root == "1760000100.000100"


def test_s27_threads_of_one_direct_conversation_are_apart() -> None:
    decisions = [d for d in played("S-27") if isinstance(d, Ask | Stop)]
    roots = {d.place.root for d in decisions}
    assert len(roots) == 2


def test_s28_a_root_is_a_root_with_and_without_thread_ts() -> None:
    root, reply, again = asks("S-28")
    assert root.place == reply.place == again.place
    assert root.delivery_id == again.delivery_id != reply.delivery_id


def test_s29_ambient_talk_in_a_group_does_not_wake_the_agent() -> None:
    ambient, mention = played("S-29")
    assert isinstance(ambient, Ignore)
    assert isinstance(mention, Ask)
    assert mention.place.root == "1760000240.000100"


def test_s31_people_of_other_organisations_are_refused_or_marked() -> None:
    assert not asks("S-31")
    (ask,) = asks("S-31", Rules(external=True))
    assert ask.person.external
    assert ask.person.team == "T0OTHERORG"
    assert ask.place.team == "T0AGENT001"


def test_s32_an_org_wide_installation_has_the_events_workspace() -> None:
    (ask,) = asks("S-32")
    (envelope,) = envelopes("S-32")
    envelope["team_id"] = envelope["event"]["team"] = "T0AGENT002"
    other = decide(envelope, ME, Rules())
    assert isinstance(other, Ask)
    assert ask.place.team == "T0AGENT001"
    assert other.place.team == "T0AGENT002"
    assert ask.delivery_id != other.delivery_id


def test_s38_a_form_with_a_charset_is_a_form() -> None:
    case = CASES["S-38"]
    payload = parse(case["headers"]["Content-Type"], case["raw_body"].encode())
    assert payload == case["decoded_payload"]
    (click,) = interactions(payload)
    assert click.label == "Approve & run +1 100%"
    assert (click.user, click.channel, click.value) == ("U0HUMAN001", "C0CHAN0001", "call_01")


def test_s45_a_burst_is_as_many_conversations() -> None:
    found = asks("S-45")
    assert len({ask.place.token for ask in found}) == len(found)


def test_s46_each_post_has_a_name_of_its_own() -> None:
    found = asks("S-46")
    assert len({ask.delivery_id for ask in found}) == len(found)
    assert len({ask.place for ask in found}) == 1


@pytest.mark.parametrize("variant", CASES["S-48"]["variants"])
def test_s48_a_whole_message_that_says_stop(variant: str) -> None:
    decisions = played("S-48", variant=variant)
    (stop,) = [d for d in decisions if isinstance(d, Stop)]
    assert stop.place.root == "1760000540.000100"


@pytest.mark.parametrize("variant", CASES["S-49"]["variants"])
def test_s49_a_sentence_with_the_word_stop_is_a_follow_up(variant: str) -> None:
    decisions = played("S-49", variant=variant)
    assert not [d for d in decisions if isinstance(d, Stop)]
    assert isinstance(decisions[-1], Ask)


def test_s51_a_stop_knows_its_own_time() -> None:
    first, second, stop = played("S-51")
    assert isinstance(first, Ask)
    assert isinstance(second, Ask)
    assert isinstance(stop, Stop)
    assert first.ts < stop.ts < second.ts


def test_follow_ups_need_no_mention_in_a_thread_that_the_agent_is_in() -> None:
    reply = event(thread_ts="1759999999.000100")
    joined = {TOKEN + "1759999999.000100"}.__contains__
    assert isinstance(decide(reply, ME, Rules(), joined=joined), Ask)
    assert isinstance(decide(reply, ME, Rules()), Ignore)
    assert isinstance(decide(reply, ME, Rules(follow_ups=False), joined=joined), Ignore)


def deletion(**before: Any) -> dict[str, Any]:
    """Return the event of a post that was deleted."""
    said = {"type": "message", "ts": "1760000000.000100", "user": "U0HUMAN001", "text": "hello"}
    return event(
        subtype="message_deleted",
        ts="1760000009.000200",
        deleted_ts="1760000000.000100",
        previous_message=said | before,
        user=None,
    )


def test_a_deletion_says_which_post_is_gone_and_whether_it_was_the_root() -> None:
    root = Place("T0AGENT001", "C0CHAN0001", "1760000000.000100")
    ts = "1760000000.000100"
    assert decide(deletion(), ME, Rules()) == Gone(root, ts, root=True)
    assert decide(deletion(thread_ts=ts), ME, Rules()) == Gone(root, ts, root=True)
    thread = replace(root, root="1759999999.000100")
    reply = deletion(thread_ts="1759999999.000100", user=ME.user)
    assert decide(reply, ME, Rules()) == Gone(thread, ts, own=True)
    bare = deletion()
    del bare["event"]["previous_message"]
    assert decide(bare, ME, Rules()) == Gone(root, ts, root=True)


def test_a_tombstone_is_the_deletion_of_a_root() -> None:
    tomb = deletion(thread_ts="1760000000.000100", bot_id=ME.bot)
    said = {"ts": "1760000000.000100", "user": "USLACKBOT", "subtype": "tombstone"}
    tomb["event"] |= {"subtype": "message_changed", "message": said}
    place = Place("T0AGENT001", "C0CHAN0001", "1760000000.000100")
    assert decide(tomb, ME, Rules()) == Gone(place, "1760000000.000100", root=True, own=True)


def test_a_deletion_in_a_flat_conversation_has_no_root() -> None:
    gone = deletion()
    gone["event"] |= {"channel": "D0DM000001", "channel_type": "im"}
    place = Place("T0AGENT001", "D0DM000001", None)
    assert decide(gone, ME, Rules(flat_dms=True)) == Gone(place, "1760000000.000100")


@pytest.mark.parametrize(
    "subtype", ["message_replied", "channel_join", "group_topic", "bot_add", "tombstone"]
)
def test_notices_are_no_questions(subtype: str) -> None:
    notice = event(subtype=subtype, text="<@U0AGENT001> joined")
    assert isinstance(decide(notice, ME, Rules()), Ignore)


@pytest.mark.parametrize("subtype", ["file_share", "me_message", "a_kind_of_tomorrow"])
def test_what_somebody_says_is_heard_whatever_its_kind(subtype: str) -> None:
    said = event(subtype=subtype, text="<@U0AGENT001> hello")
    assert isinstance(decide(said, ME, Rules()), Ask)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"event": None},
        {"event": {"type": "message"}},
        {"event": {"type": "reaction_added"}},
        event(ts=None),
        event(channel={}),
        event(user=None),
        event(type="app_mention", ts="1 2"),
        event(subtype="message_deleted"),
        event(subtype="message_deleted", deleted_ts=5, previous_message="x"),
        event(subtype="message_changed", message={"subtype": "tombstone"}),
        {**event(type="app_mention"), "authorizations": "x"} | {"team_id": None},
    ],
)
def test_what_has_no_place_or_author_is_nothing(broken: Mapping[str, Any]) -> None:
    assert isinstance(decide(broken, ME, Rules()), Ignore)


def test_without_knowing_ourselves_the_envelope_names_us() -> None:
    (ask, _) = asks("S-01")
    (first, _) = envelopes("S-01")
    assert decide(first, Me(), Rules()) == ask
    own = event(user="U0X", app_id="A0AGENT001", channel="D0DM000001")
    assert isinstance(decide(own, Me(), Rules(bots=True)), Ignore)


def test_a_token_says_the_place_again() -> None:
    for place in (Place("T1", "C1", "1.2"), Place("E1", "D1", None)):
        assert Place.of(place.token) == place
    with pytest.raises(ValueError, match="not a token"):
        Place.of("slack:x")
    assert replace(Place("T1", "C1", "1.2"), root=None).token == "slack:T1:C1:dm"


KEYS = sorted(
    {
        *("type", "subtype", "channel", "channel_type", "ts", "thread_ts", "event_ts", "user"),
        *("text", "team", "user_team", "bot_id", "app_id", "bot_profile", "username", "files"),
        *("blocks", "attachments", "edited", "message", "previous_message", "deleted_ts"),
    }
)
WORDS = st.sampled_from(
    [
        *("message", "app_mention", "message_changed", "message_deleted", "bot_message"),
        *("tombstone", "C0CHAN0001", "D0DM000001", "im", "1760000000.000100", "1759999999.000100"),
        *("U0HUMAN001", "U0AGENT001", "B0ALERTS01", "<@U0AGENT001> hi", "stop", "", "\ud83d", "1."),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=8),
    st.dictionaries(
        st.sampled_from(["authorizations", "team_id", "context_team_id", "api_app_id"]), ANYTHING
    ),
    st.booleans(),
    st.sampled_from([None, watch(["C0CHAN0001"]), watch(["C0CHAN0001"], posts="all")]),
)
def test_whatever_comes_there_is_a_decision(
    fields: dict[str, Any], around: dict[str, Any], joined: bool, how: Any
) -> None:
    envelope = event(**fields) | around
    rules = Rules(bots=joined, flat_dms=joined, external=True)
    decision = decide(envelope, ME, rules, joined=lambda _: joined, watched=lambda _: how)
    assert decision == decide(envelope, ME, rules, joined=lambda _: joined, watched=lambda _: how)
    if isinstance(decision, Ask):
        assert Place.of(decision.place.token) == decision.place
        assert decision.text.strip()
        assert float(decision.at) > 0
        assert decision.person.user != ME.user
        if decision.watch is not None:
            assert how is not None
    Said.of(envelope["event"], ME)
