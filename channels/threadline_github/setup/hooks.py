"""What a doctor finds of webhooks: where they lead, and how their deliveries went; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from threadline.cli.checks import Check
from threadline_github.inbound.sweep import leads_to
from threadline_github.setup.findings import SECONDS, cause, events_check, listed
from threadline_github.setup.manifest import Needs, events

__all__ = [
    "address_check",
    "app_hook_check",
    "deliveries_check",
    "hook_of",
    "repository_hook_checks",
    "unreachable",
]

_WHERE = (
    "The address is the agent's as `threadline serve` prints it, with the agent's name in it, "
    "except with --mode single."
)
_SECRET = "Use the same secret here and there. If it is the same: does a proxy change the body?"
_FAILURES = {
    401: _SECRET,
    403: "Something in front of the host refuses GitHub.",
    404: _WHERE,
    405: _WHERE,
    502: "Was the host running? It asks for what it missed when it starts.",
    503: "Was the host running, and had its disk room? It asks for what it missed by itself.",
    504: "Was the host running? It asks for what it missed when it starts.",
}
_UNSENT = "Is the host running, and the address public? GitHub calls from the internet."


def app_hook_check(config: Mapping[str, Any], needs: Needs, settings: str) -> list[Check]:
    """Return what is wrong with an App's webhook, by ``GET /app/hook/config``."""
    url = str(config.get("url") or "")
    if not url:
        fix = f"Make it active, with the agent's address, at {settings}."
        return [Check("webhook", "problem", "The App has no webhook.", fix)]
    return [_hook(url, config, needs, settings)]


def hook_of(hooks: Sequence[Mapping[str, Any]], path: str) -> Mapping[str, Any] | None:
    """Return the webhook of a repository that leads to an agent, an active one if there is."""
    ours = [hook for hook in hooks if leads_to(hook, path)]
    return next((hook for hook in ours if hook.get("active")), ours[0] if ours else None)


def repository_hook_checks(
    name: str, hook: Mapping[str, Any] | None, needs: Needs, site: str
) -> list[Check]:
    """Return what is wrong with a repository's webhook."""
    settings = f"{site}/{name}/settings/hooks"
    if hook is None:
        said = f"No webhook of {name} leads to the agent."
        fix = (
            f"Add one at {settings}: the agent's address with {needs.path}, application/json, the "
            f"secret, and the events {listed(events(needs))}."
        )
        return [Check("webhook", "problem", said, fix)]
    settings = f"{settings}/{hook.get('id')}"
    if not hook.get("active"):
        said = f"The webhook of {name} is not active."
        return [Check("webhook", "problem", said, f"Make it active at {settings}.")]
    sent = hook.get("events")
    held = [str(event) for event in sent] if isinstance(sent, list) else []
    config = hook.get("config")
    checked = _hook(_url(hook), config if isinstance(config, dict) else {}, needs, settings)
    return [checked, events_check(held, needs, settings)]


def _url(hook: Mapping[str, Any]) -> str:
    config = hook.get("config")
    return str(config.get("url") or "") if isinstance(config, dict) else ""


def _hook(url: str, config: Mapping[str, Any], needs: Needs, settings: str) -> Check:
    if not config.get("secret"):
        said = f"The webhook to {url} has no secret, so nothing that it sends can be trusted."
        return Check("webhook", "problem", said, f"Set the secret at {settings}.")
    if not urlsplit(url).path.rstrip("/").endswith(needs.path):
        said = f"The webhook leads to {url}, which does not end in {needs.path}."
        fix = f"Unless a proxy changes the path, set the agent's address with it at {settings}."
        return Check("webhook", "problem", said, fix)
    if config.get("content_type") not in ("json", "form"):
        said = f"The webhook sends the content type {config.get('content_type')!r}."
        return Check("webhook", "problem", said, f"Choose application/json at {settings}.")
    if str(config.get("insecure_ssl", "0")) != "0":
        said = f"The webhook to {url} does not verify the host's certificate."
        return Check("webhook", "note", said, f"Enable SSL verification at {settings}.")
    return Check("webhook", "ok", f"Events come to {url}, signed.")


def address_check(url: str, status: int, seconds: float) -> Check:
    """Return what an address answered to a signed ``ping``."""

    def problem(said: str, fix: str) -> Check:
        return Check("address", "problem", f"{url} {said}", fix)

    if status == 401:
        return problem("refuses what is signed with this webhook secret.", _SECRET)
    if status in (404, 405):
        return problem(f"is no route of the host ({status}).", _WHERE)
    if 300 <= status < 400:
        return problem(f"redirects ({status}); GitHub does not follow.", "Name the last address.")
    if not 200 <= status < 300:
        return problem(f"answers {status}.", "Look at the host's log.")
    if seconds > SECONDS:
        return problem(
            f"takes {seconds:.0f} seconds; GitHub waits {SECONDS:.0f}.", "Look at what is between."
        )
    return Check("address", "ok", f"{url} answers, and checks signatures.")


def unreachable(url: str, error: Exception) -> Check:
    """Return that an address of the host does not answer."""
    return Check("address", "problem", f"{url} cannot be reached: {cause(error)}.", _UNSENT)


def deliveries_check(deliveries: Sequence[Mapping[str, Any]], where: str = "") -> Check:
    """Return how the newest deliveries went, newest first; the last attempt at each counts."""
    newest: dict[str, Mapping[str, Any]] = {}
    for one in deliveries:
        newest.setdefault(str(one.get("guid")), one)
    of = f" of {where}" if where else ""
    if not newest:
        fix = "Open a pull request, or redeliver the ping in the webhook's settings."
        return Check("deliveries", "note", f"No deliveries{of} in the last days.", fix)
    failed = [one for one in newest.values() if not _taken(one)]
    if not failed:
        return Check("deliveries", "ok", f"The last {len(newest)}{of} were all taken.")
    last = failed[0]
    code = _code(last)
    counts = Counter(_code(one) or "no answer" for one in failed).most_common()
    what = " ".join(str(last[key]) for key in ("event", "action") if last.get(key))
    said = (
        f"{len(failed)} of the last {len(newest)}{of} were not taken "
        f"({', '.join(f'{code} × {count}' for code, count in counts)}); the newest is {what} at "
        f"{last.get('delivered_at')}: {last.get('status')}."
    )
    state: Literal["problem", "note"] = "problem" if last is next(iter(newest.values())) else "note"
    return Check("deliveries", state, said, _FAILURES.get(code, "Look at the host's log."))


def _taken(delivery: Mapping[str, Any]) -> bool:
    return 200 <= _code(delivery) < 300 or delivery.get("status") == "pending"


def _code(delivery: Mapping[str, Any]) -> int:
    code = delivery.get("status_code")
    return code if isinstance(code, int) else 0
