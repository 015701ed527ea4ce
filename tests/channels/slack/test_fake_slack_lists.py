"""FakeSlack answers the real slack_sdk client: what there is, page by page; files."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack

CHANNEL, PERSON, OTHER = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["other"]
BOT, DM = DEFAULTS["bot_user"], DEFAULTS["dm"]


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def client(slack: FakeSlack) -> AsyncWebClient:
    return AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


# Histories


async def test_history_has_no_replies_and_begins_with_the_newest(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    person = slack.user(PERSON)
    root = person.post(CHANNEL, "root")
    person.post(CHANNEL, "reply", thread_ts=root.ts)
    person.post(CHANNEL, "to all", thread_ts=root.ts, broadcast=True)
    person.post(CHANNEL, "later")
    found = (await client.conversations_history(channel=CHANNEL))["messages"]
    assert [one["text"] for one in found] == ["later", "to all", "root"]
    assert found[-1]["reply_count"] == 2
    assert found[-1]["reply_users"] == [PERSON]
    assert found[-1]["thread_ts"] == root.ts
    assert "thread_ts" not in found[0]


async def test_history_comes_in_pages(slack: FakeSlack, client: AsyncWebClient) -> None:
    for number in range(5):
        slack.user(PERSON).post(CHANNEL, str(number))
    pages = [
        [one["text"] for one in page["messages"]]
        async for page in await client.conversations_history(channel=CHANNEL, limit=2)
    ]
    assert pages == [["4", "3"], ["2", "1"], ["0"]]
    call = client.conversations_history(channel=CHANNEL, cursor="nonsense")
    assert await refused(call) == "invalid_cursor"


async def test_history_between_two_moments(slack: FakeSlack, client: AsyncWebClient) -> None:
    stamps = [slack.user(PERSON).post(CHANNEL, str(number)).ts for number in range(4)]

    async def texts(**arguments: Any) -> list[str]:
        found = await client.conversations_history(channel=CHANNEL, **arguments)
        return [one["text"] for one in found["messages"]]

    assert await texts(oldest=stamps[1]) == ["3", "2"]
    assert await texts(latest=stamps[2]) == ["1", "0"]
    assert await texts(oldest=stamps[1], latest=stamps[2], inclusive=True) == ["2", "1"]
    call = client.conversations_history(channel=CHANNEL, oldest="yesterday")
    assert await refused(call) == "invalid_ts_oldest"


async def test_replies_begin_with_the_root_whatever_is_asked(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    person = slack.user(PERSON)
    root = person.post(CHANNEL, "root")
    replies = [person.post(CHANNEL, str(number), thread_ts=root.ts) for number in range(3)]

    async def texts(ts: str, **arguments: Any) -> list[str]:
        found = await client.conversations_replies(channel=CHANNEL, ts=ts, **arguments)
        return [one["text"] for one in found["messages"]]

    assert await texts(root.ts) == ["root", "0", "1", "2"]
    assert await texts(root.ts, oldest=replies[1].ts) == ["root", "2"]
    assert await texts(replies[1].ts) == ["1"]
    assert await refused(client.conversations_replies(channel=CHANNEL, ts="1.0")) == (
        "thread_not_found"
    )
    pages = [
        len(page["messages"])
        async for page in await client.conversations_replies(channel=CHANNEL, ts=root.ts, limit=3)
    ]
    assert pages == [3, 1]


async def test_metadata_is_returned_when_asked_for(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    metadata = {"event_type": "threadline", "event_payload": {"id": "1"}}
    root = slack.user(PERSON).post(CHANNEL, "root")
    await client.chat_postMessage(channel=CHANNEL, text="x", thread_ts=root.ts, metadata=metadata)
    plain = await client.conversations_replies(channel=CHANNEL, ts=root.ts)
    full = await client.conversations_replies(
        channel=CHANNEL, ts=root.ts, include_all_metadata=True
    )
    assert "metadata" not in plain["messages"][1]
    assert full["messages"][1]["metadata"] == metadata


async def test_reading_takes_the_scope_of_that_kind_of_channel(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.app.install.scopes = {"channels:history"}
    await client.conversations_history(channel=CHANNEL)
    with pytest.raises(SlackApiError) as caught:
        await client.conversations_history(channel=DM)
    assert caught.value.response["needed"] == "im:history"


async def test_only_members_read(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    call = client.conversations_history(channel="C0PUBLIC001")
    assert await refused(call) == "not_in_channel"


# Channels


async def test_channels_as_the_bot_sees_them(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    slack.add_channel("C0PRIVATE01", "secret", members=[PERSON], kind="group")
    info = (await client.conversations_info(channel=CHANNEL))["channel"]
    assert (info["name"], info["is_member"], info["is_private"]) == ("general", True, False)
    direct = (await client.conversations_info(channel=DM))["channel"]
    assert (direct["is_im"], direct["user"]) == (True, PERSON)
    listed = (await client.conversations_list(types="public_channel,private_channel"))["channels"]
    assert [one["id"] for one in listed] == [CHANNEL, "C0PUBLIC001"]
    mine = (await client.users_conversations(types="public_channel,im,mpim"))["channels"]
    assert [one["id"] for one in mine] == [CHANNEL, DM, DEFAULTS["group_dm"]]
    assert await refused(client.conversations_list(types="nonsense")) == "invalid_types"
    assert await refused(client.conversations_info(channel="C0PRIVATE01")) == "channel_not_found"
    members = (await client.conversations_members(channel=CHANNEL))["members"]
    assert members == [BOT, PERSON, OTHER]


async def test_opening_conversations(slack: FakeSlack, client: AsyncWebClient) -> None:
    again = await client.conversations_open(users=PERSON)
    assert (again["channel"]["id"], again["already_open"]) == (DM, True)
    fresh = await client.conversations_open(users=OTHER, return_im=True)
    assert fresh["channel"]["user"] == OTHER
    assert fresh["channel"]["id"].startswith("D")
    both = await client.conversations_open(users=[PERSON, OTHER])
    assert both["channel"]["id"] == DEFAULTS["group_dm"]
    assert await refused(client.conversations_open(users="U0NOBODY001")) == "user_not_found"
    assert await refused(client.conversations_open(users="")) == "users_list_not_supplied"


async def test_joining(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    joined = await client.conversations_join(channel="C0PUBLIC001")
    assert joined["channel"]["is_member"] is True
    again = await client.conversations_join(channel="C0PUBLIC001")
    assert again["warning"] == "already_in_channel"
    assert [one.subtype for one in slack.messages("C0PUBLIC001")] == ["channel_join"]


# People, teams


async def test_people(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_user("U0GUEST0001", "guest", guest="single")
    user = (await client.users_info(user=PERSON))["user"]
    assert (user["name"], user["profile"]["email"]) == ("dev1", "dev1@acme.test")
    bot = (await client.users_info(user=BOT))["user"]
    assert (bot["is_bot"], bot["profile"]["bot_id"]) == (True, DEFAULTS["bot"])
    guest = (await client.users_info(user="U0GUEST0001"))["user"]
    assert guest["is_ultra_restricted"] is True
    found = await client.users_lookupByEmail(email="DEV2@acme.test")
    assert found["user"]["id"] == OTHER
    assert await refused(client.users_lookupByEmail(email="x@y.z")) == "users_not_found"
    assert await refused(client.users_info(user="U0NOBODY001")) == "user_not_found"
    ids = [one["id"] async for page in await client.users_list(limit=2) for one in page["members"]]
    assert ids == [PERSON, OTHER, BOT, "U0GUEST0001"]
    slack.app.install.scopes.discard("users:read.email")
    assert "email" not in (await client.users_info(user=PERSON))["user"]["profile"]


async def test_bots_groups_and_teams(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_group("S0GROUP001", "oncall", users=[PERSON])
    bot = (await client.bots_info(bot=DEFAULTS["bot"]))["bot"]
    assert (bot["user_id"], bot["app_id"]) == (BOT, DEFAULTS["app"])
    assert await refused(client.bots_info(bot="B0NOBODY001")) == "bot_not_found"
    groups = (await client.usergroups_list(include_users=True))["usergroups"]
    assert [(one["handle"], one["users"]) for one in groups] == [("oncall", [PERSON])]
    assert "users" not in (await client.usergroups_list())["usergroups"][0]
    team = (await client.team_info())["team"]
    assert (team["id"], team["domain"]) == (DEFAULTS["team"], "acme-test")
    assert (await client.emoji_list())["emoji"] == {}


async def test_slack_connect_shows_strangers(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_team("T0OTHERORG")
    slack.add_user("U0EXTERNAL", "visitor", team="T0OTHERORG", email="v@other.test")
    slack.add_channel(
        "C0SHARED001",
        "shared",
        members=[BOT, PERSON, "U0EXTERNAL"],
        teams=[DEFAULTS["team"], "T0OTHERORG"],
    )
    info = (await client.conversations_info(channel="C0SHARED001"))["channel"]
    assert info["is_ext_shared"] is True
    assert info["shared_team_ids"] == [DEFAULTS["team"], "T0OTHERORG"]
    stranger = (await client.users_info(user="U0EXTERNAL"))["user"]
    assert (stranger["is_stranger"], stranger["team_id"]) == (True, "T0OTHERORG")
    assert "email" not in stranger["profile"]


async def test_an_org_wide_token_says_which_team(slack: FakeSlack) -> None:
    slack.add_team("T0ONE", enterprise="E0ORG00001")
    slack.add_team("T0TWO", enterprise="E0ORG00001")
    slack.add_user("U0ONE000001", team="T0ONE")
    slack.add_user("U0TWO000001", team="T0TWO")
    app = slack.add_app("A0ORGWIDE1", "wide")
    install = slack.install(app, enterprise="E0ORG00001")
    slack.add_channel("C0ONE", "one", members=[install.bot_user], teams=["T0ONE"])
    slack.add_channel("C0TWO", "two", members=[install.bot_user], teams=["T0TWO"])
    client = AsyncWebClient(token=app.bot_token, base_url=slack.api_url)
    who = await client.auth_test()
    assert (who["is_enterprise_install"], who["enterprise_id"]) == (True, "E0ORG00001")
    assert await refused(client.users_list()) == "missing_argument"
    users = (await client.users_list(team_id="T0TWO"))["members"]
    assert [one["id"] for one in users] == ["U0TWO000001"]
    channels = (await client.conversations_list(team_id="T0ONE"))["channels"]
    assert [one["id"] for one in channels] == ["C0ONE"]
    await client.chat_postMessage(channel="C0TWO", text="x")
    assert await refused(client.chat_postMessage(channel=CHANNEL, text="x")) == "channel_not_found"


# OAuth; the client uses a way of aiohttp that aiohttp has deprecated

_OLD_WAY = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")


@_OLD_WAY
async def test_a_code_is_exchanged_once(slack: FakeSlack) -> None:
    slack.add_team("T0SECOND01")
    install = slack.install(slack.app, team="T0SECOND01", scopes=["chat:write"])
    code = slack.grant_code(install)
    client = AsyncWebClient(base_url=slack.api_url)
    secrets = {"client_id": slack.app.client_id, "client_secret": slack.app.client_secret}
    granted = await client.oauth_v2_access(code=code, **secrets)
    assert granted["access_token"] == install.token
    assert granted["team"]["id"] == "T0SECOND01"
    assert granted["scope"] == "chat:write"
    assert await refused(client.oauth_v2_access(code=code, **secrets)) == "invalid_code"
    wrong = client.oauth_v2_access(client_id=slack.app.client_id, client_secret="no", code="x")
    assert await refused(wrong) == "bad_client_secret"


@_OLD_WAY
async def test_the_oauth_page_leads_back_with_a_code(slack: FakeSlack) -> None:
    query = {
        "client_id": slack.app.client_id,
        "scope": "chat:write",
        "state": "s1",
        "redirect_uri": f"{slack.url}/signin",
    }
    async with aiohttp.ClientSession() as http:
        answer = await http.get(f"{slack.url}/oauth/v2/authorize", params=query)
        assert answer.url.query["state"] == "s1"
        code = answer.url.query["code"]
    granted = await AsyncWebClient(base_url=slack.api_url).oauth_v2_access(
        client_id=slack.app.client_id, client_secret=slack.app.client_secret, code=code
    )
    assert granted["access_token"] == slack.app.bot_token


@_OLD_WAY
async def test_tokens_can_be_rotated(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.app.install.refresh_token = "xoxe-1"
    old = slack.app.bot_token
    granted = await AsyncWebClient(base_url=slack.api_url).oauth_v2_access(
        client_id=slack.app.client_id,
        client_secret=slack.app.client_secret,
        grant_type="refresh_token",
        refresh_token="xoxe-1",
    )
    assert granted["access_token"] == slack.app.bot_token != old
    assert await refused(client.auth_test()) == "invalid_auth"


# Files


async def test_files_upload_v2_shares_a_file(slack: FakeSlack, client: AsyncWebClient) -> None:
    root = slack.user(PERSON).post(CHANNEL, "plot it")
    answer = await client.files_upload_v2(
        channel=CHANNEL,
        thread_ts=root.ts,
        filename="plot.png",
        title="The plot",
        file=io.BytesIO(b"\x89PNG"),
        initial_comment="here it is",
    )
    shared = slack.messages(CHANNEL, root.ts)[-1]
    assert shared.subtype == "file_share"
    assert (shared.text, shared.user) == ("here it is", BOT)
    assert [(one.name, one.content) for one in shared.files] == [("plot.png", b"\x89PNG")]
    assert answer["file"]["mimetype"] == "image/png"
    assert answer["file"]["title"] == "The plot"
    info = (await client.files_info(file=answer["file"]["id"]))["file"]
    assert info["size"] == 4


async def test_an_upload_that_never_arrived_cannot_be_shared(client: AsyncWebClient) -> None:
    given = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    call = client.files_completeUploadExternal(files=[{"id": given["file_id"]}], channel_id=CHANNEL)
    assert await refused(call) == "file_not_found"
    nothing = client.files_getUploadURLExternal(filename="a.txt", length=0)
    assert await refused(nothing) == "missing_argument"


async def test_files_are_shared_where_the_bot_is(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    given = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    async with aiohttp.ClientSession() as http:
        await http.post(given["upload_url"], data={"file": io.BytesIO(b"abc")})
    files = [{"id": given["file_id"]}]
    complete = client.files_completeUploadExternal
    assert await refused(complete(files=files, channel_id="C0PUBLIC001")) == "not_in_channel"
    assert await refused(complete(files=files, channel_id="C0NOWHERE01")) == "channel_not_found"
    unshared = await complete(files=files)
    assert unshared["files"][0]["channels"] == []
    assert (await client.files_info(file=given["file_id"]))["file"]["size"] == 3
    await complete(files=files, channels=[CHANNEL, DM])
    assert [slack.visible(one) for one in (CHANNEL, DM)] == [["a.txt"], ["a.txt"]]
    strange = slack.user(PERSON).upload("C0PUBLIC001", "b.txt", b"b").files[0]
    assert await refused(client.files_info(file=strange.id)) == "file_not_found"


async def test_an_upload_address_is_good_once(client: AsyncWebClient) -> None:
    given = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    async with aiohttp.ClientSession() as http:
        first = await http.post(given["upload_url"], data=b"abc")
        assert (first.status, await first.text()) == (200, "OK - 3")
        assert (await http.post(given["upload_url"], data=b"abc")).status == 404


async def test_downloads_take_the_bots_token(slack: FakeSlack, client: AsyncWebClient) -> None:
    posted = slack.user(PERSON).upload(CHANNEL, "trace.txt", b"line 1", text="read this")
    found = (await client.conversations_history(channel=CHANNEL))["messages"][0]
    url = found["files"][0]["url_private_download"]
    assert posted.files[0].id in url
    async with aiohttp.ClientSession() as http:
        bearer = {"Authorization": f"Bearer {slack.app.bot_token}"}
        answer = await http.get(url, headers=bearer)
        assert (answer.status, await answer.read()) == (200, b"line 1")
        assert answer.content_type == "text/plain"
        nobody = await http.get(url)
        assert (nobody.status, nobody.content_type) == (200, "text/html")
        slack.app.install.scopes.discard("files:read")
        assert (await http.get(url, headers=bearer)).content_type == "text/html"
        slack.app.install.scopes.add("files:read")
        slack.app.install.revoked = True
        assert (await http.get(url, headers=bearer)).content_type == "text/html"
        assert (await http.get(url.replace(posted.files[0].id, "F0"))).status == 404


async def test_a_file_from_outside_has_to_be_asked_for(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    posted = slack.user(PERSON).upload(CHANNEL, "a.txt", b"abc", access="check_file_info")
    found = (await client.conversations_history(channel=CHANNEL))["messages"][0]
    assert found["files"] == [
        {"id": posted.files[0].id, "mode": "file_access", "file_access": "check_file_info"}
    ]
    info = (await client.files_info(file=posted.files[0].id))["file"]
    assert info["name"] == "a.txt"
