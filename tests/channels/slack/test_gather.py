"""What is fetched for a message: names, what was said before, files; and what is said without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.web.async_client import AsyncWebClient
from tests.channels.slack.world import BOT, CHANNEL, EVENTS, OTHER, PERSON, TEAM, World, at, served

from threadline import Prepared
from threadline.testing import Gated, ManualClock
from threadline_slack.inbound.backfill import Said, order, unseen
from threadline_slack.inbound.decide import Ask, Me, Person, Place
from threadline_slack.inbound.gather import Gatherer, Limits, metadata
from threadline_slack.testing import DEFAULTS, FakeSlack
from threadline_slack.testing.api import Call
from threadline_slack.words.text import File, Text

ME = Me(BOT, DEFAULTS["bot"], DEFAULTS["app"])


def reads(world: World) -> list[Call]:
    """Return the readings of threads; whether one is still there is asked with a limit of one."""
    calls = world.slack.calls("conversations.replies")
    return [call for call in calls if str(call.args.get("limit")) != "1"]


@dataclass
class Desk:
    """A gatherer in a workspace, without a host."""

    slack: FakeSlack
    clock: ManualClock
    gatherer: Gatherer

    async def gather(
        self, ts: str, root: str | None, *files: File, heard: bool = False, **said: Any
    ) -> Prepared:
        """Gather for a person's post."""
        place = Place(TEAM, CHANNEL, root)
        ask = Ask(place, ts, Person(TEAM, PERSON), "hello", Text("hello", files=files, **said))
        known = metadata(ask)
        return await self.gatherer.gather(known, ME, self.clock, None, heard=heard)

    async def before(self, ts: str, root: str, *, heard: bool = False) -> list[str]:
        """Return the lines of what was said before."""
        prepared = await self.gather(ts, root, heard=heard)
        found = [part for part in prepared.context if part.startswith("Said earlier")]
        return found[0].split("\n")[1:] if found else []

    def post(self, text: str, root: str | None = None, user: str = OTHER) -> str:
        return self.slack.user(user).post(CHANNEL, text, thread_ts=root).ts

    async def upload(self, name: str, content: bytes, **options: Any) -> File:
        """Return a file of a message."""
        message = self.slack.user(PERSON).upload(CHANNEL, name, content)
        (file,) = message.files
        url = f"{self.slack.url}/files-pri/{TEAM}-{file.id}/download/it"
        return replace(File(file.id, name, file.mimetype, len(content), url), **options)


@asynccontextmanager
async def desk(limits: Limits | None = None, **options: Any) -> AsyncIterator[Desk]:
    clock = at()
    async with FakeSlack(clock=clock, **options) as slack, aiohttp.ClientSession() as http:
        client = AsyncWebClient(slack.app.bot_token, slack.api_url, session=http, retry_handlers=[])
        yield Desk(slack, clock, Gatherer(client, http, limits))


class TestNames:
    async def test_who_is_mentioned_is_named_beside_the_id(self) -> None:
        async with desk() as one:
            (who,) = (await one.gather("1.1", "1.1", users=(OTHER,), channels=(CHANNEL,))).context
            assert who == (
                f"[From dev1 ({PERSON}) in #general; @{OTHER} is dev2; #{CHANNEL} is #general]"
            )

    async def test_a_name_is_asked_for_once_an_hour(self) -> None:
        async with desk() as one:
            for _ in range(3):
                await one.gather("1.1", "1.1")
            assert len(one.slack.calls("users.info")) == 1
            one.slack.state.users[PERSON].name = "newname"
            one.clock.advance(3_599)
            assert "dev1" in (await one.gather("1.1", "1.1")).context[0]
            one.clock.advance(2)
            assert "newname" in (await one.gather("1.1", "1.1")).context[0]

    async def test_what_cannot_be_learned_keeps_its_old_name(self) -> None:
        async with desk() as one:
            await one.gather("1.1", "1.1")
            one.slack.fail("*", "internal_error", times=None)
            one.clock.advance(3_601)
            assert "dev1" in (await one.gather("1.1", "1.1")).context[0]

    @pytest.mark.parametrize("error", ["user_not_found", "missing_scope", "ratelimited"])
    async def test_without_names_the_ids_stay(self, error: str) -> None:
        async with desk() as one:
            one.slack.fail("users.info", error, times=None)
            assert (await one.gather("1.1", "1.1")).context == [f"[From {PERSON} in #general]"]

    async def test_after_a_rate_limit_slack_is_left_alone_so_long(self) -> None:
        async with desk() as one:
            one.slack.fail("users.info", "ratelimited", retry_after=60)
            await one.gather("1.1", "1.1")
            await one.gather("1.1", "1.1", users=(OTHER,))
            assert len(one.slack.calls("users.info")) == 1
            one.clock.advance(61)
            who = (await one.gather("1.1", "1.1", users=(OTHER,))).context[0]
            assert "dev2" in who

    async def test_many_names_are_asked_for_a_few_at_a_time(self) -> None:
        async with desk() as one:
            users = tuple(one.slack.add_user(f"U0MANY{n:04}", f"one{n}").id for n in range(20))
            gate = one.slack.hold("users.info", "before")
            task = asyncio.ensure_future(one.gather("1.1", "1.1", users=users))
            await one.slack.until(lambda: gate.arrived >= 3)
            await one.slack.settled()
            assert gate.arrived <= 4
            gate.release()
            assert "@U0MANY0019 is one19" in (await task).context[0]

    async def test_a_name_is_one_line(self) -> None:
        async with desk() as one:
            one.slack.state.users[PERSON].name = "a\nb " + "x" * 500
            who = (await one.gather("1.1", "1.1")).context[0]
            assert "a b xxx" in who
            assert len(who) < 200


class TestBackfill:
    async def test_a_thread_is_read_once_and_then_from_there_on(self) -> None:
        async with desk() as one:
            root = one.post("disk is full")
            one.post("on shop-1", root)
            asked = one.post("what now?", root)
            assert await one.before(asked, root) == ["- dev2: disk is full", "- dev2: on shop-1"]
            said = one.post("I rebooted it", root)
            again = one.post("and now?", root)
            assert await one.before(again, root) == ["- dev2: I rebooted it"]
            call = one.slack.calls("conversations.replies")[-1]
            assert (call.args["oldest"], call.args["latest"]) == (asked, again)
            assert order(said) > order(asked)

    async def test_where_every_post_is_heard_nothing_is_read_again(self) -> None:
        async with desk() as one:
            root = one.post("disk is full")
            asked = one.post("what now?", root)
            await one.before(asked, root, heard=True)
            again = one.post("and now?", root)
            assert await one.before(again, root, heard=True) == []
            assert len(one.slack.calls("conversations.replies")) == 1

    async def test_what_came_as_an_event_is_told_without_reading(self) -> None:
        async with desk() as one:
            root = one.post("disk is full")
            asked = one.post("what now?", root)
            await one.before(asked, root, heard=True)
            ignored = {"ts": one.post("a bot's word", root), "user": OTHER, "text": "a bot's word"}
            one.gatherer.backfill.hear(Place(TEAM, CHANNEL, root), ignored, ME)
            again = one.post("and now?", root)
            assert await one.before(again, root, heard=True) == ["- dev2: a bot's word"]
            gone = {"ts": one.post("oops", root), "user": OTHER, "text": "oops"}
            one.gatherer.backfill.hear(Place(TEAM, CHANNEL, root), gone, ME)
            one.gatherer.backfill.unhear(Place(TEAM, CHANNEL, root), gone["ts"])
            later = one.post("still?", root)
            assert await one.before(later, root, heard=True) == []

    async def test_only_what_was_said_since_the_agents_last_answer(self) -> None:
        async with desk() as one:
            root = one.post("first")
            client = AsyncWebClient(one.slack.app.bot_token, one.slack.api_url)
            await client.chat_postMessage(channel=CHANNEL, text="answer", thread_ts=root)
            one.post("second", root)
            asked = one.post("third", root)
            assert await one.before(asked, root) == ["- dev2: second"]

    async def test_at_a_rate_limit_what_is_known_is_told_and_the_lack_of_the_rest(self) -> None:
        async with desk(rate_limits=True, history_limit=1) as one:
            root = one.post("disk is full")
            asked = one.post("what now?", root)
            await one.before(asked, root)
            place = Place(TEAM, CHANNEL, root)
            heard = {"ts": one.post("seen", root), "user": OTHER, "text": "seen"}
            one.gatherer.backfill.hear(place, heard, ME)
            one.post("not seen", root)
            first, *missing = await one.before(one.post("and now?", root), root)
            assert first == "- dev2: seen"
            assert "could be read: Slack answered ratelimited" in missing[0]
            again = await one.before(one.post("now?", root), root)
            assert "ratelimited, for" in again[0]
            assert len(one.slack.calls("conversations.replies")) == 2
            one.clock.advance(60)
            last = await one.before(one.post("so?", root), root)
            assert last == ["- dev2: not seen"]

    async def test_a_page_that_fails_leaves_the_first_ones(self) -> None:
        async with desk() as one:
            root = one.post("disk is full")
            for number in range(250):
                one.post(f"line {number}", root)
            asked = one.post("what now?", root)
            one.slack.fail(
                "conversations.replies",
                "internal_error",
                when=lambda args: bool(args.get("cursor")),
            )
            lines = await one.before(asked, root)
            assert lines[0] == "- dev2: disk is full"
            assert lines[1] == "(160 posts are left out here.)"
            assert "internal_error" in lines[-1]
            rest = await one.before(one.post("and now?", root), root)
            assert len(one.slack.calls("conversations.replies")) == 3
            assert rest[-1] == "- dev2: line 249"
            assert not [line for line in rest if line in lines]

    async def test_a_burst_of_questions_repeats_nothing(self) -> None:
        async with desk() as one:
            root = one.post("disk is full")
            asked = [one.post(f"question {number}", root) for number in range(3)]
            first, *rest = [await one.before(ts, root) for ts in asked]
            assert first == ["- dev2: disk is full"]
            assert rest == [[], []]

    @given(
        st.lists(
            st.tuples(st.integers(1, 50), st.booleans()), max_size=20, unique_by=lambda p: p[0]
        ),
        st.integers(0, 50),
        st.integers(1, 60),
        st.sets(st.integers(1, 50)),
    )
    def test_nothing_is_told_twice_or_out_of_order(
        self, posts: list[tuple[int, bool]], read: int, before: int, told: set[int]
    ) -> None:
        said = [Said(f"{ts}.5", "U1", f"post {ts}", own=own) for ts, own in posts]
        since = f"{read}.5" if read else ""
        found = unseen(said, since, f"{before}.5", {f"{ts}.5" for ts in told})
        stamps = [order(one.ts)[0] for one in found]
        assert stamps == sorted(set(stamps))
        assert all(read < ts < before for ts in stamps)
        assert not told & set(stamps)
        assert not [one for one in found if one.own]
        if read:
            wanted = {ts for ts, own in posts if not own and read < ts < before} - told
            assert wanted == set(stamps)


async def test_what_the_model_has_is_not_told_again_after_a_restart() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, follow_ups=False) as world:
        root = world.slack.user(OTHER).post(CHANNEL, "disk is full").ts
        world.say(f"<@{BOT}> what now?", thread=root)
        await harness.gates["answer"].reached()
        world.slack.user(OTHER).post(CHANNEL, "on shop-1", thread_ts=root)
        harness.release()
        await world.shown(4, root)
        await world.session(root).rest()
        await world.host.restart()
        world.slack.app.request_url = world.host.url + EVENTS
        world.slack.user(OTHER).post(CHANNEL, "I rebooted it", thread_ts=root)
        world.say(f"<@{BOT}> and now?", thread=root)
        await world.shown(7, root)
        session = world.session(root)
        await session.rest()
        first, second = (event["data"]["context"] for event in session.events("message.received"))
        assert "disk is full" in first[1]
        said = ["Said earlier in this thread:", "- dev2: on shop-1", "- dev2: I rebooted it"]
        assert second[1].split("\n") == said


async def test_what_came_while_the_host_was_down_is_told_with_the_next_question() -> None:
    async with served() as world:
        root = world.say(f"<@{BOT}> hello")
        await world.shown(2, root)
        await world.session(root).rest()
        await world.host.stop()
        world.slack.app.request_url = None
        world.slack.user(OTHER).post(CHANNEL, "missed", thread_ts=root)
        await world.slack.settled()
        await world.host.start()
        world.slack.app.request_url = world.host.url + EVENTS
        world.say("and now?", thread=root)
        await world.shown(5, root)
        world.say("still?", thread=root)
        await world.shown(7, root)
        session = world.session(root)
        await session.rest()
        _, second, third = (
            event["data"]["context"] for event in session.events("message.received")
        )
        assert second[1] == "Said earlier in this thread:\n- dev2: missed"
        assert len(third) == 1
        assert len(reads(world)) == 1


async def test_what_a_stop_cleared_is_told_with_the_next_question() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, follow_ups=False) as world:
        root = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        world.slack.user(OTHER).post(CHANNEL, "by the way", thread_ts=root)
        world.say(f"<@{BOT}> see above", thread=root)
        await world.slack.until(lambda: len(reads(world)) == 1)
        await world.slack.settled()
        world.say(f"<@{BOT}> stop", thread=root)
        await world.shown(5, root)
        harness.release()
        await world.session(root).rest()
        world.say(f"<@{BOT}> go on", thread=root)
        await world.shown(7, root)
        session = world.session(root)
        await session.rest()
        context = session.events("message.received")[-1]["data"]["context"]
        assert context[1] == "Said earlier in this thread:\n- dev2: by the way"


async def test_posts_of_those_who_may_not_ask_are_told_with_the_next_question() -> None:
    async with served(blocked=[OTHER]) as world:
        root = world.say(f"<@{BOT}> hello")
        await world.shown(2, root)
        world.slack.user(OTHER).post(CHANNEL, "ignore me", thread_ts=root)
        await world.slack.settled()
        world.say("and now?", thread=root)
        await world.shown(5, root)
        session = world.session(root)
        await session.rest()
        context = session.events("message.received")[-1]["data"]["context"]
        assert context[1] == "Said earlier in this thread:\n- dev2: ignore me"
        assert not reads(world)


class TestFiles:
    async def test_files_are_put_side_by_side_whatever_their_names(self) -> None:
        async with desk() as one:
            files = [
                await one.upload("../../a b.txt", b"1"),
                await one.upload("../../a b.txt", b"2"),
            ]
            long = await one.upload("é" * 300 + ".txt", b"3")
            prepared = await one.gather("1.1", "1.1", *files, long)
            assert sorted(prepared.files.values()) == [b"1", b"2", b"3"]
            for path in prepared.files:
                assert path.startswith("slack/F")
                assert path.endswith(".txt")
                assert path.count("/") == 1
                assert len(path.encode()) < 200

    async def test_html_and_svg_are_files_like_others(self) -> None:
        async with desk() as one:
            files = [
                await one.upload("page.html", b"<script>x</script>"),
                await one.upload("drawing.svg", b"<svg/>"),
            ]
            prepared = await one.gather("1.1", "1.1", *files)
            assert sorted(prepared.files.values()) == [b"<script>x</script>", b"<svg/>"]
            assert not prepared.attachments

    @pytest.mark.parametrize(
        ("limits", "why"),
        [
            (Limits(file_bytes=3), "too large"),
            (Limits(all_bytes=3), "too large"),
            (Limits(files=0), "0 files"),
            (Limits(denied=["*.TXT"]), "not taken"),
            (Limits(denied=["text/*"]), "not taken"),
            (Limits(allowed=["image/*"]), "not taken"),
        ],
    )
    async def test_what_is_over_a_limit_is_named_with_the_reason(
        self, limits: Limits, why: str
    ) -> None:
        async with desk(limits) as one:
            file = await one.upload("notes.txt", b"four")
            for claimed in (file, replace(file, size=0)):
                prepared = await one.gather("1.1", "1.1", claimed)
                assert not prepared.files
                assert why in prepared.context[-1]

    async def test_of_a_shared_channels_file_the_rest_is_asked_for(self) -> None:
        async with desk() as one:
            file = await one.upload("notes.txt", b"four", access="check_file_info", url=None)
            prepared = await one.gather("1.1", "1.1", file)
            assert list(prepared.files.values()) == [b"four"]
            one.slack.fail("files.info", "file_not_found")
            prepared = await one.gather("1.1", "1.1", file)
            assert "Slack answered file_not_found" in prepared.context[-1]

    async def test_a_missing_scope_is_said(self) -> None:
        async with desk() as one:
            file = await one.upload("trace.pdf", b"%PDF")
            one.slack.app.install.scopes = {"users:read"}
            prepared = await one.gather("1.1", "1.1", file)
            assert "files:read" in prepared.context[-1]

    @pytest.mark.parametrize("found", ["page", "outage"])
    async def test_a_page_instead_of_a_file_and_an_outage(self, found: str) -> None:
        asked = 0

        async def answer(request: web.Request) -> web.Response:
            nonlocal asked
            asked += 1
            if found == "page":
                return web.Response(text="<html>Sign in</html>", content_type="text/html")
            return web.Response(status=503) if asked == 1 else web.Response(body=b"%PDF")

        async with desk() as one, aiohttp.ClientSession() as http:
            runner = web.AppRunner(app := web.Application(), shutdown_timeout=0.1)
            app.router.add_get("/{tail:.*}", answer)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            base = f"http://127.0.0.1:{runner.addresses[0][1]}"
            client = AsyncWebClient("xoxb-1", f"{base}/api/", session=http, retry_handlers=[])
            one.gatherer._downloads._client = client
            file = File("F1", "trace.pdf", "application/pdf", 4, f"{base}/trace.pdf")
            work = one.gather("1.1", "1.1", file)
            if found == "page":
                prepared = await work
                assert (asked, "files:read" in prepared.context[-1]) == (1, True)
            else:
                task = asyncio.ensure_future(work)
                while not task.done():
                    await asyncio.sleep(0)
                    if asked == 1 and one.clock.sleepers > 1:
                        one.clock.advance(1)
                assert list((await task).files.values()) == [b"%PDF"]
            await runner.cleanup()

    async def test_what_is_no_file_is_called_what_it_is(self) -> None:
        async with desk() as one:
            elsewhere = File(
                "F1", "Plan", "text/html", 0, "https://docs.example/1", kind="external"
            )
            canvas = await one.upload("Plan", b"<h1>Plan</h1>", kind="quip", mimetype="x/y")
            todo = File("F3", "Todo", "x/y", 0, "https://x.slack.com/3", kind="list")
            prepared = await one.gather("1.1", "1.1", elsewhere, canvas, todo)
            (path,) = prepared.files
            assert path == f"slack/{canvas.id}-Plan.html"
            said = prepared.context[-1]
            assert "it is kept elsewhere: https://docs.example/1" in said
            assert "Plan (a Slack canvas, as HTML, 13 bytes)" in said
            assert "Todo (a Slack list): not available" in said

    async def test_the_token_goes_to_slack_alone(self) -> None:
        async with desk() as one:
            for url in ("https://slack.com.evil.test/f", "http://files.slack.com/f", "ftp://x/f"):
                prepared = await one.gather("1.1", "1.1", File("F1", "f", "text/plain", 1, url))
                assert "kept elsewhere" in prepared.context[-1]

    async def test_what_is_slow_does_not_hold_up_the_rest(self) -> None:
        async with desk() as one:
            file = await one.upload("notes.txt", b"four", access="check_file_info")
            gate = one.slack.hold("files.info", "before")
            task = asyncio.ensure_future(one.gather("1.1", "1.1", file))
            await one.slack.until(lambda: gate.arrived and one.slack.calls("users.info"))
            await one.clock.sleeping(1)
            one.clock.advance(17)
            prepared = await task
            assert "From" in prepared.context[0]
            assert prepared.context[-1] == "(The files of this message came too late: notes.txt.)"
            gate.release()
