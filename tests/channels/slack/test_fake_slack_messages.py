"""FakeSlack answers the real slack_sdk client: posting, editing, deleting, reacting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack
from threadline_slack.testing.methods import METHODS

CHANNEL, PERSON, BOT = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["bot_user"]
DM = DEFAULTS["dm"]


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def client(slack: FakeSlack) -> AsyncWebClient:
    return AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)


async def failed(call: Any) -> Any:
    """Return the answer that a call is refused with."""
    with pytest.raises(SlackApiError) as caught:
        await call
    return caught.value.response


async def refused(call: Any) -> str:
    """Return the error that a call is refused with."""
    return str((await failed(call))["error"])


# Who calls


async def test_a_token_says_who_calls(slack: FakeSlack, client: AsyncWebClient) -> None:
    answer = await client.auth_test()
    assert answer["user_id"] == BOT
    assert answer["bot_id"] == DEFAULTS["bot"]
    assert answer["team_id"] == DEFAULTS["team"]
    assert "chat:write" in answer.headers["X-OAuth-Scopes"]


async def test_a_wrong_token_is_nobodys(slack: FakeSlack) -> None:
    stranger = AsyncWebClient(token="xoxb-wrong", base_url=slack.api_url)
    assert await refused(stranger.auth_test()) == "invalid_auth"
    nobody = AsyncWebClient(base_url=slack.api_url)
    assert await refused(nobody.auth_test()) == "not_authed"
    of_the_app = AsyncWebClient(token=slack.app.app_token, base_url=slack.api_url)
    assert await refused(of_the_app.chat_postMessage(channel=CHANNEL, text="x")) == (
        "not_allowed_token_type"
    )


async def test_a_revoked_token_is_good_for_nothing(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    assert (await client.auth_revoke())["revoked"] is True
    assert await refused(client.auth_test()) == "token_revoked"


async def test_a_missing_scope_is_named(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.app.install.scopes = {"channels:read"}
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=CHANNEL, text="hi")
    assert caught.value.response["error"] == "missing_scope"
    assert caught.value.response["needed"] == "chat:write"
    assert caught.value.response["provided"] == "channels:read"
    assert slack.visible(CHANNEL) == []


@pytest.mark.parametrize("name", sorted(METHODS))
async def test_every_method_wants_its_scope(
    slack: FakeSlack, client: AsyncWebClient, name: str
) -> None:
    slack.app.install.scopes = set()
    wanted = METHODS[name].scopes
    answer = await failed(client.api_call(name)) if wanted else {}
    assert answer.get("needed") == (wanted[0] if wanted else None)


def test_the_table_has_what_apps_call() -> None:
    wanted = """
        auth.test chat.postMessage chat.update chat.delete chat.postEphemeral chat.getPermalink
        chat.startStream chat.appendStream chat.stopStream assistant.threads.setStatus
        assistant.threads.setTitle assistant.threads.setSuggestedPrompts agents.sessions.setStatus
        agents.sessions.rename conversations.history conversations.replies conversations.info
        conversations.list conversations.members conversations.open conversations.join users.info
        users.list users.lookupByEmail users.conversations usergroups.list bots.info team.info
        reactions.add reactions.remove reactions.get files.getUploadURLExternal
        files.completeUploadExternal files.info views.open views.push views.update views.publish
        apps.connections.open oauth.v2.access
    """
    assert set(wanted.split()) <= set(METHODS)


async def test_an_unknown_method_says_so(client: AsyncWebClient) -> None:
    assert await refused(client.api_call("chat.shout")) == "unknown_method"


async def test_get_and_post_form_and_json_are_one(slack: FakeSlack, client: AsyncWebClient) -> None:
    headers = {"Authorization": f"Bearer {slack.app.bot_token}"}
    url = f"{slack.api_url}chat.postMessage"
    async with aiohttp.ClientSession(headers=headers) as http:
        await http.get(url, params={"channel": CHANNEL, "text": "by query"})
        await http.post(url, data={"channel": CHANNEL, "text": "by form"})
        await http.post(url, json={"channel": CHANNEL, "text": "by json"})
    async with aiohttp.ClientSession() as http:
        form = {"token": slack.app.bot_token, "channel": CHANNEL, "text": "token in the form"}
        await http.post(url, data=form)
    assert slack.visible(CHANNEL) == ["by query", "by form", "by json", "token in the form"]


# Posting


async def test_a_post_is_what_was_posted(slack: FakeSlack, client: AsyncWebClient) -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "*in blocks*"}}]
    answer = await client.chat_postMessage(
        channel=CHANNEL,
        text="hello",
        blocks=blocks,
        attachments=[{"text": "attached", "fallback": "attached"}],
        metadata={"event_type": "threadline", "event_payload": {"post": "p1"}},
    )
    message = answer["message"]
    assert message["text"] == "hello"
    assert message["user"] == BOT
    assert message["bot_id"] == DEFAULTS["bot"]
    assert message["app_id"] == DEFAULTS["app"]
    assert message["ts"] == answer["ts"]
    assert message["blocks"][0]["block_id"]
    assert slack.message(answer["ts"]).metadata == {
        "event_type": "threadline",
        "event_payload": {"post": "p1"},
    }
    assert slack.visible(CHANNEL) == ["*in blocks*\nattached"]


async def test_timestamps_grow_although_the_clock_stands(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    stamps = [(await client.chat_postMessage(channel=CHANNEL, text=str(n)))["ts"] for n in range(3)]
    assert stamps == sorted(set(stamps))
    assert stamps[0].startswith(str(int(slack.clock.now().timestamp())))


async def test_replies_make_a_thread(slack: FakeSlack, client: AsyncWebClient) -> None:
    root = slack.user(PERSON).post(CHANNEL, "question")
    reply = await client.chat_postMessage(channel=CHANNEL, text="answer", thread_ts=root.ts)
    again = await client.chat_postMessage(
        channel=CHANNEL, text="to all", thread_ts=reply["ts"], reply_broadcast=True
    )
    assert reply["message"]["thread_ts"] == again["message"]["thread_ts"] == root.ts
    assert reply["message"]["parent_user_id"] == PERSON
    assert again["message"]["subtype"] == "thread_broadcast"
    assert slack.visible(CHANNEL, root.ts) == ["question", "answer", "to all"]
    assert slack.visible(CHANNEL) == ["question", "to all"]


async def test_a_post_to_a_user_opens_a_direct_message(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    assert (await client.chat_postMessage(channel=PERSON, text="psst"))["channel"] == DM
    assert slack.visible(DM) == ["psst"]


async def test_a_channel_is_found_by_name(slack: FakeSlack, client: AsyncWebClient) -> None:
    assert (await client.chat_postMessage(channel="#general", text="x"))["channel"] == CHANNEL


async def test_only_members_post(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    slack.add_channel("C0PRIVATE01", "secret", members=[PERSON], kind="group")
    slack.add_channel("C0OLD000001", "old", members=[PERSON, BOT]).archived = True
    post = client.chat_postMessage
    assert await refused(post(channel="C0PUBLIC001", text="x")) == "not_in_channel"
    assert await refused(post(channel="C0PRIVATE01", text="x")) == "channel_not_found"
    assert await refused(post(channel="C0NOWHERE01", text="x")) == "channel_not_found"
    assert await refused(post(channel="C0OLD000001", text="x")) == "is_archived"
    slack.app.install.scopes.add("chat:write.public")
    assert (await post(channel="C0PUBLIC001", text="x"))["ok"]


async def test_what_is_nothing_or_too_much_is_refused(client: AsyncWebClient) -> None:
    async def call(**arguments: Any) -> str:
        return await refused(client.api_call("chat.postMessage", json=arguments))

    assert await call(text="x") == "invalid_arguments"
    assert await call(channel=CHANNEL) == "no_text"
    assert await call(channel=CHANNEL, text="x", markdown_text="y") == "markdown_text_conflict"
    assert await call(channel=CHANNEL, markdown_text="x" * 12_001) == "msg_too_long"
    assert await call(channel=CHANNEL, text="x", blocks="{") == "invalid_blocks_format"
    assert await call(channel=CHANNEL, text="x", attachments=[{}] * 101) == "too_many_attachments"
    assert await call(channel=CHANNEL, text="x", metadata={"a": 1}) == "invalid_metadata_format"
    assert await call(channel=CHANNEL, text="x", metadata={"event_type": "a"}) == (
        "invalid_metadata_schema"
    )


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}}], "invalid_blocks"),
        ([{"type": "section"}], "invalid_blocks"),
        ([{"type": "section", "text": {"type": "mrkdwn", "text": ""}}], "invalid_blocks"),
        ([{"type": "divider"}] * 51, "invalid_blocks"),
        ([{"type": "carousel"}], "invalid_blocks"),
        ([{"type": "markdown", "text": "x" * 6001}] * 2, "msg_blocks_too_long"),
        ([{"type": "table", "rows": [[{}]]}] * 2, "invalid_blocks"),
        ([{"type": "table", "rows": [[{}]] * 101}], "invalid_blocks"),
        ([{"type": "table", "rows": [[{}] * 21]}], "invalid_blocks"),
        ([{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}], "invalid_blocks"),
        ([{"type": "divider", "block_id": "a"}] * 2, "invalid_blocks"),
        (
            [
                {
                    "type": "actions",
                    "elements": [
                        {"type": "button", "text": {"type": "plain_text", "text": "x" * 76}}
                    ],
                }
            ],
            "invalid_blocks",
        ),
    ],
)
async def test_blocks_are_held_to_their_limits(
    slack: FakeSlack, client: AsyncWebClient, blocks: list[Any], error: str
) -> None:
    assert await refused(client.chat_postMessage(channel=CHANNEL, text="x", blocks=blocks)) == error
    assert slack.visible(CHANNEL) == []


async def test_a_very_long_text_is_cut_with_a_warning(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    answer = await client.chat_postMessage(channel=CHANNEL, text="x" * 40_001)
    assert answer["warning"] == "message_truncated"
    assert len(slack.message(answer["ts"]).text) == 40_000


async def test_a_long_post_may_be_split_and_one_ts_returned(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.options.split_posts_over = 4_000
    root = slack.user(PERSON).post(CHANNEL, "question")
    answer = await client.chat_postMessage(channel=CHANNEL, text="y" * 9_000, thread_ts=root.ts)
    _, *parts = slack.messages(CHANNEL, root.ts)
    assert [len(part.text) for part in parts] == [4_000, 4_000, 1_000]
    assert answer["ts"] == parts[0].ts


async def test_another_name_makes_a_classic_bot_message(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    answer = await client.chat_postMessage(channel=CHANNEL, text="x", username="Ada")
    assert answer["message"]["subtype"] == "bot_message"
    assert answer["message"]["username"] == "Ada"
    assert "user" not in answer["message"]
    slack.app.install.scopes.discard("chat:write.customize")
    assert await refused(client.chat_postMessage(channel=CHANNEL, text="x", username="Ada")) == (
        "missing_scope"
    )


async def test_nobody_replies_to_what_slack_wrote(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_user("U0NEWCOMER1")
    slack.user(PERSON).invite(CHANNEL, "U0NEWCOMER1")
    joined = slack.messages(CHANNEL)[-1]
    assert joined.subtype == "channel_join"
    assert await refused(
        client.chat_postMessage(channel=CHANNEL, text="x", thread_ts=joined.ts)
    ) == ("cannot_reply_to_message")


async def test_without_its_root_a_reply_stands_in_the_channel(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    root = slack.user(PERSON).post(CHANNEL, "question")
    slack.user(PERSON).delete(root)
    answer = await client.chat_postMessage(channel=CHANNEL, text="answer", thread_ts=root.ts)
    assert "thread_ts" not in answer["message"]
    assert slack.visible(CHANNEL) == ["answer"]


async def test_ephemeral_messages_are_for_one_member(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.add_user("U0ELSEWHERE")
    answer = await client.chat_postEphemeral(channel=CHANNEL, user=PERSON, text="for you")
    assert slack.visible(CHANNEL) == []
    assert slack.visible(CHANNEL, user=PERSON) == ["for you"]
    assert slack.visible(CHANNEL, user=DEFAULTS["other"]) == []
    assert [one.ts for one in slack.whispers(PERSON)] == [answer["message_ts"]]
    root = slack.user(PERSON).post(CHANNEL, "question")
    where: dict[str, Any] = {"channel": CHANNEL, "user": PERSON, "thread_ts": root.ts}
    await client.chat_postEphemeral(text="in the thread", **where)
    assert slack.visible(CHANNEL, root.ts, user=PERSON) == ["question", "in the thread"]
    assert slack.visible(CHANNEL, user=PERSON) == ["for you", "question"]
    call = client.chat_postEphemeral(channel=CHANNEL, user="U0ELSEWHERE", text="x")
    assert await refused(call) == "user_not_in_channel"


async def test_me_messages_and_permalinks(slack: FakeSlack, client: AsyncWebClient) -> None:
    me = await client.chat_meMessage(channel=CHANNEL, text="waves")
    assert slack.message(me["ts"]).subtype == "me_message"
    reply = await client.chat_postMessage(channel=CHANNEL, text="x", thread_ts=me["ts"])
    link = await client.chat_getPermalink(channel=CHANNEL, message_ts=reply["ts"])
    assert link["permalink"] == (
        f"https://acme-test.slack.com/archives/{CHANNEL}/p{reply['ts'].replace('.', '')}"
        f"?thread_ts={me['ts']}&cid={CHANNEL}"
    )
    call = client.chat_getPermalink(channel=CHANNEL, message_ts="1.0")
    assert await refused(call) == "message_not_found"


# Changing


async def test_an_update_keeps_the_blocks_it_does_not_name(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "spinner"}}]
    posted = await client.chat_postMessage(channel=CHANNEL, text="working", blocks=blocks)
    ts = posted["ts"]
    await client.chat_update(channel=CHANNEL, ts=ts, text="done")
    assert slack.visible(CHANNEL) == ["spinner"]
    await client.chat_update(channel=CHANNEL, ts=ts, text="done", blocks=[])
    assert slack.visible(CHANNEL) == ["done"]
    assert slack.message(ts).edited is not None


async def test_an_update_with_blocks_leaves_no_mark(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    posted = await client.chat_postMessage(channel=CHANNEL, text="working")
    blocks = [{"type": "markdown", "text": "done"}]
    answer = await client.chat_update(channel=CHANNEL, ts=posted["ts"], text="done", blocks=blocks)
    assert "edited" not in answer["message"]


async def test_what_cannot_be_updated(slack: FakeSlack, client: AsyncWebClient) -> None:
    asked = slack.user(PERSON).post(CHANNEL, "mine")
    posted = await client.chat_postMessage(channel=CHANNEL, text="x")
    update = client.chat_update
    assert await refused(update(channel=CHANNEL, ts=asked.ts, text="y")) == "cant_update_message"
    assert await refused(update(channel=CHANNEL, ts="1.0", text="y")) == "message_not_found"
    assert await refused(update(channel=CHANNEL, ts=posted["ts"], text="y" * 4_001)) == (
        "msg_too_long"
    )
    nothing = client.api_call("chat.update", json={"channel": CHANNEL, "ts": posted["ts"]})
    assert await refused(nothing) == "no_text"
    assert slack.visible(CHANNEL) == ["mine", "x"]


async def test_deleting(slack: FakeSlack, client: AsyncWebClient) -> None:
    asked = slack.user(PERSON).post(CHANNEL, "mine")
    posted = await client.chat_postMessage(channel=CHANNEL, text="x", thread_ts=asked.ts)
    assert await refused(client.chat_delete(channel=CHANNEL, ts=asked.ts)) == "cant_delete_message"
    await client.chat_delete(channel=CHANNEL, ts=posted["ts"])
    assert slack.visible(CHANNEL, asked.ts) == ["mine"]
    assert await refused(client.chat_delete(channel=CHANNEL, ts=posted["ts"])) == (
        "message_not_found"
    )


async def test_a_deleted_root_leaves_a_tombstone(slack: FakeSlack, client: AsyncWebClient) -> None:
    root = slack.user(PERSON).post(CHANNEL, "question")
    await client.chat_postMessage(channel=CHANNEL, text="answer", thread_ts=root.ts)
    slack.user(PERSON).delete(root)
    found = await client.conversations_replies(channel=CHANNEL, ts=root.ts)
    assert [one.get("subtype") for one in found["messages"]] == ["tombstone", None]
    call = client.chat_postMessage(channel=CHANNEL, text="more", thread_ts=root.ts)
    assert await refused(call) == "cannot_reply_to_message"


# Reactions


async def test_reactions(slack: FakeSlack, client: AsyncWebClient) -> None:
    asked = slack.user(PERSON).post(CHANNEL, "mine")
    slack.user(PERSON).react(asked, "eyes")
    where: dict[str, Any] = {"channel": CHANNEL, "timestamp": asked.ts}
    await client.reactions_add(name="eyes", **where)
    assert await refused(client.reactions_add(name="eyes", **where)) == "already_reacted"
    assert await refused(client.reactions_add(name="no such!", **where)) == "invalid_name"
    found = await client.reactions_get(**where)
    assert found["message"]["reactions"] == [{"name": "eyes", "users": [PERSON, BOT], "count": 2}]
    await client.reactions_remove(name="eyes", **where)
    assert asked.reactions == {"eyes": [PERSON]}
    assert await refused(client.reactions_remove(name="eyes", **where)) == "no_reaction"
    call = client.reactions_add(name="eyes", channel=CHANNEL, timestamp="1.0")
    assert await refused(call) == "message_not_found"


# Reading in a test


async def test_calls_are_recorded(slack: FakeSlack, client: AsyncWebClient) -> None:
    await client.chat_postMessage(
        channel=CHANNEL, text="x", metadata={"event_type": "a", "event_payload": {}}
    )
    await refused(client.chat_delete(channel=CHANNEL, ts="1.0"))
    posted, deleted = slack.calls()
    assert posted.ok
    assert posted.args["metadata"]["event_type"] == "a"
    assert posted.reply["ts"] == slack.messages(CHANNEL)[0].ts
    assert deleted.error == "message_not_found"
    assert not deleted.took_effect
    assert slack.calls("chat.postMessage") == [posted]


async def test_waiting_in_vain_says_what_there_was(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    await client.chat_postMessage(channel=CHANNEL, text="something else")
    with pytest.raises(AssertionError, match=r"chat\.postMessage.*something else"):
        await slack.until(lambda: False, patience=0.01)
