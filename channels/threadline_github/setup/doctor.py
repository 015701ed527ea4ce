"""What is wrong with a bot's set-up: the questions.

``findings`` and ``hooks`` say what answers mean. Nothing is changed at GitHub: an App's token of an
installation is made, and forgotten.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from threadline.cli.checks import Check
from threadline.errors import ProjectError
from threadline_github.config import API_URL, Config
from threadline_github.setup import findings, hooks
from threadline_github.setup.findings import SECONDS, Answer
from threadline_github.setup.manifest import Needs, site
from threadline_github.setup.signing import signed

if TYPE_CHECKING:
    import httpx2 as httpx

    from threadline.clock import Clock

__all__ = ["examine"]

_MANY = 100
_AGAIN = "Try again; https://www.githubstatus.com says whether GitHub is well."
_HOOKS = (
    "Give the token admin:repo_hook, or webhooks: read if it is fine-grained; without it what was "
    "missed while the host was down is not asked for."
)
_ANY = "Name them, as GitHubChannel(repositories=[…]), to have each looked at."


async def examine(
    needs: Needs,
    environ: Mapping[str, str],
    *,
    prefix: str = "",
    url: str | None = None,
    clock: Clock,
) -> list[Check]:
    """Return all findings; each question has ten seconds, and no finding holds a secret.

    ``url`` is the public address of the webhook, None to leave it alone.
    """
    try:
        config = Config.read(environ, prefix)
    except ProjectError as error:
        fix = "Set it where the host runs; `threadline github manifest` says how an App is made."
        return [Check("variables", "problem", problem, fix) for problem in error.problems]
    import httpx2 as httpx

    async with httpx.AsyncClient(timeout=SECONDS) as http:
        found = await _Examination(needs, config, prefix, url, clock, http).run()
    secrets = [config.webhook_secret, config.token, config.private_key]
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
        prefix: str,
        url: str | None,
        clock: Clock,
        http: httpx.AsyncClient,
    ) -> None:
        self._needs = needs
        self._config = config
        self._prefix = prefix
        self._url = url
        self._clock = clock
        self._http = http
        self._site = site(config.api_url)

    async def run(self) -> list[Check]:
        bot = self._app() if self._config.app_id is not None else self._token()
        found = [self._variables(), *await bot, await self._address()]
        if self._needs.worktree:
            found.append(findings.git_check(await _git_version()))
        return found

    def _variables(self) -> Check:
        who = "an App" if self._config.app_id is not None else "a token"
        where = "" if self._config.api_url == API_URL else f" The server is {self._config.api_url}."
        return Check("variables", "ok", f"All are there; the bot signs in with {who}.{where}")

    # An App

    async def _app(self) -> list[Check]:
        try:
            jwt = _jwt(self._config)
        except Exception as error:
            said = f"The private key cannot be used: {type(error).__name__}."
            fix = "Copy the whole file that GitHub made, its first and last line included."
            return [Check("private key", "problem", said, fix)]
        answer = await self._ask("/app", jwt)
        if isinstance(answer, Exception):
            return [findings.refused("app", "", answer, "")]
        clock = findings.clock(answer.headers.get("date"), self._clock.now())
        if answer.status in (401, 404):
            return [findings.app_refused(answer, self._prefix), clock]
        if not answer.ok:
            return [findings.refused("app", "GitHub does not say who it is", answer, _AGAIN), clock]
        app = answer.object
        settings = self._settings(app)
        held, sent = app.get("permissions"), app.get("events")
        return [
            findings.app_check(app),
            clock,
            findings.permissions_check(
                held if isinstance(held, dict) else {}, self._needs, f"{settings}/permissions"
            ),
            findings.events_check(
                [str(event) for event in sent] if isinstance(sent, list) else [],
                self._needs,
                f"{settings}/permissions",
            ),
            *await self._app_hook(jwt, settings),
            *await self._installations(jwt, str(app.get("html_url") or settings)),
            *await self._installed(jwt),
            *await self._deliveries("/app/hook/deliveries", jwt),
        ]

    def _settings(self, app: Mapping[str, Any]) -> str:
        """Return the address of an App's settings, which are its owner's."""
        owner = app.get("owner")
        if isinstance(owner, dict) and owner.get("type") == "Organization":
            return (
                f"{self._site}/organizations/{owner.get('login')}/settings/apps/{app.get('slug')}"
            )
        return f"{self._site}/settings/apps/{app.get('slug')}"

    async def _app_hook(self, jwt: str, settings: str) -> list[Check]:
        answer = await self._ask("/app/hook/config", jwt)
        if isinstance(answer, Answer) and answer.status == 404:
            return hooks.app_hook_check({}, self._needs, settings)
        if not isinstance(answer, Answer) or not answer.ok:
            return [findings.refused("webhook", "Its settings are not told", answer, _AGAIN)]
        return hooks.app_hook_check(answer.object, self._needs, settings)

    async def _installations(self, jwt: str, app_url: str) -> list[Check]:
        answer = await self._ask(f"/app/installations?per_page={_MANY}", jwt)
        if not isinstance(answer, Answer) or not answer.ok:
            what = "The installations are not told"
            return [findings.refused("installation", what, answer, _AGAIN)]
        found = findings.installation_checks(answer.items, self._needs, app_url)
        usable = [one for one in answer.items if not one.get("suspended_at")]
        return [*found, *(await self._installation_rate(jwt, usable[0]) if usable else [])]

    async def _installation_rate(self, jwt: str, one: Mapping[str, Any]) -> list[Check]:
        """Make a token of an installation, and ask how many calls it has left."""
        path = f"/app/installations/{one.get('id')}/access_tokens"
        answer = await self._ask(path, jwt, method="POST")
        if not isinstance(answer, Answer) or not answer.ok:
            what = f"No token of the installation {one.get('id')} is to be had"
            return [findings.refused("installation", what, answer, _AGAIN)]
        return await self._rate(str(answer.object.get("token")))

    async def _installed(self, jwt: str) -> list[Check]:
        """Ask for each repository of the rules whether the App is installed in it."""
        found = []
        for name in sorted(self._needs.repositories or ()):
            answer = await self._ask(f"/repos/{name}/installation", jwt)
            if isinstance(answer, Answer) and answer.ok:
                found.append(Check("repository", "ok", f"The App is installed in {name}."))
                continue
            fix = "Is the name right? Whoever owns the repository has to install the App there."
            what = f"The App is not installed in {name}"
            found.append(findings.refused("repository", what, answer, fix))
        return found

    # A token

    async def _token(self) -> list[Check]:
        token = self._config.token or ""
        answer = await self._ask("/user", token)
        if isinstance(answer, Exception):
            return [findings.refused("token", "", answer, "")]
        now = self._clock.now()
        clock = findings.clock(answer.headers.get("date"), now)
        if not answer.ok:
            return [findings.token_refused(answer), clock]
        return [
            findings.token_check(answer.object, answer.headers, now),
            clock,
            *findings.scopes_check(answer.headers.get("x-oauth-scopes"), self._needs),
            *await self._rate(token),
            *await self._repositories(token),
        ]

    async def _repositories(self, token: str) -> list[Check]:
        names = sorted(self._needs.repositories or ())
        if not names:
            said = "Which repositories have a webhook that leads here was not looked at."
            return [Check("repository", "note", said, _ANY)]
        return [check for name in names for check in await self._repository(name, token)]

    async def _repository(self, name: str, token: str) -> list[Check]:
        answer = await self._ask(f"/repos/{name}", token)
        if not isinstance(answer, Answer) or not answer.ok:
            fix = "Is the name right, and may the token read it?"
            return [findings.refused("repository", f"{name} cannot be read", answer, fix)]
        found = [Check("repository", "ok", f"{name} can be read.")]
        answer = await self._ask(f"/repos/{name}/hooks?per_page={_MANY}", token)
        if isinstance(answer, Answer) and answer.status in (403, 404):
            said = f"The token may not see the webhooks of {name} ({answer.said})."
            return [*found, Check("webhook", "note", said, _HOOKS)]
        if not isinstance(answer, Answer) or not answer.ok:
            return [*found, findings.refused("webhook", "They are not told", answer, _AGAIN)]
        hook = hooks.hook_of(answer.items, self._needs.path)
        found += hooks.repository_hook_checks(name, hook, self._needs, self._site)
        if hook is None:
            return found
        path = f"/repos/{name}/hooks/{hook.get('id')}/deliveries"
        return [*found, *await self._deliveries(path, token, name)]

    # Both

    async def _deliveries(self, path: str, token: str, where: str = "") -> list[Check]:
        answer = await self._ask(f"{path}?per_page={_MANY}", token)
        if isinstance(answer, Answer) and answer.status in (403, 404):
            said = f"The server does not tell its deliveries ({answer.said})."
            return [Check("deliveries", "note", said, "The webhook's settings show them.")]
        if not isinstance(answer, Answer) or not answer.ok:
            return [findings.refused("deliveries", "They are not told", answer, _AGAIN)]
        return [hooks.deliveries_check(answer.items, where)]

    async def _rate(self, token: str) -> list[Check]:
        answer = await self._ask("/rate_limit", token)
        if isinstance(answer, Answer) and answer.status == 404:
            return [Check("rate limit", "ok", "The server limits no calls.")]
        if not isinstance(answer, Answer) or not answer.ok:
            return [findings.refused("rate limit", "It is not told", answer, _AGAIN)]
        return [findings.rate_check(answer.object, self._clock.now())]

    async def _address(self) -> Check:
        """Send a ``ping`` as GitHub does, to see whether an address is the agent's."""
        url = self._url
        if url is None:
            said = "Whether GitHub can send events to the host was not tried."
            return Check("address", "note", said, "Give --url, the agent's public address.")
        body = json.dumps({"zen": "Practicality beats purity.", "hook_id": 0}).encode()
        headers = signed(self._config.webhook_secret, body, "ping", "threadline-doctor")
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(SECONDS + 1):
                answer = await self._http.post(
                    url, content=body, headers=headers, follow_redirects=False, timeout=None
                )
        except Exception as error:
            return hooks.unreachable(url, error)
        return hooks.address_check(url, answer.status_code, self._clock.monotonic() - began)

    async def _ask(self, path: str, token: str, *, method: str = "GET") -> Answer | Exception:
        """Return what GitHub answers, or why it does not."""
        import httpx2 as httpx

        headers = {
            "accept": "application/vnd.github+json",
            "authorization": f"Bearer {token}",
            "user-agent": "threadline-doctor",
        }
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self._http.request(
                    method, self._config.api_url + path, headers=headers, follow_redirects=True
                )
        except httpx.TimeoutException:
            return TimeoutError()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return error
        try:
            body = answer.json()
        except ValueError:
            body = None
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status_code, named, body)


def _jwt(config: Config) -> str:
    from gidgethub.apps import get_jwt

    assert config.app_id is not None
    assert config.private_key is not None
    return get_jwt(app_id=config.app_id, private_key=config.private_key, expiration=9 * 60)


async def _git_version() -> str | None:
    """Return what git says of itself; None when there is none."""
    program = shutil.which("git")
    if program is None:
        return None
    process = await asyncio.create_subprocess_exec(
        program, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    said, _ = await process.communicate()
    return said.decode("utf-8", "replace")
