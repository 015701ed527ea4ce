"""No tool that writes where strangers, or their code, take part."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.channels.github.world import World, served

from threadline.harness.scripted import Call, Say, Scripted
from threadline_github.hub import Hub
from threadline_github.inbound.decide import Ask, Person, Place
from threadline_github.inbound.names import Repository, Thread
from threadline_github.inbound.trust import Trust

DEPLOY = [Call("deploy", {"service": "shop"}), Say("Done.")]


async def refusals(world: World, token: str) -> list[str]:
    """Return why calls of the newest turn were refused, with each call's name."""
    session = world.session(token)
    await session.rest()
    await world.github.settled()
    results = session.events("action.result")
    return [one["data"]["error"]["message"] for one in results if one["data"]["isError"]]


async def mention(world: World, pull: object, login: str) -> None:
    world.github.user(login).comment(pull, "@agent-fixture deploy it")
    await world.github.settled()


async def test_a_member_with_the_right_to_write_may() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        world.github.permit("dev-one", "write")
        pull = world.github.user("dev-two").open_pull(title="Add retry")
        await mention(world, pull, "dev-one")
        assert await refusals(world, f"pr:octo-fixture/widget#{pull.number}") == []


async def test_a_member_who_may_only_read_may_not() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        world.github.permit("dev-one", "read")
        pull = world.github.user("dev-two").open_pull(title="Add retry")
        await mention(world, pull, "dev-one")
        (why,) = await refusals(world, f"pr:octo-fixture/widget#{pull.number}")
        assert why == "deploy writes, and dev-one has no right to write in the repository."


@pytest.mark.parametrize("gone", [False, True])
async def test_code_from_a_fork_has_no_tool_that_writes(gone: bool) -> None:
    """A comment does not say where the code is from: the pull request does, gone or not."""
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        world.github.permit("dev-one", "admin")
        stranger = world.github.user("stranger")
        pull = stranger.open_pull(title="Add retry", fork=True)
        if gone:
            stranger.delete_fork(pull)
        await mention(world, pull, "dev-one")
        (why,) = await refusals(world, f"pr:octo-fixture/widget#{pull.number}")
        assert why == "deploy writes, and the code of this pull request is from a fork."


async def test_while_nobody_knows_where_the_code_is_from_it_may_be_a_fork() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        world.github.permit("dev-one", "write")
        pull = world.github.user("dev-two").open_pull(title="Add retry")
        world.github.fail("GET", "/repos/*/pulls/*", 500, times=None)
        await mention(world, pull, "dev-one")
        token = f"pr:octo-fixture/widget#{pull.number}"
        (why,) = await refusals(world, token)
        assert why == "deploy writes, and the code of this pull request may be from a fork."
        world.github.heal()
        await mention(world, pull, "dev-one")
        assert len(await refusals(world, token)) == 1


async def test_who_cannot_be_asked_about_may_not_write() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        issue = world.github.user("dev-two").open_issue(title="It is slow")
        world.github.fail("GET", "/repos/*/collaborators/*", 404, times=None)
        await mention(world, issue, "dev-one")
        (why,) = await refusals(world, f"issue:octo-fixture/widget#{issue.number}")
        assert "dev-one has no right to write" in why


async def test_where_a_stranger_was_let_in_nothing_writes_any_more() -> None:
    associations = ["OWNER", "MEMBER", "NONE"]
    async with served(Scripted(DEPLOY), on=["mention"], associations=associations) as world:
        world.github.permit("dev-one", "write")
        issue = world.github.user("dev-two").open_issue(title="It is slow")
        token = f"issue:octo-fixture/widget#{issue.number}"
        await mention(world, issue, "dev-one")
        assert await refusals(world, token) == []
        await mention(world, issue, "stranger")
        said = "deploy writes, and somebody from outside takes part in this conversation."
        assert await refusals(world, token) == [said]
        await world.host.crash()
        world.github.app.webhook_url = world.host.url + "/v1/channels/github"
        await mention(world, issue, "dev-one")
        assert await refusals(world, token) == [said, said]


async def test_strangers_start_nothing_and_hear_nothing() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        issue = world.github.user("dev-two").open_issue(title="It is slow")
        await mention(world, issue, "stranger")
        assert world.session(f"issue:octo-fixture/widget#{issue.number}") is None
        assert world.github.visible(issue) == ["@agent-fixture deploy it"]
        assert not world.github.calls("POST", "/repos/*")


async def test_who_may_only_triage_starts_no_turn_that_writes() -> None:
    """GitHub does not say how somebody belongs who reopens what is not theirs."""
    async with served(Scripted(DEPLOY), on=["reopened"]) as world:
        world.github.permit("dev-one", "read")
        pull = world.github.user("dev-two").open_pull(title="Add retry")
        world.github.user("dev-two").close(pull)
        world.github.user("dev-one").reopen(pull)
        await world.github.settled()
        (why,) = await refusals(world, f"pr:octo-fixture/widget#{pull.number}")
        assert why == "deploy writes, and dev-one has no right to write in the repository."


async def test_who_adds_the_mention_to_somebody_elses_words_asks() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        world.github.permit("dev-two", "write")
        world.github.permit("dev-one", "read")
        issue = world.github.user("dev-two").open_issue(title="It is slow")
        comment = world.github.user("dev-two").comment(issue, "deploy it")
        world.github.user("dev-one").edit_comment(comment, "@agent-fixture deploy it")
        await world.github.settled()
        token = f"issue:octo-fixture/widget#{issue.number}"
        (why,) = await refusals(world, token)
        assert why == "deploy writes, and dev-one has no right to write in the repository."
        (sender,) = [
            part["sender"]
            for one in world.session(token).events("message.received")
            for part in one["data"]["parts"]
        ]
        assert sender["name"] == "dev-one"


async def test_nobody_is_forgotten_when_many_come_at_once() -> None:
    """A stranger and a member at the same moment: the stranger took part all the same."""

    class Slow:
        kv: Any

        def __init__(self) -> None:
            self.kv, self.values = self, dict[str, Any]()

        async def get(self, key: str) -> Any:
            await asyncio.sleep(0)
            return self.values.get(key)

        async def put(self, key: str, value: Any) -> None:
            await asyncio.sleep(0)
            self.values[key] = value

    ctx: Any = Slow()
    thread = Thread(Repository(1, "a/b", "a/b"), "pr", 7)
    place, trust = Place(1, "a/b", "pr", 7), Trust(Hub())
    people = [
        Person("stranger", 999, "NONE"),
        Person("dev-one", 501, "MEMBER"),
        Person("dev-two", 502),
    ]
    asks = [Ask(place, one, "mention", "hi", str(one.id)) for one in people]
    heard = [trust.heard(ctx, thread, ask) for ask in asks]
    await asyncio.gather(*heard, trust.code(ctx, thread, fork=True))
    assert ctx.values["company/pr:a/b#7"] == {
        "stranger": True,
        "fork": True,
        "askers": ["dev-one", "dev-two"],
    }


async def test_where_nobody_knows_the_conversation_nothing_writes() -> None:
    async with served(Scripted(DEPLOY), on=["mention"]) as world:
        issue = world.github.user("dev-two").open_issue(title="It is slow")
        token = f"issue:octo-fixture/widget#{issue.number}"
        world.github.permit("dev-one", "write")
        names = world.channel.hub.names

        async def nothing(*_: Any) -> None:
            return None

        names.thread = nothing  # type: ignore[method-assign,assignment]
        await mention(world, issue, "dev-one")
        (why,) = await refusals(world, token)
        assert why == "deploy writes, and nobody knows which conversation this is."
