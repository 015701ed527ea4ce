"""What the answers to a doctor's questions mean, and the fix of each problem; no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from threadline.cli.checks import Check, clock_check, why
from threadline_slack.outbound.thread import error_of
from threadline_slack.setup.manifest import Needs, bot_events, bot_scopes

__all__ = [
    "AGAIN",
    "APP_TOKEN",
    "NETWORK",
    "SECONDS",
    "SOCKET_FIXES",
    "TOKEN_FIXES",
    "clock",
    "events_check",
    "install_check",
    "member_checks",
    "refused",
    "scopes_check",
    "socket_check",
    "token_check",
    "unreachable",
    "untold",
]

SECONDS = 10.0
"""How long each question may take."""

_SKEW, _SIGNED_FOR = 60, "five minutes"
_ACK = 3.0
_CONNECTIONS = 10
AGAIN = "Install the app again (OAuth & Permissions), and copy the new token."
TOKEN_FIXES = {
    "account_inactive": AGAIN,
    "invalid_auth": "Copy the Bot User OAuth Token of OAuth & Permissions; it begins with xoxb-.",
    "not_allowed_token_type": "This is another kind of token; the bot's begins with xoxb-.",
    "org_login_required": "The workspace moved into an organisation: install the app there.",
    "token_expired": "Switch token rotation off, or let workspaces install the app by OAuth.",
    "token_revoked": AGAIN,
}
SOCKET_FIXES = {
    "link_disabled": "Switch Socket Mode on in the app's settings.",
    "too_many_websockets": "Slack allows an app ten connections, of all its hosts together.",
}
APP_TOKEN = "Make an app-level token with the scope connections:write (Basic Information)."
NETWORK = "Check the network, a proxy, and what SLACK_API_URL says."


# What answers mean


def token_check(answer: Mapping[str, Any]) -> Check:
    """Return whose token it is, by the answer of ``auth.test``."""
    team = f"{answer.get('team')} ({answer.get('team_id')})"
    if not answer.get("bot_id"):
        said = f"It is the token of a person, {answer.get('user')} of {team}, not of a bot."
        return Check("bot token", "problem", said, TOKEN_FIXES["invalid_auth"])
    said = f"It is the bot @{answer.get('user')} ({answer.get('user_id')}) of {team}."
    return Check("bot token", "ok", said)


def scopes_check(held: str | None, needs: Needs) -> Check:
    """Compare the scopes of the header ``x-oauth-scopes`` with those that are needed."""
    wanted = set(bot_scopes(needs))
    if held is None:
        said = f"The server does not say which scopes there are. Needed: {_listed(wanted)}."
        return Check("scopes", "note", said)
    have = {scope.strip() for scope in held.split(",")} - {""}
    if missing := wanted - have:
        fix = (
            "Put what `threadline slack manifest` prints into the app's App Manifest, or add them "
            "under OAuth & Permissions; then install the app again."
        )
        return Check("scopes", "problem", f"Missing: {_listed(missing)}.", fix)
    more = have - wanted
    unused = f" It does not need {_listed(more)}." if more else ""
    return Check("scopes", "ok", f"All {len(wanted)} that are needed are there.{unused}")


def clock(date: str | None, now: datetime) -> Check:
    """Compare the header ``Date`` of an answer with this machine's clock."""
    fix = f"Set it, by NTP for example: Slack's signatures are good for {_SIGNED_FOR}."
    return clock_check(date, now, whose="Slack's", skew=_SKEW, fix=fix)


def events_check(url: str, status: int, answer: Any, challenge: str, seconds: float) -> Check:
    """Return what the address of the events answered to a signed ``url_verification``."""

    def problem(said: str, fix: str) -> Check:
        return Check("events address", "problem", f"{url} {said}", fix)

    if status == 401:
        return problem(
            "refuses what is signed with this signing secret.",
            "Use the same secret here and there. If it is the same: does a proxy change the body?",
        )
    if status in (404, 405):
        return problem(
            f"is no route of the host ({status}).",
            "The address is the agent's as `threadline serve` prints it, with the agent's name in "
            "its path if the host has several.",
        )
    if 300 <= status < 400:
        return problem(f"redirects ({status}); Slack does not follow.", "Name the last address.")
    if status != 200:
        return problem(f"answers {status}.", "Look at the host's log.")
    if not isinstance(answer, dict) or answer.get("challenge") != challenge:
        return problem(
            "does not answer the challenge.", "Something else than the agent listens there."
        )
    if seconds > _ACK:
        return problem(
            f"takes {seconds:.0f} seconds; Slack waits {_ACK:.0f}.", "Look at what is between."
        )
    return Check("events address", "ok", f"{url} answers, and checks signatures.")


def install_check(url: str, status: int, location: str, client_id: str) -> Check:
    """Return whether the address to install the app at leads to Slack."""
    if 300 <= status < 400 and client_id in location:
        return Check("install address", "ok", f"{url} leads to Slack.")
    fix = "The address is the agent's, as `threadline serve` prints it; look at the host's log."
    return Check("install address", "problem", f"{url} does not lead to Slack ({status}).", fix)


def unreachable(name: str, url: str, error: Exception) -> Check:
    """Return that an address of the host does not answer."""
    fix = "Is the host running, and the address public? Slack calls from the internet."
    return Check(name, "problem", f"{url} cannot be reached: {why(error)}.", fix)


def socket_check(connections: int | None) -> Check:
    """Return what the greeting of a socket says."""
    said = "A socket opens, and Slack greets."
    if connections is None:
        return Check("socket", "ok", said)
    others = connections - 1
    if connections >= _CONNECTIONS:
        fix = SOCKET_FIXES["too_many_websockets"]
        return Check("socket", "problem", f"{said} There are {others} others already.", fix)
    return Check("socket", "ok", f"{said} {others or 'No'} other{'s' * (others != 1)} open.")


def member_checks(watched: Iterable[str], joined: Mapping[str, str], bot: str) -> list[Check]:
    """Return for each watched channel whether the bot is in it; ``joined`` maps ids to names."""
    there = {*joined, *(f"#{name}" for name in joined.values())}
    return [
        Check("channel", "ok", f"The bot is in {one}.")
        if one in there
        else Check(
            "channel",
            "problem",
            f"The bot is not in {one}, so it hears nothing there.",
            f"Write /invite @{bot} in that channel.",
        )
        for one in watched
    ]


def untold(needs: Needs) -> list[Check]:
    """Return what Slack tells no app, and where a person can see it."""
    tab = "Slack does not say whether people can write to the bot directly."
    events = "Slack does not say which events it sends; what arrives shows it."
    found = [
        Check(
            "messages tab",
            "note",
            tab,
            'App Home: "Messages Tab" on, with "Allow users to send Slash commands and messages".',
        ),
        Check(
            "events", "note", events, f"Event Subscriptions needs: {_listed(bot_events(needs))}."
        ),
    ]
    if needs.agent:
        said = "Slack does not say whether the app is declared an agent."
        found.append(Check("agent", "note", said, "The app's settings: Agents & AI Apps."))
    return found


def refused(name: str, error: Exception, fixes: Mapping[str, str], otherwise: str) -> Check:
    """Return what an error means: Slack's own name of it, or that nobody answers."""
    if said := error_of(error):
        needed = _needed(error)
        return Check(name, "problem", f"Slack answers {said}.{needed}", fixes.get(said, otherwise))
    if isinstance(error, TimeoutError):
        return Check(name, "problem", f"There is no answer within {SECONDS:.0f} s.", NETWORK)
    return Check(name, "problem", f"Slack cannot be reached: {why(error)}.", NETWORK)


def _needed(error: Exception) -> str:
    response = getattr(error, "response", None)
    needed = response.get("needed") if response is not None and hasattr(response, "get") else None
    return f" It needs {needed}." if needed else ""


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
