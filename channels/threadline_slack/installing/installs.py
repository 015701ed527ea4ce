"""Where installations are kept: the host's own store, a folder, or a database.

Each is an ``AsyncInstallationStore`` as slack_sdk and Bolt have it; tokens reach it encrypted.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson

from threadline.errors import ProjectError
from threadline_slack.installing.sealing import SECRETS

if TYPE_CHECKING:
    from slack_sdk.oauth.installation_store import Bot, Installation
    from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["Folder", "KeptStore", "Values", "database", "store_at"]

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_NONE = "none"


class Values(Protocol):
    """Keeps JSON values by name, as a channel's ``ctx.kv`` does."""

    async def get(self, key: str) -> Any:
        """Return a kept value, or None."""

    async def put(self, key: str, value: Any) -> None:
        """Keep a value durably."""

    async def delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""


class KeptStore:
    """Installations among a channel's values, or in a folder's files; bots only.

    The names are those of Bolt's file store: ``<client id>/<enterprise>-<team>/bot-latest``.
    """

    def __init__(self, values: Values, client_id: str) -> None:
        self._values = values
        self._client_id = client_id

    def _key(self, enterprise: str | None, team: str | None) -> str:
        return f"{self._client_id}/{enterprise or _NONE}-{team or _NONE}/bot-latest"

    async def async_save(self, installation: Installation) -> None:
        """Keep the bot of an installation."""
        await self.async_save_bot(installation.to_bot())

    async def async_save_bot(self, bot: Bot) -> None:
        """Keep a bot."""
        await self._values.put(self._key(bot.enterprise_id, bot.team_id), dict(bot.__dict__))

    async def async_find_bot(
        self,
        *,
        enterprise_id: str | None,
        team_id: str | None,
        is_enterprise_install: bool | None = False,
    ) -> Bot | None:
        """Return the bot of a workspace; of an organisation when that installed it."""
        from slack_sdk.oauth.installation_store import Bot

        team = None if is_enterprise_install else team_id
        found = await self._values.get(self._key(enterprise_id, team))
        return None if found is None else Bot(**found)

    async def async_delete_all(self, *, enterprise_id: str | None, team_id: str | None) -> None:
        """Forget a bot."""
        await self._values.delete(self._key(enterprise_id, team_id))


class Folder:
    """Values as files of a folder: 0600, each written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def get(self, key: str) -> Any:
        """Return a kept value, or None."""
        try:
            return orjson.loads(self._file(key).read_bytes())
        except FileNotFoundError:
            return None

    async def put(self, key: str, value: Any) -> None:
        """Keep a value durably."""
        file = self._file(key)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", dir=file.parent)  # it is 0600
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(orjson.dumps(value))
                out.flush()
                os.fsync(out.fileno())
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync(file.parent)

    async def delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""
        with contextlib.suppress(FileNotFoundError):
            self._file(key).unlink()
            return True
        return False

    def _file(self, key: str) -> Path:
        """Return a value's file; raises ValueError for a name that leaves the folder."""
        parts = key.split("/")
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise ValueError(f"{key!r} names no file.")
        return self._path.joinpath(*parts)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# By address


async def store_at(
    where: str, client_id: str, name: str
) -> tuple[AsyncInstallationStore, AsyncEngine | None]:
    """Return the store at a folder or database address, and the engine to dispose of in the end.

    ``name`` is that of the variable, for errors. Raises ProjectError.
    """
    if "://" in where:
        return await database(where, client_id, name)
    folder = Path(where).expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ProjectError([f"{name} is no folder to write to: {error}."]) from None
    return cast("AsyncInstallationStore", KeptStore(Folder(folder), client_id)), None


async def database(
    where: str, client_id: str, name: str
) -> tuple[AsyncInstallationStore, AsyncEngine]:
    """Return slack_sdk's store in a database, with its tables made; raises ProjectError."""
    try:
        from slack_sdk.oauth.installation_store.sqlalchemy import AsyncSQLAlchemyInstallationStore
        from sqlalchemy import Text
        from sqlalchemy.engine import make_url
        from sqlalchemy.ext.asyncio import create_async_engine
    except ImportError:
        raise ProjectError([_missing(name, "SQLAlchemy")]) from None
    try:
        url = make_url(where)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        engine = create_async_engine(url)
    except ModuleNotFoundError as error:
        raise ProjectError([_missing(name, error.name or "its driver")]) from None
    except Exception as error:
        # Not what it says: that may hold the password.
        raise ProjectError(
            [
                f"{name} is no database's address ({type(error).__name__}). It is written as "
                "postgresql://user:password@host/database or sqlite:///path."
            ]
        ) from None
    store = AsyncSQLAlchemyInstallationStore(client_id, engine)
    for table in (store.bots, store.installations):
        # Encrypted tokens are longer than the columns that slack_sdk gives them.
        for column in table.columns:
            if column.name in SECRETS:
                column.type = Text()
    try:
        _private(url)
        await store.create_tables()  # type: ignore[no-untyped-call]
    except Exception as error:
        await engine.dispose()
        raise ProjectError([f"{name} cannot be opened: {_brief(error)}"]) from None
    return store, engine


def _missing(name: str, what: str) -> str:
    return (
        f"{name} is a database's address, and {what} is not installed: "
        "pip install 'threadline[slack-sql]', or give a folder."
    )


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _private(url: URL) -> None:
    """Make an SQLite file that only its owner reads."""
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        path = Path(str(url.database))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
