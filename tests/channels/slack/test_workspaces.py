"""Which installation serves a workspace, from the first event to the last post."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.channels.slack.many import (
    KEY,
    OTHER_KEY,
    SECOND,
    SECOND_CHANNEL,
    SECOND_PERSON,
    Many,
    many,
)
from tests.channels.slack.world import BOT, CHANNEL, PERSON, TEAM, deliver

from threadline import TryAgain
from threadline.errors import ProjectError
from threadline.testing import Gated, ManualClock
from threadline_slack.installing.sealing import WrongKey
from threadline_slack.installing.workspaces import NotInstalled, Where, where_of
from threadline_slack.testing.model import Install

ORG, HOURS = "E0ORG00001", 3_600


# Where a payload comes from


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"type": "url_verification", "challenge": "x"}, None),
        ({"ssl_check": "1"}, None),
        ({"team_id": "T1/../x"}, None),
        ({"type": "event_callback", "team_id": "T1"}, Where("T1")),
        ({"type": "app_rate_limited", "team_id": "T1"}, Where("T1")),
        ({"command": "/ask", "team_id": "T1", "enterprise_id": "E1"}, Where("T1", "E1")),
        ({"type": "block_actions", "team": {"id": "T1"}}, Where("T1")),
        ({"team": None, "user": {"team_id": "T1"}, "enterprise": {"id": "E1"}}, Where("T1", "E1")),
        ({"team": {"id": "T9"}, "view": {"app_installed_team_id": "T1"}}, Where("T1")),
        (
            {"team": {"id": "T9"}, "api_app_id": "A1", "message": {"app_id": "A1", "team": "T1"}},
            Where("T1"),
        ),
        (
            {"team": {"id": "T1"}, "api_app_id": "A1", "message": {"app_id": "A9", "team": "T9"}},
            Where("T1"),
        ),
    ],
)
def test_where_a_payload_comes_from(payload: dict[str, Any], where: Where | None) -> None:
    assert where_of(payload) == where


def event(team: str | None, enterprise: str | None = None, **more: Any) -> dict[str, Any]:
    own = {
        "team_id": team,
        "enterprise_id": enterprise,
        "user_id": BOT,
        "is_bot": True,
        "is_enterprise_install": team is None,
    }
    return {"type": "event_callback", "team_id": "T0EVENT", "authorizations": [own], **more}


def test_where_an_event_comes_from() -> None:
    assert where_of(event("T1")) == Where("T1")
    assert where_of(event("T1", "E1")) == Where("T1", "E1")
    # What the whole organisation installed has the event's own workspace.
    assert where_of(event(None, "E1")) == Where("T0EVENT", "E1")
    # Of a Slack Connect channel the event's workspace may be the partner's.
    shared = {"is_ext_shared_channel": True, "enterprise_id": "E0PARTNER"}
    assert where_of(event("T1", **shared)) == Where("T1")
    assert where_of(event(None, "E1", **shared)) == Where("E1", "E1")
    assert where_of(event(None, "E1", context_team_id="T1", **shared)) == Where("T1", "E1")


def test_the_order_of_the_look_ups() -> None:
    assert Where("T1").keys == [(None, "T1")]
    assert Where("T1", "E1").keys == [("E1", "T1"), (None, "T1"), ("E1", None)]
    assert Where("E1", "E1").keys == [("E1", None)]


# Organisations


def organise(world: Many, *, bot: str = BOT) -> Install:
    """Put both workspaces into one organisation, which installs the app."""
    for team in (TEAM, SECOND):
        world.slack.state.teams[team].enterprise = ORG
    world.slack.app.installs.clear()
    install = world.slack.install(world.slack.app, enterprise=ORG, bot_user=bot)
    world.slack.state.channels[SECOND_CHANNEL].members.setdefault(bot)
    return install


async def test_an_organisation_installs_and_all_its_workspaces_are_served() -> None:
    """S-32: the look-up falls back to the organisation; the workspace goes along with the calls."""
    async with many() as world:
        install = organise(world)
        assert await world.come_back(install) == 200
        await world.asked(TEAM, CHANNEL, PERSON)
        await world.asked(SECOND, SECOND_CHANNEL, SECOND_PERSON)
        posts = world.slack.calls("chat.postMessage")
        assert [(call.token, call.args["team_id"]) for call in posts] == [
            (install.token, TEAM),
            (install.token, SECOND),
        ]


async def test_a_restarted_host_knows_the_organisation_of_a_conversation() -> None:
    harness = Gated(hold=["answer"])
    async with many(harness) as world:
        install = organise(world)
        await world.come_back(install)
        ts = world.slack.user(PERSON).post(CHANNEL, f"<@{BOT}> hello").ts
        await harness.gates["answer"].reached()
        await world.host.kill()
        harness.release()
        await world.host.start()
        assert (await world.shown(2, ts))[1:] == ["hello"]


async def test_the_workspaces_own_installation_comes_before_the_organisations() -> None:
    async with many() as world:
        whole = organise(world)
        await world.come_back(whole)
        await world.asked(SECOND, SECOND_CHANNEL, SECOND_PERSON)
        own = world.slack.install(world.slack.app, team=SECOND, bot_user="U0OWNBOT01")
        await world.come_back(own)
        bot = await world.bots.of(SECOND)
        await bot.client.auth_test()
        assert bot.client.token == own.token
        assert (await world.bots.of(TEAM)).client.token == whole.token


async def test_equal_channel_and_ts_in_two_workspaces_never_mix() -> None:
    async with many() as world:
        organise(world)
        await world.come_back(world.slack.app.install)
        for team in (TEAM, SECOND):
            post = {
                "type": "app_mention",
                "user": PERSON,
                "team": team,
                "channel": CHANNEL,
                "ts": "1760000000.000100",
                "text": f"<@{BOT}> from {team}",
            }
            body = event(None, ORG, event=post) | {"team_id": team}
            assert (await deliver(world, body)).status == 200
        assert world.accepted == {f"{team}:{CHANNEL}:1760000000.000100" for team in (TEAM, SECOND)}
        store = world.host.agent().store
        tokens = [f"slack:{team}:{CHANNEL}:1760000000.000100" for team in (TEAM, SECOND)]
        first, second = (store.session_by_token("slack", token) for token in tokens)
        assert first is not None
        assert second is not None
        assert first.id != second.id


# Slack Connect


async def test_a_partner_in_a_shared_channel_is_answered_by_the_installed_side() -> None:
    async with many(external=True) as world:
        await world.install()
        world.slack.add_team("T0PARTNER1")
        world.slack.add_user("U0PARTNER1", "pat", team="T0PARTNER1")
        members = [BOT, PERSON, "U0PARTNER1"]
        world.slack.add_channel("C0SHARED01", "shared", members=members, teams=["T0PARTNER1", TEAM])
        token = await world.asked(TEAM, "C0SHARED01", "U0PARTNER1")
        world.slack.user(PERSON).post("C0SHARED01", "and mine", thread_ts=token.rpartition(":")[2])
        shown = await world.shown(4, token.rpartition(":")[2], "C0SHARED01")
        assert shown[-1] == "and mine"
        assert {call.token for call in world.slack.calls("chat.postMessage")} == {world.token}


@pytest.mark.parametrize("external", [False, True])
async def test_a_partner_is_a_stranger_to_an_organisations_installation(external: bool) -> None:
    """The event's workspace is the partner's own, and so is no sign that they belong here."""
    async with many(external=external) as world:
        install = organise(world)
        await world.come_back(install)
        world.slack.add_team("T0PARTNER1")
        world.slack.add_user("U0PARTNER1", "pat", team="T0PARTNER1")
        members = [BOT, PERSON, "U0PARTNER1"]
        world.slack.add_channel("C0SHARED01", "shared", members=members, teams=[TEAM, "T0PARTNER1"])
        ts = world.slack.user("U0PARTNER1").post("C0SHARED01", f"<@{BOT}> hello").ts
        if not external:
            await world.slack.settled()
            assert not world.accepted
            return
        await world.shown(2, ts, "C0SHARED01")
        world.slack.user(PERSON).post("C0SHARED01", "and mine", thread_ts=ts)
        assert (await world.shown(4, ts, "C0SHARED01"))[-1] == "and mine"
        # One conversation, whoever speaks in it.
        assert {one.rpartition(":")[0] for one in world.accepted} == {f"{ORG}:C0SHARED01"}
        assert all("team_id" not in one.args for one in world.slack.calls("chat.postMessage"))


SHARED, FIRST_BOT, SECOND_BOT = "C0SHARED01", BOT, "U0SECOND99"


async def both(world: Many) -> None:
    """Install the app on both sides of a shared channel, with both bots in it."""
    world.slack.install(world.slack.app, team=SECOND, bot_user=SECOND_BOT)
    await world.install(TEAM)
    await world.install(SECOND)
    members = [FIRST_BOT, SECOND_BOT, PERSON, SECOND_PERSON]
    world.slack.add_channel(SHARED, "shared", members=members, teams=[TEAM, SECOND])


def said(team: str, user: str, text: str, ts: str, **more: Any) -> dict[str, Any]:
    """Return what Slack sends of it: always through the side that joined last."""
    own = {"team_id": SECOND, "user_id": SECOND_BOT, "is_bot": True, "is_enterprise_install": False}
    post = {
        "type": "message",
        "channel": SHARED,
        "user": user,
        "user_team": team,
        "team": team,
        "text": text,
        "ts": ts,
        **more,
    }
    return {
        "type": "event_callback",
        "team_id": TEAM,
        "is_ext_shared_channel": True,
        "authorizations": [own],
        "event": post,
    }


async def test_where_both_sides_installed_the_app_each_has_its_own_bot() -> None:
    async with many() as world:
        await both(world)
        root, ask = "1759999900.000100", f"<@{FIRST_BOT}> hello"
        world.slack.plant(said(TEAM, PERSON, ask, root)["event"])
        for kind in ("message", "app_mention"):
            assert (await deliver(world, said(TEAM, PERSON, ask, root, type=kind))).status == 200
        assert (await world.shown(2, root, SHARED))[1:] == ["hello"]
        # A follow-up without a mention goes on in the same conversation.
        more = said(TEAM, PERSON, "and this", "1759999900.000200", thread_ts=root)
        assert (await deliver(world, more)).status == 200
        assert (await world.shown(3, root, SHARED))[-1] == "and this"
        # The other side's people have the other side's bot.
        other = "1759999900.000300"
        theirs = said(SECOND, SECOND_PERSON, f"<@{SECOND_BOT}> hi", other)
        world.slack.plant(theirs["event"])
        assert (await deliver(world, theirs)).status == 200
        assert (await world.shown(2, other, SHARED))[1:] == ["hi"]
        first, second = (
            next(one.token for one in world.slack.app.installs if one.team == team)
            for team in (TEAM, SECOND)
        )
        posts = world.slack.calls("chat.postMessage")
        assert [one.token for one in posts] == [first, first, second]
        assert {one.partition(":")[0] for one in world.accepted} == {TEAM, SECOND}


async def test_a_partner_without_the_app_is_looked_up_now_and_then() -> None:
    store = Shaky()
    async with many(installations_store=store) as world:
        await world.install()
        post = said("T0PARTNER1", "U0PARTNER1", "hello", "1760000000.000100")
        post["authorizations"][0] |= {"team_id": TEAM, "user_id": BOT}
        for more in (1, 0, 0):
            reads = store.reads
            assert (await deliver(world, post)).status == 200
            assert store.reads == reads + more
        world.clock.advance(61)
        reads = store.reads
        assert (await deliver(world, post)).status == 200
        assert store.reads == reads + 1


async def test_what_a_partner_presses_is_heard() -> None:
    async with many() as world:
        await world.install()
        pressed = {"type": "block_actions", "team": {"id": "T0PARTNER1"}, "user": {"id": "U0"}}
        assert await world.bots.hears(world.context, pressed)
        assert not await world.bots.hears(world.context, {"command": "/x", "team_id": "T0PARTNER1"})


# Tokens that end


async def rotating(world: Many, refresh: str = "xoxe-1-first") -> Install:
    """Install with a token that ends in twelve hours."""
    install = world.slack.app.install
    install.refresh_token = refresh
    await world.install()
    return install


def refreshes(world: Many) -> int:
    calls = world.slack.calls("oauth.v2.access")
    return sum(call.args.get("grant_type") == "refresh_token" for call in calls)


async def test_a_token_is_refreshed_once_before_it_ends_however_many_ask() -> None:
    clock = ManualClock(datetime.now(UTC))
    async with many(clock=clock) as world:
        install = await rotating(world)
        before = install.token
        bot = await world.bots.of(TEAM)
        await bot.client.auth_test()
        assert refreshes(world) == 0
        clock.advance(11 * HOURS)
        assert await world.bots.hears(world.context, event(TEAM))
        assert refreshes(world) == 0
        await asyncio.gather(*(bot.client.auth_test() for _ in range(20)))
        assert refreshes(world) == 1
        used = [call.token for call in world.slack.calls("auth.test")][-20:]
        assert set(used) == {install.token} != {before}
        await world.host.crash()
        assert (await world.bots.of(TEAM)).client.token == install.token


async def test_while_a_refresh_fails_the_old_token_is_good_to_its_end() -> None:
    clock = ManualClock(datetime.now(UTC))
    async with many(clock=clock) as world:
        await rotating(world)
        fault = world.slack.fail("oauth.v2.access", "invalid_refresh_token", times=None)
        bot = await world.bots.of(TEAM)
        clock.advance(11 * HOURS)
        await bot.client.auth_test()
        await bot.client.auth_test()
        assert refreshes(world) == 1, "not at every call"
        clock.advance(2 * HOURS)
        with pytest.raises(Exception, match="invalid_refresh_token"):
            await bot.client.auth_test()
        world.slack.heal()
        await bot.client.auth_test()
        assert fault


async def test_a_caller_who_gives_up_does_not_lose_the_new_token() -> None:
    clock = ManualClock(datetime.now(UTC))
    async with many(clock=clock) as world:
        install = await rotating(world)
        gate = world.slack.hold("oauth.v2.access")
        clock.advance(11 * HOURS)
        bot = await world.bots.of(TEAM)
        asking = asyncio.create_task(bot.client.auth_test())
        await world.slack.until(lambda: refreshes(world) == 1)
        asking.cancel()
        await asyncio.wait([asking])
        gate.release()
        await world.host.stop()
        await world.host.start()
        assert (await world.bots.of(TEAM)).client.token == install.token


# Gone


async def uninstalled(world: Many, team: str = TEAM) -> None:
    """Wait until an installation is forgotten."""
    workspaces = world.bots.workspaces
    assert workspaces is not None
    await world.slack.until(lambda: (None, team) not in workspaces._grants)
    assert not await world.bots.hears(world.context, event(team))


async def test_after_it_is_removed_a_post_fails_and_says_why() -> None:
    harness = Gated(hold=["answer"])
    async with many(harness) as world:
        await world.install()
        ts = world.slack.user(PERSON).post(CHANNEL, f"<@{BOT}> hello").ts
        await harness.gates["answer"].reached()
        world.slack.revoke()
        await uninstalled(world)
        harness.release()
        token = f"slack:{TEAM}:{CHANNEL}:{ts}"
        await world.slack.until(lambda: any(one.settled for one in world.outbound(token)))
        (post,) = world.outbound(token)
        assert post.failure is not None
        assert "not installed" in post.failure
        assert f"{world.host.url}/v1/channels/slack/install" in post.failure


async def test_what_is_installed_again_works_again() -> None:
    async with many() as world:
        await world.install()
        await world.asked(TEAM, CHANNEL, PERSON)
        world.slack.revoke()
        await uninstalled(world)
        with pytest.raises(NotInstalled):
            await (await world.bots.of(TEAM)).client.auth_test()
        world.slack.app.installs.clear()
        bot = world.slack.install(world.slack.app, team=TEAM, bot_user=BOT, token="xoxb-new")
        await world.install()
        await world.asked(TEAM, CHANNEL, PERSON)
        assert world.slack.calls("chat.postMessage")[-1].token == bot.token == "xoxb-new"


@pytest.mark.parametrize("kind", ["app_uninstalled", "tokens_revoked"])
async def test_a_late_word_does_not_remove_what_is_installed_again(kind: str) -> None:
    async with many() as world:
        await world.install()
        calls = len(world.slack.calls("auth.test"))
        told = {"type": kind, "tokens": {"oauth": [], "bot": [BOT]}}
        body = {"type": "event_callback", "team_id": TEAM, "event": told}
        assert (await deliver(world, body)).status == 200
        await world.slack.until(lambda: len(world.slack.calls("auth.test")) > calls)
        await world.host.stop()
        await world.host.start()
        assert await world.bots.hears(world.context, event(TEAM))


# Keys


async def test_another_key_does_not_start() -> None:
    async with many() as world:
        await world.install()
        await world.host.stop()
        world.use_keys(OTHER_KEY)
        with pytest.raises(ProjectError, match="SLACK_ENCRYPTION_KEY, with a comma between"):
            await world.host.start()
        world.use_keys(KEY)
        await world.host.start()


async def test_keys_are_rotated() -> None:
    async with many() as world:
        await world.install()
        world.use_keys(OTHER_KEY, KEY)
        await world.restart(how="stop")
        await world.asked(TEAM, CHANNEL, PERSON)
        await world.host.stop()
        world.use_keys(OTHER_KEY)
        await world.host.start()
        assert (await world.bots.of(TEAM)).client.token == world.token


async def test_what_another_key_encrypted_is_not_served(tmp_path: Any) -> None:
    folder = str(tmp_path / "installations")
    async with many(installations=folder, keys=(OTHER_KEY,)) as world:
        await world.install()
    async with many(installations=folder) as world:
        assert not await world.bots.hears(world.context, event(TEAM))
        with pytest.raises(WrongKey):
            await (await world.bots.of(TEAM)).client.auth_test()


# A store that fails


class Shaky:
    """A store that is a dictionary, and fails while it is told to, or waits."""

    def __init__(self) -> None:
        self.bots: dict[Any, Any] = {}
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0

    async def async_save(self, installation: Any) -> None:
        await self.async_save_bot(installation.to_bot())

    async def async_save_bot(self, bot: Any) -> None:
        self.bots[bot.enterprise_id, bot.team_id] = bot

    async def async_find_bot(
        self, *, enterprise_id: Any, team_id: Any, is_enterprise_install: Any
    ) -> Any:
        self.reads += 1
        await self.gate.wait()
        if self.broken:
            raise ConnectionResetError("the database has gone away")
        return self.bots.get((enterprise_id, team_id))

    async def async_delete_all(self, *, enterprise_id: Any, team_id: Any) -> None:
        self.bots.pop((enterprise_id, team_id), None)


async def test_what_cannot_be_looked_up_now_comes_again() -> None:
    store = Shaky()
    async with many(installations_store=store) as world:
        await world.install()
        await world.host.crash()
        store.broken = True
        post = {
            "type": "app_mention",
            "user": PERSON,
            "channel": CHANNEL,
            "ts": "1760000000.000100",
            "text": f"<@{BOT}> hello",
        }
        body = event(TEAM, event=post)
        assert (await deliver(world, body)).status == 503
        with pytest.raises(TryAgain):
            await (await world.bots.of(TEAM)).client.auth_test()
        store.broken = False
        assert (await deliver(world, body)).status == 200
        assert len(world.accepted) == 1


async def test_a_known_workspace_is_looked_up_once_and_order_is_kept() -> None:
    store = Shaky()
    async with many(installations_store=store) as world:
        await world.install()
        await world.host.crash()
        store.gate.clear()
        order = []

        async def heard(number: int) -> None:
            assert await world.bots.hears(world.context, event(TEAM))
            order.append(number)

        reads = store.reads
        first = [asyncio.create_task(heard(number)) for number in range(3)]
        await asyncio.sleep(0)
        store.gate.set()
        later = []
        for number in range(3, 20):
            later.append(asyncio.create_task(heard(number)))
            await asyncio.sleep(0)
        await asyncio.gather(*first, *later)
        assert order == list(range(20))
        assert store.reads == reads + 1
        # What is known is answered without a pause.
        with pytest.raises(StopIteration):
            world.bots.hears(world.context, event(TEAM)).send(None)


async def test_whoever_is_known_is_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadline_slack.installing.workspaces._MANY", 1)
    monkeypatch.setattr("threadline_slack.bots._MANY", 1)
    async with many() as world:
        await world.install(TEAM)
        await world.install(SECOND)
        for _ in range(2):
            await world.asked(TEAM, CHANNEL, PERSON)
            await world.asked(SECOND, SECOND_CHANNEL, SECOND_PERSON)
