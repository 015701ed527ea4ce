"""What GitHub could not deliver while the host was away, asked for and taken as if it had come.

GitHub sends nothing again by itself; it keeps a list of its deliveries for three days.
https://docs.github.com/en/rest/apps/webhooks#list-deliveries-for-an-app-webhook
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson

from threadline import Context, ThreadlineError, TryAgain
from threadline.cancelled import is_cancelled
from threadline.clock import iso
from threadline.errors import Unavailable
from threadline_github.client import GitHubRefused

if TYPE_CHECKING:
    from threadline_github.hub import Hub

__all__ = ["SECONDS", "Owed", "State", "Sweep", "Takes", "leads_to", "made_at"]

SECONDS = 300.0
"""How long after a round the next one begins."""

_KEPT = timedelta(days=3)  # as long as GitHub keeps deliveries
_OVERLAP = timedelta(minutes=10)
_IN_FLIGHT = timedelta(minutes=1)
_PAGE, _MOST = 100, 10_000
_MOST_OWED = 2_000
_TRIES = 5
_IN_A_ROW = 10
_HOOKS, _HOOK_SECONDS = 100, 3600.0
_HINT = "The token needs admin:repo_hook, or webhooks: read if it is fine-grained."
_NAME_THEM = (
    "Name the repositories, as GitHubChannel(repositories=[…]), so that their webhooks are asked "
    "for what was missed; an App needs no names."
)


class Takes(Protocol):
    """What deliveries are given to: the receiver of the webhook."""

    async def take(
        self, ctx: Context, event: str, payload: Mapping[str, Any], delivery_id: str, /
    ) -> Any:
        """Do what a delivery asks for, until it is durable; the same id again changes nothing."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A delivery that failed and is to be taken: its newest attempt, and when that was.

    ``tries`` is how often it could not be taken for a reason that is its own.
    """

    id: int
    at: str
    event: str = ""
    tries: int = 0


@dataclass(slots=True)
class State:
    """How far one list of deliveries was read: pure, and kept as JSON.

    ``seen`` is when the newest delivery that was looked at was made. ``owed`` are those that failed
    and were not taken yet, by GUID. ``done`` are those that were taken and are still looked at
    again, since what is slow turns up in the list late, with when they were made.
    """

    seen: datetime
    owed: dict[str, Owed] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, kept: Mapping[str, Any]) -> State:
        """Return what was kept."""
        owed = {guid: Owed(**one) for guid, one in kept.get("owed", {}).items()}
        return cls(datetime.fromisoformat(kept["seen"]), owed, dict(kept.get("done", {})))

    def dump(self) -> dict[str, Any]:
        """Return it as JSON."""
        owed = {guid: asdict(one) for guid, one in self.owed.items()}
        return {"seen": iso(self.seen), "owed": owed, "done": dict(self.done)}

    def bound(self, start: datetime, now: datetime) -> datetime:
        """Return the time before which no delivery needs to be looked at."""
        return max(self.seen - _OVERLAP, start, now - _KEPT)

    def read(self, listed: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Take note of deliveries, newest first; of each one its newest attempt counts."""
        met: set[str] = set()
        for one in listed:
            guid, at = str(one.get("guid") or ""), made_at(one)
            self.seen = max(self.seen, min(at or self.seen, now))
            if not guid or guid in met:
                continue
            met.add(guid)
            if _succeeded(one):
                self.owed.pop(guid, None)
            elif guid not in self.done and not _is_pending(one, now):
                before = self.owed.get(guid)
                tries = before.tries if before is not None else 0
                self.owed[guid] = Owed(
                    int(one.get("id") or 0), iso(at or now), str(one.get("event") or ""), tries
                )

    def settle(self, guid: str) -> None:
        """Take note that a delivery was taken, or that it never can be."""
        one = self.owed.pop(guid, None)
        if one is not None:
            self.done[guid] = one.at

    def failed(self, guid: str) -> bool:
        """Count that a delivery could not be taken; True when that is given up."""
        one = self.owed[guid]
        self.owed[guid] = Owed(one.id, one.at, one.event, one.tries + 1)
        return one.tries + 1 >= _TRIES

    def forget(self, now: datetime) -> list[str]:
        """Forget what is too old, or too much; return the GUIDs of what is given up by that."""
        oldest = iso(self.seen - _OVERLAP)
        self.done = {guid: at for guid, at in self.done.items() if at >= oldest}
        keep = [guid for guid, one in self.oldest_first() if one.at >= iso(now - _KEPT)]
        kept = set(keep[-_MOST_OWED:])
        lost = [guid for guid in self.owed if guid not in kept]
        for guid in lost:
            del self.owed[guid]
        return lost

    def oldest_first(self) -> list[tuple[str, Owed]]:
        """Return what is owed; what is as old as another in the order of their ids."""
        return sorted(self.owed.items(), key=lambda item: (item[1].at, item[1].id))


@dataclass(frozen=True, slots=True)
class _Source:
    """A list of deliveries: an App's, or that of a repository's webhook."""

    path: str
    as_app: bool


class Sweep:
    """Asks for what was missed, and gives it to the receiver.

    ``repositories`` are those whose webhooks a bot with a token asks; an App has one list for all.
    ``path`` is how the address of a webhook ends that leads here, by default that of the channel.
    """

    def __init__(
        self,
        hub: Hub,
        receiver: Takes,
        *,
        repositories: Collection[str] | None = None,
        path: str | None = None,
    ) -> None:
        self._hub = hub
        self._receiver = receiver
        self._repositories = sorted(repositories) if repositories is not None else None
        self._path = path
        self._hooks: dict[str, tuple[float, list[_Source]]] = {}
        self._said: set[str] = set()

    async def run(self, ctx: Context) -> None:
        """Go on, round by round, until it is cancelled."""
        while True:
            try:
                await self.run_once(ctx)
            except Exception as error:
                if is_cancelled():
                    raise asyncio.CancelledError from error
                ctx.log.error("github.sweep_failed", error=repr(error))
            await ctx.clock.sleep(SECONDS)

    async def run_once(self, ctx: Context) -> None:
        """Look at each list once; what cannot be done now is left to the next round."""
        start = await self._start(ctx)
        try:
            if self._hub.me.login is None:
                await self._hub.recognise(ctx)
            for source in await self._sources(ctx):
                await self._look(ctx, source, start)
        except TryAgain as error:
            ctx.log.info("github.sweep_later", error=str(error))
        except GitHubRefused as error:
            self._say(ctx, "github.sweep_refused", "", str(error))

    async def _start(self, ctx: Context) -> datetime:
        """Return when this bot began, by GitHub's clock: what was before is not its own."""
        kept: dict[str, str] | None = await ctx.kv.get("sweep")
        if kept is None:
            began = self._hub.client.by_github(ctx.clock.now())
            kept = {"start": iso(began.replace(microsecond=0))}
            await ctx.kv.put("sweep", kept)
        return datetime.fromisoformat(kept["start"])

    # Which lists there are

    async def _sources(self, ctx: Context) -> list[_Source]:
        if self._hub.client.config.app_id is not None:
            return [_Source("/app/hook/deliveries", as_app=True)]
        if self._repositories is None:
            self._say(ctx, "github.sweep_off", "", _NAME_THEM)
        found: list[_Source] = []
        for name in self._repositories or ():
            try:
                found += await self._hooks_of(ctx, name)
            except GitHubRefused as error:
                self._say(ctx, "github.sweep_refused", name, f"{error} {_HINT}")
        return found

    async def _hooks_of(self, ctx: Context, name: str) -> list[_Source]:
        """Return the lists of a repository's webhooks that lead here; asked for once an hour."""
        now = ctx.clock.monotonic()
        asked, found = self._hooks.get(name, (None, []))
        if asked is not None and now < asked + _HOOK_SECONDS:
            return found
        hooks = await self._hub.client.pages(f"/repos/{name}/hooks?per_page=100", most=_HOOKS)
        path = self._path or f"/v1/channels/{ctx.channel}"
        found = [
            _Source(f"/repos/{name}/hooks/{hook.get('id')}/deliveries", as_app=False)
            for hook in hooks
            if leads_to(hook, path)
        ]
        if not found:
            self._say(ctx, "github.sweep_off", name, f"No webhook leads to {path}.")
        self._hooks[name] = now, found
        return found

    # One list

    async def _look(self, ctx: Context, source: _Source, start: datetime) -> None:
        """Read what is new in a list, and take what failed; raises TryAgain."""
        key = f"sweep{source.path}"
        kept: dict[str, Any] | None = await ctx.kv.get(key)
        state = State.load(kept) if kept is not None else State(start)
        now = ctx.clock.now()
        try:
            await self._read(ctx, source, state, state.bound(start, now))
            lost = state.forget(now)
            if lost:
                ctx.log.error("github.deliveries_lost", count=len(lost), guids=lost[:20])
            await self._take_all(ctx, source, state)
        except GitHubRefused as error:
            self._refused(ctx, source, error)
        finally:
            if state.dump() != kept:
                await ctx.kv.put(key, state.dump())

    async def _read(self, ctx: Context, source: _Source, state: State, bound: datetime) -> None:
        listed = await self._hub.client.pages(
            f"{source.path}?per_page={_PAGE}",
            as_app=source.as_app,
            most=_MOST,
            until=lambda one: (made_at(one) or bound) < bound,
        )
        self._said -= {said for said in self._said if said.endswith(f" {source.path}")}
        if len(listed) >= _MOST:
            ctx.log.error("github.sweep_cut", read=len(listed), path=source.path)
        state.read([one for one in listed if isinstance(one, dict)], ctx.clock.now())

    def _refused(self, ctx: Context, source: _Source, error: GitHubRefused) -> None:
        if not source.as_app:
            self._hooks.pop(source.path.split("/hooks/")[0].removeprefix("/repos/"), None)
            self._say(ctx, "github.sweep_refused", source.path, f"{error} {_HINT}")
        elif error.github_status == 404:
            why = "This server has no list of deliveries; what is missed stays missed."
            self._say(ctx, "github.sweep_off", source.path, why)
        else:
            self._say(ctx, "github.sweep_refused", source.path, str(error))

    async def _take_all(self, ctx: Context, source: _Source, state: State) -> None:
        """Take what is owed, oldest first; what finds no room stays owed."""
        unavailable = 0
        for guid, one in state.oldest_first():
            try:
                await self._take(ctx, source, guid, one)
            except Unavailable as error:
                ctx.log.warning("github.sweep_unavailable", delivery=guid, error=str(error))
                unavailable += 1
                if unavailable >= _IN_A_ROW:
                    return
                continue
            except (TryAgain, GitHubRefused):
                raise
            except Exception as error:
                final = isinstance(error, ThreadlineError) and error.status < 500
                if not state.failed(guid) and not final:
                    ctx.log.warning("github.sweep_stumbled", delivery=guid, error=repr(error))
                    continue
                ctx.log.error("github.delivery_given_up", delivery=guid, error=repr(error))
            unavailable = 0
            state.settle(guid)

    async def _take(self, ctx: Context, source: _Source, guid: str, one: Owed) -> None:
        try:
            whole = await self._hub.client.request(
                "GET", f"{source.path}/{one.id}", as_app=source.as_app
            )
        except GitHubRefused as error:
            if error.github_status not in (404, 410, 422):
                raise
            ctx.log.warning("github.delivery_gone", delivery=guid, error=str(error))
            return
        payload = _payload(whole)
        if payload is None:
            ctx.log.warning("github.delivery_empty", delivery=guid)
            return
        event = str(whole.get("event") or one.event)
        await self._receiver.take(ctx, event, payload, guid)
        ctx.log.info("github.delivery_fetched", delivery=guid, event_name=event)

    def _say(self, ctx: Context, event: str, path: str, why: str) -> None:
        """Log what stays as it is until somebody does something about it, once."""
        said = f"{event} {path}"
        if said not in self._said:
            self._said.add(said)
            ctx.log.warning(event, path=path, why=why)


def leads_to(hook: Mapping[str, Any], path: str) -> bool:
    """Tell whether a repository's webhook has an address with this path at its end."""
    config = hook.get("config")
    url = config.get("url") if isinstance(config, dict) else None
    try:
        return isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith(path)
    except ValueError:
        return False


def made_at(delivery: Mapping[str, Any]) -> datetime | None:
    """Return when a delivery was made, if the list says it."""
    try:
        found = datetime.fromisoformat(str(delivery.get("delivered_at")))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _succeeded(delivery: Mapping[str, Any]) -> bool:
    code = delivery.get("status_code")
    return isinstance(code, int) and 200 <= code < 300


def _is_pending(delivery: Mapping[str, Any], now: datetime) -> bool:
    """Tell whether GitHub still waits for an answer, which it does for ten seconds."""
    at = made_at(delivery)
    return delivery.get("status") == "pending" and at is not None and now - at < _IN_FLIGHT


def _payload(delivery: Any) -> dict[str, Any] | None:
    """Return what was sent: an object, or the text of one as a form has it."""
    request = delivery.get("request") if isinstance(delivery, dict) else None
    payload = request.get("payload") if isinstance(request, dict) else None
    if isinstance(payload, str):
        try:
            payload = orjson.loads(payload)
        except ValueError:
            return None
    return payload if isinstance(payload, dict) else None
