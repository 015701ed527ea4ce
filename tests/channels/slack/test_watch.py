"""Alert-watch: what is heard without a mention, what is one prompt, and what becomes a digest."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.channels.slack.world import BOT, EVENTS, PERSON, TEAM, World, deliver, served

from threadline_slack import SlackChannel, watch
from threadline_slack.inbound.decide import Ask, Decision, Ignore, Me, Rules, Stop, decide
from threadline_slack.inbound.storms import Storms
from threadline_slack.inbound.watch import Watch, fingerprint, own_content

CASES = {
    case["id"]: case
    for case in map(
        json.loads, (Path(__file__).parent / "inbound_cases.jsonl").read_text("utf-8").splitlines()
    )
}
ME = Me("U0AGENT001", "B0AGENT001", "A0AGENT001")
ALERTS, ALERTER, ALERT_BOT = "C0ALERTS01", "U0ALERTS01", "B0ALERTS01"
WATCH = watch([ALERTS])
FIRING = {
    "title": "[FIRING:1] HighErrorRate",
    "title_link": "http://alertmanager.test:9093/#/alerts",
    "text": "5xx ratio 12% on checkout",
    "fields": [{"title": "severity", "value": "critical", "short": True}],
    "fallback": "[FIRING:1] HighErrorRate checkout",
}
RESOLVED = FIRING | {"title": "[RESOLVED] HighErrorRate"}


def decided(
    envelope: dict[str, Any],
    how: Watch | None = WATCH,
    rules: Rules | None = None,
    joined: tuple[str, ...] = (),
) -> Decision:
    """Decide an event as if its channel were watched."""
    return decide(envelope, ME, rules or Rules(), joined=joined.__contains__, watched=lambda _: how)


def posted(**fields: Any) -> dict[str, Any]:
    """Return the event of an alert."""
    envelope: dict[str, Any] = copy.deepcopy(CASES["A-26"]["payload"])
    envelope["event"] |= fields
    return envelope


def changed(**fields: Any) -> dict[str, Any]:
    """Return the event of an alert that its app changed."""
    envelope: dict[str, Any] = copy.deepcopy(CASES["A-28"]["steps"][1]["body"])
    envelope["event"]["message"] |= fields
    return envelope


class TestDecisions:
    def test_a26_a_post_that_is_all_attachment_is_a_question(self) -> None:
        ask = decided(CASES["A-26"]["payload"])
        assert isinstance(ask, Ask)
        for said in ("HighErrorRate", "5xx ratio 12%", "severity: critical", "alertmanager.test"):
            assert said in ask.text
        assert ask.text.count("HighErrorRate") == 1
        assert (ask.place.root, ask.watch, ask.mentioned) == (ask.ts, WATCH, False)
        assert (ask.person.bot, ask.person.name) == (True, "Alertmanager")

    def test_a26_a_post_that_is_all_blocks_is_one_too(self) -> None:
        blocks = [
            {"type": "header", "text": {"type": "plain_text", "text": "[FIRING:1] HighErrorRate"}},
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": "<http://a.test/1|5xx ratio 12%> on checkout"},
                "fields": [{"type": "mrkdwn", "text": "*severity*\ncritical"}],
            },
        ]
        envelope = posted(attachments=[], blocks=blocks)
        del envelope["event"]["text"]
        ask = decided(envelope)
        assert isinstance(ask, Ask)
        for said in ("HighErrorRate", "5xx ratio 12%", "critical", "http://a.test/1"):
            assert said in ask.text

    def test_a26_elsewhere_it_is_nothing(self) -> None:
        assert isinstance(decided(CASES["A-26"]["payload"], None), Ignore)

    def test_a28_a_change_continues_the_session_of_its_post_once_for_each_content(self) -> None:
        first, second, again = (decided(step["body"]) for step in CASES["A-28"]["steps"])
        assert isinstance(first, Ask)
        assert isinstance(second, Ask)
        assert isinstance(again, Ask)
        assert first.place == second.place
        assert "[RESOLVED]" in second.text
        assert second.delivery_id == again.delivery_id != first.delivery_id
        assert float(second.at) > float(first.at)
        assert isinstance(decided(CASES["A-28"]["steps"][1]["body"], None), Ignore)

    def test_a28_a_mention_in_an_attachment_is_no_other_question(self) -> None:
        quoting = FIRING | {"text": "asked <@U0AGENT001> already"}
        said = decided(posted(attachments=[quoting]))
        twin = posted(attachments=[quoting], type="app_mention")
        assert isinstance(said, Ask)
        assert decided(twin) == said
        assert not said.mentioned
        assert decided(changed(attachments=[quoting])) != said

    def test_what_slack_adds_to_a_post_is_no_change(self) -> None:
        body = copy.deepcopy(CASES["A-28"]["steps"][1]["body"])
        before = body["event"]["previous_message"]
        preview = {"from_url": "https://x.test", "title": "A page", "text": "preview"}
        more = {
            "attachments": [before["attachments"][0] | {"id": 7}, preview],
            "reply_count": 3,
            "pinned_to": ["C1"],
        }
        body["event"]["message"] = before | more
        assert isinstance(decided(body), Ignore)
        assert "preview" not in str(own_content(before | more))

    def test_the_agents_own_posts_are_never_heard(self) -> None:
        for own in ({"bot_id": ME.bot}, {"user": ME.user}, {"app_id": ME.app}):
            assert isinstance(decided(posted(**own)), Ignore), own
            assert isinstance(decided(changed(**own)), Ignore), own

    def test_top_level_leaves_replies_out_that_do_not_mention_the_agent(self) -> None:
        reply = posted(thread_ts="1759999999.000100", text="still there")
        token = f"slack:{TEAM}:{ALERTS}:1759999999.000100"
        assert isinstance(decided(reply, joined=(token,)), Ignore)
        person = posted(thread_ts="1759999999.000100", text="hm", user=PERSON, subtype=None)
        del person["event"]["bot_id"], person["event"]["attachments"]
        assert isinstance(decided(person, joined=(token,)), Ignore)
        everything = decided(person, watch([ALERTS], posts="all"))
        assert isinstance(everything, Ask)
        assert everything.place.token == token
        person["event"]["text"] = "<@U0AGENT001> hm"
        asked = decided(person)
        assert isinstance(asked, Ask)
        assert (asked.watch, asked.mentioned) == (None, True)

    def test_a_change_of_a_reply_is_not_followed(self) -> None:
        growing = changed(thread_ts="1759999999.000100")
        assert isinstance(decided(growing, watch([ALERTS], posts="all")), Ignore)

    def test_a_person_who_may_not_ask_is_not_heard_there_and_a_blocked_bot_neither(self) -> None:
        person = posted(user=PERSON, subtype=None, text="look")
        del person["event"]["bot_id"]
        only = Rules(allowed=frozenset({"U0HUMAN002"}))
        assert isinstance(decided(person), Ask)
        assert isinstance(decided(person, rules=only), Ignore)
        assert isinstance(decided(posted(), rules=only), Ask)
        blocked = Rules(blocked=frozenset({"B0ALERTS01"}))
        assert isinstance(decided(posted(), rules=blocked), Ignore)

    def test_only_people_stop_the_agent(self) -> None:
        stop = posted(text="stop", attachments=[], thread_ts="1759999999.000100")
        token = f"slack:{TEAM}:{ALERTS}:1759999999.000100"
        everything = watch([ALERTS], posts="all")
        assert isinstance(decided(stop, everything, joined=(token,)), Ask)
        stop["event"] |= {"user": PERSON, "subtype": None}
        del stop["event"]["bot_id"]
        decision = decided(stop, joined=(token,))
        assert isinstance(decision, Stop)
        assert not decision.addressed

    def test_a_post_that_says_nothing_is_nothing(self) -> None:
        assert isinstance(decided(posted(attachments=[])), Ignore)
        assert isinstance(decided(changed(attachments=[])), Ignore)

    def test_a_fingerprint_is_of_the_words(self) -> None:
        one = {"text": "a", "attachments": [FIRING]}
        assert fingerprint(one) == fingerprint({**one, "attachments": [FIRING | {"id": 9}]})
        assert fingerprint(one) != fingerprint({**one, "attachments": [RESOLVED]})


class TestOptions:
    @pytest.mark.parametrize(
        ("wrong", "options"),
        [
            ([], {}),
            ("C0123", {}),
            (["alerts"], {}),
            (["D0123"], {}),
            (["#a"], {"posts": "top-level"}),
            (["#a"], {"debounce": 16}),
            (["#a"], {"debounce": -1}),
            (["#a"], {"storm": 0}),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, wrong: Any, options: Any) -> None:
        with pytest.raises(ValueError):
            watch(wrong, **options)

    def test_a_channel_is_watched_in_one_way(self) -> None:
        with pytest.raises(ValueError, match="twice"):
            SlackChannel(watch=[watch(["#a"]), watch(["#a", "#b"])])


class TestStorms:
    def test_the_first_that_is_too_many_takes_those_behind_it(self) -> None:
        storms = Storms()
        taken = [storms.take("c", f"{100 + n}.0", 100.0 + n, 3) for n in range(6)]
        assert taken == [None, None, None, "103.0", "103.0", "103.0"]

    def test_a_storm_ends_a_minute_after_the_last_post_of_its_rate(self) -> None:
        storms = Storms()
        for n in range(6):
            storms.take("c", f"{100 + n}.0", 100.0 + n, 3)
        assert storms.take("c", "165.0", 165.0, 3) == "103.0"
        assert storms.take("c", "166.0", 166.0, 3) is None
        assert storms.take("c", "104.0", 500.0, 3) == "103.0"

    def test_a_post_that_comes_late_joins_the_storm_that_it_was_part_of(self) -> None:
        storms = Storms()
        late = [storms.take("c", f"{100 - n}.0", 100.0 - n, 3) for n in range(6)]
        assert late == [None, None, None, "97.0", "97.0", "97.0"]
        assert storms.dump() == {"c": [["97.0", 95.0, 157.0]]}

    def test_channels_have_storms_of_their_own(self) -> None:
        storms = Storms()
        for n in range(6):
            storms.take("c", f"{100 + n}.0", 100.0 + n, 3)
        assert storms.take("d", "107.0", 107.0, 3) is None

    def test_the_same_post_again_is_the_same_answer_and_counts_once(self) -> None:
        storms = Storms()
        assert {storms.take("c", "100.0", 100.0, 3) for _ in range(9)} == {None}

    def test_what_was_stored_goes_on(self) -> None:
        storms, again = Storms(), Storms()
        for n in range(6):
            storms.take("c", f"{100 + n}.0", 100.0 + n, 3)
        stale = [storms.stale]
        again.load(json.loads(json.dumps(storms.dump())))
        assert [*stale, storms.stale, again.stale] == [True, False, False]
        assert again.take("c", "110.0", 110.0, 3) == "103.0"

    @given(
        st.lists(
            st.tuples(st.integers(0, 400), st.integers(0, 30)),
            min_size=1,
            max_size=80,
            unique_by=lambda post: post[0],
        ),
        st.integers(1, 8),
    )
    def test_never_more_sessions_a_minute_than_were_allowed(
        self, posts: list[tuple[int, int]], most: int
    ) -> None:
        """Each post has its time, and by how much it arrives late."""
        storms = Storms()
        own: list[int] = []
        digests: set[str] = set()
        times = [1_000 + at for at, _ in sorted(posts, key=sum)]
        for at in times:
            taken = storms.take("c", f"{at}.0", float(at), most)
            if taken is None:
                assert sum(abs(one - at) < 60 for one in own) < most
                own.append(at)
            else:
                digests.add(taken)
        assert len(storms.dump().get("c", [])) <= 10
        assert bool(digests) == (len(own) < len(times))


def alerts(world: World, *, name: str = "alerts") -> Any:
    """Add the channel of the alerts, and return the bot that posts there."""
    members = [BOT, PERSON, ALERTER]
    world.slack.add_bot(ALERTER, "alertmanager", bot_id=ALERT_BOT, app="A0ALERTS01")
    world.slack.add_channel(ALERTS, name, members=members)
    return world.slack.bot(ALERT_BOT)


async def accepted(world: World, count: int) -> None:
    """Wait until so many deliveries are durable."""
    await world.slack.until(lambda: len(world.accepted) == count)
    await world.slack.settled()


def prompts(session: Any) -> list[list[str]]:
    """Return the deliveries of each prompt."""
    return [event["data"]["deliveryIds"] for event in session.events("message.received")]


async def test_a26_an_alert_is_answered_in_its_thread() -> None:
    async with served(watch=watch([ALERTS], debounce=0)) as world:
        ts = alerts(world).post(ALERTS, attachments=[FIRING], classic=True).ts
        shown = await world.shown(2, ts, ALERTS)
        session = world.session(ts, ALERTS)
        await session.rest()
        assert "HighErrorRate" in shown[1]
        (prompt,) = session.events("message.received")
        assert "http://alertmanager.test:9093/#/alerts" in prompt["data"]["text"]
        assert "#alerts; a channel that you watch" in prompt["data"]["context"][0]
        assert prompt["data"]["parts"][0]["sender"]["name"] == "alertmanager"
        world.host.check_laws()


async def test_a28_the_resolution_reaches_the_session_once() -> None:
    async with served(watch=watch([ALERTS], debounce=0)) as world:
        bot = alerts(world)
        post = bot.post(ALERTS, attachments=[FIRING])
        await world.shown(2, post.ts, ALERTS)
        bot.edit(post, attachments=[RESOLVED])
        shown = await world.shown(3, post.ts, ALERTS)
        assert "[RESOLVED]" in shown[2]
        again = copy.deepcopy(world.slack.deliveries("message", "message_changed")[-1].body)
        again["event_id"] = "Ev0AGAIN"
        assert (await deliver(world, again)).status == 200
        session = world.session(post.ts, ALERTS)
        await session.rest()
        assert len(prompts(session)) == 2
        (changed,) = session.events("message.received")[1]["data"]["context"]
        assert "was changed" in changed
        assert world.accepted == {one for ids in prompts(session) for one in ids}


async def test_two_watching_agents_do_not_talk_for_ever() -> None:
    """Another agent answers each of our answers; nobody else says a word."""
    everything = watch([ALERTS], posts="all", debounce=0)
    async with served(watch=everything, bot_turns=3) as world:
        bot = alerts(world)
        root = bot.post(ALERTS, "disk is full").ts
        for turn in range(3):
            await world.shown(2 + 2 * turn, root, ALERTS)
            bot.post(ALERTS, f"noted {turn}", thread_ts=root)
        await world.shown(8, root, ALERTS)
        bot.post(ALERTS, "noted again", thread_ts=root)
        await world.slack.settled()
        await world.session(root, ALERTS).rest()
        assert len(prompts(world.session(root, ALERTS))) == 4
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        bot.post(ALERTS, "noted once more", thread_ts=root)
        await world.slack.settled()
        await world.session(root, ALERTS).rest()
        assert len(prompts(world.session(root, ALERTS))) == 4
        world.slack.user(PERSON).post(ALERTS, "go on, both", thread_ts=root)
        await world.shown(12, root, ALERTS)
        bot.post(ALERTS, "will do", thread_ts=root)
        assert len(await world.shown(14, root, ALERTS)) == 14


async def test_an_alert_that_changes_for_ever_is_heard_only_so_often() -> None:
    async with served(watch=watch([ALERTS], debounce=0), bot_turns=1) as world:
        bot = alerts(world)
        post = bot.post(ALERTS, "seen 0 times")
        for number in range(1, 25):
            bot.edit(post, text=f"seen {number} times")
            await world.slack.settled()
        assert len(world.accepted) == 21
        await world.session(post.ts, ALERTS).rest()
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        bot.edit(post, text="seen 25 times")
        await world.slack.settled()
        assert len(world.accepted) == 21
        world.slack.user(PERSON).post(ALERTS, f"<@{BOT}> and now?", thread_ts=post.ts)
        await accepted(world, 22)
        bot.edit(post, text="it is over")
        await accepted(world, 23)
        await world.session(post.ts, ALERTS).rest()


async def test_what_comes_close_together_is_one_prompt() -> None:
    everything = watch([ALERTS], posts="all", debounce=10)
    async with served(watch=everything) as world:
        bot = alerts(world)
        post = bot.post(ALERTS, "disk is full")
        await accepted(world, 1)
        world.clock.advance(4)
        bot.post(ALERTS, "host is shop-1", thread_ts=post.ts)
        await accepted(world, 2)
        world.clock.advance(5)
        world.slack.user(PERSON).post(ALERTS, "looking", thread_ts=post.ts)
        await accepted(world, 3)
        session = world.session(post.ts, ALERTS)
        assert not prompts(session)
        world.clock.advance(1)
        await session.rest()
        (ids,) = prompts(session)
        assert len(ids) == 3
        assert len(await world.shown(4, post.ts, ALERTS)) == 4


async def test_a_question_does_not_wait() -> None:
    async with served(watch=watch([ALERTS], debounce=15)) as world:
        alerts(world)
        ts = world.say(f"<@{BOT}> what is this?", channel=ALERTS)
        assert len(await world.shown(2, ts, ALERTS)) == 2


async def test_what_waited_when_the_host_died_is_prompted_once() -> None:
    async with served(watch=watch([ALERTS], debounce=10)) as world:
        post = alerts(world).post(ALERTS, "disk is full")
        await accepted(world, 1)
        await world.host.kill()
        world.clock.advance(60)
        await world.host.start()
        session = world.session(post.ts, ALERTS)
        await session.rest()
        (prompt,) = session.events("message.received")
        assert "#alerts" in prompt["data"]["context"][0]
        assert len(await world.shown(2, post.ts, ALERTS)) == 2
        world.host.check_laws()


async def test_a_storm_becomes_one_digest() -> None:
    async with served(watch=watch([ALERTS], storm=5, debounce=10)) as world:
        bot = alerts(world)
        posts = [bot.post(ALERTS, "alert 0")]
        for number in range(1, 40):
            await accepted(world, number)
            said = "x" * 900 if number == 20 else f"alert {number}"
            posts.append(bot.post(ALERTS, said, classic=number == 10))
        await accepted(world, 40)
        roots = [post.ts for post in posts if world.session(post.ts, ALERTS) is not None]
        assert roots == [post.ts for post in posts[:6]]
        for root in roots:
            await world.passing(world.session(root, ALERTS).rest(), step=0.5)
        digest = world.session(posts[5].ts, ALERTS)
        assert len([one for ids in prompts(digest) for one in ids]) == 35
        first, *later = digest.events("message.received")
        (told,) = first["data"]["context"]
        assert "one short digest" in told
        assert not [event for event in later if "context" in event["data"]]
        answers = await world.shown(2, posts[5].ts, ALERTS)
        assert "alert 39" in answers[-1]
        text = first["data"]["text"]
        assert "alertmanager: alert 10" in text
        assert text.count("x") < 510
        for number, post in enumerate(posts[12:38], 41):
            bot.edit(post, text="it is over")
            await accepted(world, number)
        await world.passing(digest.rest(), step=0.5)
        changed = {post.ts for post in posts[12:38]}
        assert {one.split(":")[2] for one in prompts(digest)[-1]} == changed
        asked = world.slack.user(PERSON).post(ALERTS, f"<@{BOT}> why?", thread_ts=posts[31].ts)
        await world.slack.until(lambda: world.session(posts[31].ts, ALERTS) is not None)
        await world.session(posts[31].ts, ALERTS).rest()
        assert prompts(world.session(posts[31].ts, ALERTS)) == [[f"{TEAM}:{ALERTS}:{asked.ts}"]]
        world.host.check_laws()


async def test_replies_of_bots_do_not_keep_alerts_out_of_their_digest() -> None:
    everything = watch([ALERTS], posts="all", storm=1, debounce=0)
    async with served(watch=everything, bot_turns=1) as world:
        bot = alerts(world)
        bot.post(ALERTS, "alert 0")
        await accepted(world, 1)
        digest = bot.post(ALERTS, "alert 1")
        await accepted(world, 2)
        for number in range(2):
            bot.post(ALERTS, f"reply {number}", thread_ts=digest.ts)
            await world.slack.settled()
        assert len(world.accepted) == 3
        bot.post(ALERTS, "alert 2")
        await accepted(world, 4)
        await world.passing(world.session(digest.ts, ALERTS).rest())
        contexts = [
            event["data"].get("context")
            for event in world.session(digest.ts, ALERTS).events("message.received")
        ]
        assert sum("one short digest" in str(context) for context in contexts) == 1


async def test_a_storm_goes_on_after_a_crash() -> None:
    async with served(watch=watch([ALERTS], storm=3, debounce=0)) as world:
        bot = alerts(world)
        posts = [bot.post(ALERTS, f"alert {number}") for number in range(2)]
        await accepted(world, 2)
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        for number in range(2, 6):
            posts.append(bot.post(ALERTS, f"alert {number}"))
            await accepted(world, number + 1)
        store = world.host.agent().store
        await world.host.until(lambda: store.kv_get("channel/slack/watch/storms"))
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        posts.append(bot.post(ALERTS, "alert 6"))
        await accepted(world, 7)
        found = [post.ts for post in posts if world.session(post.ts, ALERTS) is not None]
        assert found == [post.ts for post in posts[:4]]


async def test_a_channel_by_name_is_found_and_known_when_slack_is_away() -> None:
    async with served(watch=watch(["#alerts"], debounce=0)) as world:
        bot = alerts(world)
        bot.post(ALERTS, "not heard yet")
        await world.slack.settled()
        world.clock.advance(300)
        bot.post(ALERTS, "not heard, but the channel is looked up")
        await world.slack.until(lambda: len(world.slack.calls("users.conversations")) == 2)
        await world.slack.settled()
        world.slack.fail("users.conversations", times=None)
        with capture_logs() as logs:
            await world.host.restart()
        assert "slack.channels_not_read" in [one["event"] for one in logs]
        world.slack.app.request_url = world.host.url + EVENTS
        heard = bot.post(ALERTS, "heard")
        await world.shown(2, heard.ts, ALERTS)
        assert world.accepted == {f"{TEAM}:{ALERTS}:{heard.ts}"}


async def test_a_channel_that_is_not_found_is_said() -> None:
    with capture_logs() as logs:
        async with served(watch=watch(["#general", "#nowhere"])) as world:
            ts = world.say("hello")
            await accepted(world, 1)
            await world.passing(world.session(ts).rest())
    missing = [one["name"] for one in logs if one["event"] == "slack.channel_not_found"]
    assert missing == ["#nowhere"]
