"""Tokens encrypted at rest, whatever store keeps them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from threadline.errors import ThreadlineError

if TYPE_CHECKING:
    from slack_sdk.oauth.installation_store import Bot, Installation
    from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore

__all__ = ["SECRETS", "Seal", "SealedStore", "WrongKey"]

T = TypeVar("T", "Bot", "Installation")

SECRETS = (
    "bot_token",
    "bot_refresh_token",
    "user_token",
    "user_refresh_token",
    "incoming_webhook_url",
)
_PLAIN = ("xox", "https://")


class WrongKey(ThreadlineError):
    """What is stored was encrypted with a key that is not there any more."""

    code = "wrong_key"
    status = 503


class Seal:
    """Encrypts with the first key, and decrypts with each of them, by Fernet.

    ``name`` is that of the variable which has the keys, for errors.
    """

    def __init__(self, keys: Sequence[str], name: str = "SLACK_ENCRYPTION_KEY") -> None:
        from cryptography.fernet import Fernet, MultiFernet

        self._name = name
        self._first = Fernet(keys[0])
        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def close(self, text: str) -> str:
        """Encrypt a secret."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, text: str) -> str:
        """Decrypt a secret; one that Bolt stored without encryption is returned as it is.

        Raises WrongKey.
        """
        from cryptography.fernet import InvalidToken

        if text.startswith(_PLAIN):
            return text
        try:
            return self._fernet.decrypt(text).decode()
        except InvalidToken:
            raise WrongKey(
                "The tokens of installations were encrypted with another key. Put that key behind "
                f"the new one in {self._name}, with a comma between, or install the app again."
            ) from None

    def is_current(self, text: str) -> bool:
        """Tell whether a text was encrypted with the first key."""
        from cryptography.fernet import InvalidToken

        try:
            self._first.decrypt(text)
        except InvalidToken:
            return False
        return True


class SealedStore:
    """A store of installations whose secrets reach the one behind it encrypted."""

    def __init__(self, store: AsyncInstallationStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    async def async_save(self, installation: Installation) -> None:
        """Keep an installation."""
        await self._store.async_save(_mapped(installation, self._seal.close))

    async def async_save_bot(self, bot: Bot) -> None:
        """Keep a bot whose token was refreshed."""
        await self._store.async_save_bot(_mapped(bot, self._seal.close))

    async def async_find_bot(
        self,
        *,
        enterprise_id: str | None,
        team_id: str | None,
        is_enterprise_install: bool | None = False,
    ) -> Bot | None:
        """Return the bot of a workspace or organisation; raises WrongKey.

        One that was encrypted with an old key is kept again with the first.
        """
        found = await self._store.async_find_bot(
            enterprise_id=enterprise_id,
            team_id=team_id,
            is_enterprise_install=is_enterprise_install,
        )
        if found is None:
            return None
        bot = _mapped(found, self._seal.open)
        if not self._seal.is_current(found.bot_token or ""):
            await self.async_save_bot(bot)
        return bot

    async def async_delete_all(self, *, enterprise_id: str | None, team_id: str | None) -> None:
        """Forget what a workspace or organisation installed."""
        await self._store.async_delete_all(enterprise_id=enterprise_id, team_id=team_id)


def _mapped(record: T, change: Callable[[str], str]) -> T:
    """Return a copy with each of its secrets changed."""
    made = copy.copy(record)
    for name in SECRETS:
        if value := getattr(made, name, None):
            setattr(made, name, change(value))
    return made
