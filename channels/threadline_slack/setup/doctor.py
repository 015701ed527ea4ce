"""What is wrong with a bot's set-up: the questions; see ``findings`` for what answers mean.

Slack tells no app which events it subscribes to, nor whether people can write to it; those are
notes. A socket that is opened to see whether it can be is closed at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from threadline.cli.checks import Check
from threadline.errors import ProjectError
from threadline_slack.config import API_URL, Config
from threadline_slack.setup import findings
from threadline_slack.setup.findings import SECONDS
from threadline_slack.setup.manifest import Needs

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

    from threadline.clock import Clock

__all__ = ["examine"]

_PAGES = 10


async def examine(
    needs: Needs,
    environ: Mapping[str, str],
    *,
    prefix: str = "",
    events_url: str | None = None,
    install_url: str | None = None,
    clock: Clock,
) -> list[Check]:
    """Return all findings; each question has ten seconds, and no finding holds a secret."""
    try:
        config = Config.read(environ, prefix)
    except ProjectError as error:
        return [Check("variables", "problem", problem) for problem in error.problems]
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        urls = events_url, install_url
        found = await _Examination(needs, config, urls, clock, http).run()
    secrets = [config.bot_token, config.app_token, config.signing_secret]
    if config.oauth is not None:
        secrets += [config.oauth.client_secret, *config.oauth.keys]
    return [_without(check, [secret for secret in secrets if secret]) for check in found]


def _without(check: Check, secrets: Iterable[str]) -> Check:
    for secret in secrets:
        check = replace(
            check, said=check.said.replace(secret, "…"), fix=check.fix.replace(secret, "…")
        )
    return check


class _Examination:
    """The questions, one after another."""

    def __init__(
        self,
        needs: Needs,
        config: Config,
        urls: tuple[str | None, str | None],
        clock: Clock,
        http: aiohttp.ClientSession,
    ) -> None:
        self._needs = needs
        self._config = config
        self._events_url, self._install_url = urls
        self._clock = clock
        self._http = http
        self._app: str | None = None

    async def run(self) -> list[Check]:
        found = [self._variables()]
        found += await self._bot()
        if self._config.app_token is not None:
            found.append(await self._socket(self._config.app_token))
            if self._events_url is not None and self._config.oauth is None:
                said = "The address was not tried, since events come by Socket Mode."
                found.append(Check("events address", "note", said, "Or unset the app token."))
        else:
            found.append(await self._events())
        return [*found, *findings.untold(self._needs)]

    def _variables(self) -> Check:
        how = "Socket Mode" if self._config.app_token is not None else "HTTP"
        where = "" if self._config.api_url == API_URL else f" The server is {self._config.api_url}"
        return Check("variables", "ok", f"All are there; events come by {how}.{where}")

    def _client(self, token: str) -> AsyncWebClient:
        from slack_sdk.web.async_client import AsyncWebClient

        return AsyncWebClient(token, self._config.api_url, session=self._http, retry_handlers=[])

    # The bot

    async def _bot(self) -> list[Check]:
        if self._config.bot_token is None:
            said = "The bot serves whichever workspace installs it, each with a token of its own."
            oauth = self._config.oauth
            client_id = oauth.client_id if oauth is not None else ""
            return [Check("bot token", "note", said), await self._install(client_id)]
        client = self._client(self._config.bot_token)
        try:
            answer = await client.auth_test()
        except Exception as error:
            return [findings.refused("bot token", error, findings.TOKEN_FIXES, findings.AGAIN)]
        headers = {name.lower(): value for name, value in answer.headers.items()}
        whose = findings.token_check(answer.data if isinstance(answer.data, dict) else {})
        found = [whose, findings.clock(headers.get("date"), self._clock.now())]
        if whose.state != "ok":
            return found
        self._app = answer.get("app_id") or await _app_of(client, str(answer.get("bot_id")))
        found.append(findings.scopes_check(headers.get("x-oauth-scopes"), self._needs))
        return [*found, *await self._channels(client, str(answer.get("user")))]

    async def _channels(self, client: AsyncWebClient, bot: str) -> list[Check]:
        if not self._needs.watch:
            return []
        try:
            joined = await _joined(client)
        except Exception as error:
            return [findings.refused("channel", error, {}, "See the scopes above.")]
        return findings.member_checks(self._needs.watch, joined, bot)

    # How events come

    async def _socket(self, token: str) -> Check:
        """Open a socket, and close it when Slack has greeted."""
        try:
            async with asyncio.timeout(SECONDS):
                client = self._client(token)
                opened = await client.apps_connections_open(app_token=token)
                url, ssl = str(opened["url"]), True if client.ssl is None else client.ssl
                async with self._http.ws_connect(url, proxy=client.proxy, ssl=ssl) as socket:
                    frame = await socket.receive()
        except Exception as error:
            return findings.refused("socket", error, findings.SOCKET_FIXES, findings.APP_TOKEN)
        greeting = _object(frame.data)
        if greeting.get("type") != "hello":
            reason = str(greeting.get("reason") or "no greeting")
            fix = findings.SOCKET_FIXES.get(reason, findings.NETWORK)
            return Check("socket", "problem", f"Slack closes the socket: {reason}.", fix)
        app = (greeting.get("connection_info") or {}).get("app_id")
        if self._app and app and app != self._app:
            said = f"The app token is of the app {app}, the bot token of {self._app}."
            return Check("socket", "problem", said, "Take both tokens from one app.")
        count = greeting.get("num_connections")
        return findings.socket_check(count if isinstance(count, int) else None)

    async def _events(self) -> Check:
        """Send what Slack sends to see whether an address is the app's."""
        url = self._events_url
        if url is None:
            said = "Whether Slack can send events to the host was not tried."
            return Check("events address", "note", said, "Give --url, the agent's public address.")
        from slack_sdk.signature import SignatureVerifier

        challenge = "threadline-doctor"
        body = json.dumps({"type": "url_verification", "challenge": challenge})
        stamp = str(int(self._clock.now().timestamp()))
        verifier = SignatureVerifier(self._config.signing_secret or "")
        headers = {
            "Content-Type": "application/json",
            "X-Slack-Request-Timestamp": stamp,
            "X-Slack-Signature": str(verifier.generate_signature(timestamp=stamp, body=body)),
        }
        began = self._clock.monotonic()
        try:
            async with self._http.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status, body_said = answer.status, _object(await answer.text())
        except Exception as error:
            return findings.unreachable("events address", url, error)
        seconds = self._clock.monotonic() - began
        return findings.events_check(url, status, body_said, challenge, seconds)

    async def _install(self, client_id: str) -> Check:
        """Ask where the address to install the app at leads."""
        url = self._install_url
        if url is None:
            said = "Whether the app can be installed was not tried."
            return Check("install address", "note", said, "Give --url, the agent's public address.")
        try:
            async with self._http.get(url, allow_redirects=False) as answer:
                status, location = answer.status, answer.headers.get("Location", "")
        except Exception as error:
            return findings.unreachable("install address", url, error)
        return findings.install_check(url, status, location, client_id)


async def _app_of(client: AsyncWebClient, bot_id: str) -> str | None:
    """Return the app of a bot, if Slack says it."""
    try:
        answer = await client.bots_info(bot=bot_id)
    except Exception:
        return None
    found = (answer.get("bot") or {}).get("app_id")
    return str(found) if found else None


async def _joined(client: AsyncWebClient) -> dict[str, str]:
    """Return the channels that the bot is in, names by id."""
    found: dict[str, str] = {}
    cursor: str | None = None
    for _ in range(_PAGES):
        answer = await client.users_conversations(
            types="public_channel,private_channel", exclude_archived=True, limit=200, cursor=cursor
        )
        found |= {str(one["id"]): str(one.get("name")) for one in answer.get("channels") or []}
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
        if cursor is None:
            break
    return found


def _object(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
