"""Slack inbound: which conversation a post belongs to, and who may speak in it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.cases.judges.posts import changed
from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.slack_world import BOT, CHANNEL, DM, TEAM, SlackWorld
from yarl import URL

from threadline_slack.testing import Install

__all__: list[str] = []

ORG, OTHER_TEAM = "E0ORG00001", "T0AGENT002"
ONE, TWO, THREE = "1760000100.000100", "1760000110.000100", "1760000130.000100"


@judge("S-26")
async def a_direct_message_is_its_thread(world: SlackWorld, case: Case, _: Any) -> None:
    """Three sessions of four posts, each answered under its own root; flat as an option."""
    for mode in ("post", "stream", "agent"):
        async with world.fresh() as fresh:
            await fresh.start(reply=mode)
            for step in steps_of(case):
                await fresh.play(step)
                await fresh.rest()
            assert len(fresh.sessions()) == 3
            expected = {ONE: ["one", "under one"], TWO: ["two"], THREE: ["three"]}
            for root, answers in expected.items():
                session = fresh.session(root, DM)
                assert session is not None
                assert session.replies == answers
                assert fresh.words(root, DM) == answers
            assert not [one for one in fresh.said(None, DM) if one.root is None]
            _only_roots(fresh, set(expected))
    async with world.fresh() as fresh:
        await fresh.start(flat_dms=True)
        for step in steps_of(case):
            await fresh.play(step)
            await fresh.rest()
        assert sorted(session.replies for session in fresh.sessions()) == [
            ["one", "two", "three"],
            ["under one"],
        ]
        assert fresh.words(ONE, DM) == ["under one"]


def _only_roots(world: SlackWorld, roots: set[str]) -> None:
    """Check that whatever names a thread names the root of a question."""
    for call in world.slack.calls():
        if call.method.startswith(("chat.post", "chat.startStream", "assistant.", "agents.")):
            assert call.args.get("thread_ts") in roots, call


@judge("S-27")
async def threads_of_a_dm_stay_apart(world: SlackWorld, case: Case, _: Any) -> None:
    """Two sessions, each answered in its own thread; a stop in one leaves the other running."""
    roots = ("1760000190.000100", "1760000191.000100")
    for stopped in (False, True):
        async with world.fresh() as fresh:
            fresh.harness.waits = True
            await fresh.start()
            steps = steps_of(case)
            for step in steps:
                await fresh.play(step)
            await fresh.until(lambda: fresh.harness.begun == 2, "two turns")
            first, second = (fresh.session(root, DM) for root in roots)
            assert first is not None
            assert second is not None
            assert len(fresh.sessions()) == 2
            if stopped:
                await fresh.ask(steps[0], "stop", "1760000203.000100", at=roots[0])
                await first.event("turn.failed")
                assert second.status == "running"
                assert not second.events("turn.failed")
            fresh.harness.free()
            await fresh.rest()
            assert second.replies == ["topic B"]
            assert fresh.words(roots[1], DM) == ["topic B"]
            assert first.replies == ([] if stopped else ["topic A", "more A"])
            shown = fresh.words(roots[0], DM)
            assert not any("topic B" in text for text in shown)
            assert [text for text in shown if text in ("topic A", "more A")] == first.replies
            assert not [one for one in fresh.said(None, DM) if one.root is None]


@judge("S-28")
async def a_root_has_one_identity(world: SlackWorld, case: Case, _: Any) -> None:
    """With and without ``thread_ts`` the root is one post of one session."""
    root, reply, again = steps_of(case)
    ts = "1760000210.000100"
    for order in ((root, reply, again), (again, reply, root), (again, root, reply)):
        async with world.fresh() as fresh:
            await fresh.start()
            for number, step in enumerate(order):
                answer = await fresh.play({**step, "at_s": number * 10})
                assert answer is not None
                assert answer.status == 200
                await fresh.rest()
            (session,) = fresh.sessions()
            assert fresh.session(ts) is not None
            assert session.replies == ["root question", "follow-up"]
            assert fresh.words(ts) == session.replies
            assert [one.ts for one in fresh.said(None) if one.root is None] == []


@judge("S-29")
async def a_group_is_not_woken_by_talk(world: SlackWorld, case: Case, _: Any) -> None:
    """Without a mention nothing at all; with one, by the message itself, one turn there."""
    talk, mention = steps_of(case)
    await world.start()
    before = len(world.slack.calls())
    await world.play(talk)
    await world.rest()
    world.untouched()
    assert len(world.slack.calls()) == before
    await world.play(mention)
    await world.rest()
    ts, group = "1760000240.000100", "G0MPIM0001"
    (session,) = world.sessions()
    assert session.replies == ["pick a place"]
    assert world.words(ts, group) == ["pick a place"]
    assert len(world.everywhere()) == 1


@judge("S-31")
async def strangers_are_refused(world: SlackWorld, case: Case, _: Any) -> None:
    """By default no turn and at most a whisper; allowed, they are kept apart from our people."""
    (step,) = steps_of(case)
    ts = step["payload"]["event"]["ts"]
    for named in ({}, {"user_team": None}, {"user_team": None, "source_team": "T0OTHERORG"}):
        async with world.fresh() as fresh:
            await fresh.start()
            answer = await fresh.post(changed(step, **named), signed=bool(named))
            assert answer.status == 200
            await fresh.rest()
            assert fresh.sessions() == []
            assert fresh.accepted == []
            assert fresh.harness.begun == 0
            shown = fresh.everywhere()
            assert len(shown) <= 1
            assert all(one.only_for == "U0EXTERNAL" for one in shown)
    async with world.fresh() as fresh:
        await fresh.start(external=True)
        await fresh.post(step)
        await fresh.ask(step, f"<@{BOT}> and us?", "1760000009.000100", at=ts, **_local())
        await fresh.rest()
        (session,) = fresh.sessions()
        parts = [
            part for event in session.events("message.received") for part in event["data"]["parts"]
        ]
        stranger, local = (part["sender"] for part in parts)
        assert stranger["id"] == "T0OTHERORG:U0EXTERNAL"
        assert stranger["attributes"]["team"] == "T0OTHERORG"
        assert local["id"] == f"{TEAM}:U0EXTERNAL"
        for method, path in (("GET", "events"), ("POST", "stop")):
            answer = await fresh.host.request(
                method,
                f"/v1/session/{session.id}/{path}",
                headers={"Authorization": "Bearer local"},
            )
            assert answer.status == 403


def _local() -> dict[str, Any]:
    """Return what makes a stranger's post one of somebody here who has the same user id."""
    return {"user_team": None, "team": TEAM}


@judge("S-32")
async def an_organisation_has_one_installation(world: SlackWorld, case: Case, _: Any) -> None:
    """A workspace's own installation comes first, then the organisation's; none mix."""
    (step,) = steps_of(case)
    for own in (False, True):
        async with world.fresh() as fresh:
            whole, alone = await _installed(fresh, own=own)
            assert (await fresh.post(step)).status == 200
            other = changed(step, team=OTHER_TEAM)
            other["payload"] |= {"team_id": OTHER_TEAM, "context_team_id": OTHER_TEAM}
            other["payload"]["event_id"] = "Ev0032B"
            assert (await fresh.post(other, signed=True)).status == 200
            await fresh.rest()
            ts = step["payload"]["event"]["ts"]
            sessions = [fresh.session(ts, team=team) for team in (TEAM, OTHER_TEAM)]
            assert len({session.id for session in sessions if session is not None}) == 2
            for session, team in zip(sessions, (TEAM, OTHER_TEAM), strict=True):
                assert session is not None
                assert session.replies == ["hello"]
                (event,) = session.events("message.received")
                assert event["data"]["deliveryIds"] == [f"{team}:{CHANNEL}:{ts}"]
            posts = fresh.calls("chat.postMessage")
            assert [call.ok for call in posts] == [True, True]
            assert sorted(str(call.token) for call in posts) == sorted([alone or whole, whole])
            for call in fresh.slack.calls():
                if call.token == alone:
                    assert call.args.get("team_id") in (None, TEAM)
            by_whole = [call for call in fresh.slack.calls() if call.token == whole]
            served = {OTHER_TEAM} if own else {TEAM, OTHER_TEAM}
            assert {
                call.args.get("team_id") for call in by_whole if "channel" in call.args
            } == served


async def _installed(world: SlackWorld, *, own: bool) -> tuple[str, str | None]:
    """Install the app for an organisation, and in one of its workspaces by itself.

    Return the tokens.
    """
    slack, app = world.slack, world.slack.app
    slack.state.teams[TEAM].enterprise = ORG
    slack.add_team(OTHER_TEAM, enterprise=ORG)
    (alone,) = app.installs
    alone.enterprise = ORG
    app.installs.clear()
    whole = slack.install(app, enterprise=ORG, bot_user=BOT, bot_id=alone.bot_id)
    if own:
        app.installs.append(alone)
    world.env |= {
        "SLACK_BOT_TOKEN": "",
        "SLACK_CLIENT_ID": app.client_id,
        "SLACK_CLIENT_SECRET": app.client_secret,
        "SLACK_ENCRYPTION_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    }
    await world.start()
    for install in app.installs:
        await _install(world, install)
    return whole.token, alone.token if own else None


async def _install(world: SlackWorld, install: Install) -> None:
    """Be the browser of somebody who installs the app."""
    away = await world.host.get("/v1/channels/slack/install")
    assert away.status == 302
    state = URL(away.headers["location"]).query["state"]
    query = urlencode({"code": world.slack.grant_code(install), "state": state})
    cookie = away.headers["set-cookie"].partition(";")[0]
    back = await world.host.get(
        f"/v1/channels/slack/oauth_redirect?{query}", headers={"Cookie": cookie}
    )
    assert back.status == 200, back.text
