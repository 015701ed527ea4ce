"""Where installations are kept: whole, encrypted, and for nobody else to read."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.oauth.installation_store import Bot, FileInstallationStore, Installation
from sqlalchemy import Text
from tests.channels.slack.many import (
    KEY,
    OTHER_KEY,
    SECOND,
    SECOND_CHANNEL,
    SECOND_PERSON,
    many,
)
from tests.channels.slack.world import CHANNEL, PERSON, TEAM

from threadline.errors import ProjectError
from threadline_slack.installing.installs import Folder, KeptStore, store_at
from threadline_slack.installing.sealing import Seal, SealedStore, WrongKey

CLIENT = "11.22"
SECRETS = {
    "bot_token": "xoxb-plain-bot",
    "bot_refresh_token": "xoxe-1-plain-refresh",
    "user_token": "xoxp-plain-user",
    "user_refresh_token": "xoxe-1-plain-user-refresh",
    "incoming_webhook_url": "https://hooks.slack.com/plain-hook",
}


def installation(
    team: str | None = "T1", enterprise: str | None = None, **more: Any
) -> Installation:
    given: dict[str, Any] = {
        "app_id": "A1",
        "team_id": team,
        "enterprise_id": enterprise,
        "is_enterprise_install": team is None,
        "bot_id": "B1",
        "bot_user_id": "U1",
        "bot_scopes": "chat:write,users:read",
        "user_id": "U2",
        **SECRETS,
    }
    return Installation(**given | more)


def at(tmp_path: Path, kind: str) -> str | None:
    """Return a SLACK_INSTALLATIONS of this kind."""
    found = {
        "the host's": None,
        "a folder": str(tmp_path / "kept" / "here"),
        "a database": f"sqlite:///{tmp_path}/kept/installations.db",
    }
    return found[kind]


KINDS = pytest.mark.parametrize("kind", ["the host's", "a folder", "a database"])


@KINDS
async def test_what_is_installed_is_there_after_a_restart_and_encrypted(
    kind: str, tmp_path: Path
) -> None:
    async with many(installations=at(tmp_path, kind)) as world:
        await world.install(TEAM)
        await world.install(SECOND)
        await world.restart()
        await world.asked(TEAM, CHANNEL, PERSON)
        await world.asked(SECOND, SECOND_CHANNEL, SECOND_PERSON)
        await world.host.stop()
        root = world.host.root if kind == "the host's" else tmp_path / "kept"
        files = [file for file in root.rglob("*") if file.is_file()]
        whole = b"".join(file.read_bytes() for file in files)
        assert TEAM.encode() in whole
        assert [one.token for one in world.slack.app.installs if one.token.encode() in whole] == []
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@KINDS
async def test_an_installation_is_replaced_and_removed(kind: str, tmp_path: Path) -> None:
    async with many(installations=at(tmp_path, kind)) as world:
        workspaces = world.bots.workspaces
        assert workspaces is not None
        store = workspaces._store
        await store.async_save(installation())
        await store.async_save(installation("T2"))
        await store.async_save(installation(None, "E1"))
        await store.async_save(installation("T1", "E1", bot_token="xoxb-of-e1"))
        first = await store.async_find_bot(enterprise_id=None, team_id="T1")
        assert first is not None
        assert (first.bot_token, first.bot_refresh_token) == (
            SECRETS["bot_token"],
            SECRETS["bot_refresh_token"],
        )
        assert (first.bot_id, first.bot_user_id, first.app_id) == ("B1", "U1", "A1")
        first.bot_token, first.bot_token_expires_at = "xoxb-new", 1_900_000_000
        await store.async_save_bot(first)
        again = await store.async_find_bot(enterprise_id=None, team_id="T1")
        assert again is not None
        assert (again.bot_token, again.bot_token_expires_at) == ("xoxb-new", 1_900_000_000)
        await store.async_delete_all(enterprise_id=None, team_id="T1")
        assert await store.async_find_bot(enterprise_id=None, team_id="T1") is None
        others = [
            await store.async_find_bot(enterprise_id=None, team_id="T2"),
            await store.async_find_bot(
                enterprise_id="E1", team_id=None, is_enterprise_install=True
            ),
            await store.async_find_bot(enterprise_id="E1", team_id="T1"),
        ]
        assert [one.bot_token if one else None for one in others] == [
            SECRETS["bot_token"],
            SECRETS["bot_token"],
            "xoxb-of-e1",
        ]


# Encrypting


class Seen:
    """A store that shows what reaches it."""

    def __init__(self) -> None:
        self.saved: list[Any] = []

    async def async_save(self, installation: Installation) -> None:
        self.saved.append(installation)

    async_save_bot = async_save

    async def async_find_bot(self, **_: Any) -> Bot:
        last = self.saved[-1]
        return last if isinstance(last, Bot) else last.to_bot()


def sealed(*keys: str) -> tuple[SealedStore, Any]:
    seen: Any = Seen()
    return SealedStore(seen, Seal(keys)), seen


async def find(store: SealedStore) -> Bot:
    found = await store.async_find_bot(enterprise_id=None, team_id="T1")
    assert found is not None
    return found


async def test_every_secret_of_an_installation_is_encrypted() -> None:
    store, seen = sealed(KEY)
    given = installation()
    await store.async_save(given)
    (kept,) = seen.saved
    assert not [name for name, value in SECRETS.items() if getattr(kept, name) == value]
    assert [getattr(given, name) for name in SECRETS] == list(SECRETS.values())
    assert (await find(store)).bot_token == SECRETS["bot_token"]
    assert len(seen.saved) == 1


async def test_what_an_old_key_encrypted_is_read_and_kept_with_the_new() -> None:
    old, seen = sealed(OTHER_KEY)
    await old.async_save(installation())
    both = SealedStore(seen, Seal([KEY, OTHER_KEY]))
    assert (await find(both)).bot_token == SECRETS["bot_token"]
    new = SealedStore(seen, Seal([KEY]))
    assert (await find(new)).bot_refresh_token == SECRETS["bot_refresh_token"]
    with pytest.raises(WrongKey, match="SLACK_ENCRYPTION_KEY"):
        await find(old)


async def test_what_bolt_kept_without_encryption_is_read_and_encrypted() -> None:
    store, seen = sealed(KEY)
    seen.saved.append(installation())
    assert (await find(store)).bot_token == SECRETS["bot_token"]
    assert not seen.saved[-1].bot_token.startswith("xox")


# Files


async def test_a_folder_of_bolts_is_taken_over(tmp_path: Path) -> None:
    bolt: Any = FileInstallationStore(base_dir=str(tmp_path), client_id=CLIENT)
    bolt.save(installation())
    store, engine = await store_at(str(tmp_path), CLIENT, "SLACK_INSTALLATIONS")
    found = await store.async_find_bot(enterprise_id=None, team_id="T1")
    assert engine is None
    assert found is not None
    assert found.bot_token == SECRETS["bot_token"]


async def test_a_file_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    await folder.put("a/b", {"n": 1})

    def broken(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="no space"):
        await folder.put("a/b", {"n": 2})
    assert await folder.get("a/b") == {"n": 1}
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["b"]
    assert await folder.delete("a/b")
    assert not await folder.delete("a/b")


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/x", "a//b", "", "a/.", "a\\b", "a\0b"])
async def test_no_name_leads_out_of_the_folder(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names no file"):
        await Folder(tmp_path).put(key, 1)


async def test_two_apps_share_a_folder(tmp_path: Path) -> None:
    one, other = (KeptStore(Folder(tmp_path), client) for client in ("1.1", "2.2"))
    await one.async_save(installation())
    assert await one.async_find_bot(enterprise_id=None, team_id="T1") is not None
    assert await other.async_find_bot(enterprise_id=None, team_id="T1") is None


# What cannot be opened


async def problem(where: str) -> str:
    with pytest.raises(ProjectError) as caught:
        await store_at(where, CLIENT, "TRIAGE_SLACK_INSTALLATIONS")
    (said,) = caught.value.problems
    assert said.startswith("TRIAGE_SLACK_INSTALLATIONS")
    assert "password" not in said.replace("user:password@host", "")
    return said


async def test_what_cannot_be_opened_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    (tmp_path / "file").write_text("")
    assert "no folder" in await problem(str(tmp_path / "file"))
    assert "no database's address" in await problem("nonsense://u:password@h/d")
    assert "no database's address" in await problem("://u:password@h/d")
    assert "threadline[slack-sql]" in await problem("postgresql://u:password@127.0.0.1:1/d")
    assert "cannot be opened" in await problem(f"sqlite:///{tmp_path}")


async def test_a_database_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slack_sdk.oauth.installation_store.sqlalchemy", None)
    assert "SQLAlchemy is not installed" in await problem("sqlite:///x")


async def test_encrypted_tokens_fit_their_columns(tmp_path: Path) -> None:
    """A database that holds lengths to be meant would refuse them."""
    store, engine = await store_at(f"sqlite:///{tmp_path}/i.db", CLIENT, "SLACK_INSTALLATIONS")
    assert engine is not None
    table = store.installations  # type: ignore[attr-defined]
    assert all(isinstance(table.c[name].type, Text) for name in SECRETS)
    await engine.dispose()
