"""What Slack sends on its own account: the check of an address, of TLS, and the events limit."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from threadline_slack.testing.model import App, Json
from threadline_slack.testing.outbound import Answer, Outbound
from threadline_slack.testing.state import State

__all__ = ["Checks"]


class Checks:
    """Requests that are not about anything that happened in a workspace."""

    def __init__(self, state: State, outbound: Outbound) -> None:
        self._state = state
        self._outbound = outbound

    async def verify(self, app: App) -> Answer:
        """Ask an address to prove that it is the app's, by a challenge."""
        challenge = self._state.mint("challenge-")
        body = {
            "token": app.verification_token,
            "challenge": challenge,
            "type": "url_verification",
        }
        answer = await self._post(app, json.dumps(body).encode(), "application/json")
        said = answer.body.get("challenge") if isinstance(answer.body, dict) else answer.body
        if answer.ok and str(said).strip() != challenge:
            return Answer(answer.status, answer.body, answer.headers, "challenge_failed")
        return answer

    async def ssl(self, app: App) -> Answer:
        """Send the form that Slack checks certificates with."""
        raw = urlencode({"ssl_check": "1", "token": app.verification_token}).encode()
        return await self._post(app, raw, "application/x-www-form-urlencoded")

    def limited(self, app: App) -> None:
        """Tell an app that it gets no more events in this minute."""
        body: Json = {
            "token": app.verification_token,
            "type": "app_rate_limited",
            "team_id": app.install.team,
            "minute_rate_limited": self._state.now() // 60 * 60,
            "api_app_id": app.id,
        }
        self._outbound.event(app, body)

    async def _post(self, app: App, raw: bytes, content_type: str) -> Answer:
        if app.request_url is None:
            raise LookupError("The app has no address; set slack.app.request_url.")
        return await self._outbound.post(app, app.request_url, raw, content_type)
