"""One session of a host in a test: what it recorded, and waiting for what it will."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from threadline import ndjson
from threadline.testing.laws import check_laws

if TYPE_CHECKING:
    from threadline.testing.host import TestHost
    from threadline.testing.inbound import Answer

__all__ = ["HostSession"]

Event = dict[str, Any]


class HostSession:
    """A session by its id; works across restarts of its host.

    Reading looks at the stored log and asks nobody's permission. ``token`` is the newest
    continuation token of the HTTP channel, where this session was started or continued over HTTP;
    ``delivery_id`` and ``admitted`` are those of the newest message.
    """

    def __init__(
        self,
        host: TestHost,
        session_id: str,
        slug: str | None = None,
        *,
        token: str | None = None,
        **wire: Any,
    ) -> None:
        self.id = session_id
        self.token = token
        self.delivery_id: str | None = wire.get("deliveryId")
        self.admitted: str | None = wire.get("admitted")
        self._host = host
        self._slug = slug

    # Talking

    @property
    def path(self) -> str:
        """Its address below the host's: ``/v1/session/<id>``."""
        agent = self._host.agent(self._slug)
        return f"{self._host.host.prefix(agent.project.slug)}/v1/session/{self.id}"

    async def follow_up(
        self, message: str, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Answer:
        """Send another message over HTTP; the token that comes back is the next one's."""
        body = {"message": message, "continuationToken": self.token, **fields}
        answer = await self._host.post(self.path, json=body, headers=headers)
        if answer.ok:
            wire = answer.json()
            self.token = wire["continuationToken"]
            self.delivery_id, self.admitted = wire["deliveryId"], wire["admitted"]
        return answer

    async def stop(self, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Interrupt the turn over HTTP."""
        return await self._host.post(f"{self.path}/stop", headers=headers)

    # Reading

    def log(self) -> bytes:
        """Return the stored lines, those of a last line that is being written left out."""
        store = self._host.agent(self._slug).store
        path = store.workspace(self.id).parent / "events.ndjson"
        data = path.read_bytes() if path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def events(self, type_: str | None = None) -> list[Event]:
        """Return the recorded events, of one type if given."""
        found = [ndjson.parse(line) for line in self.log().split(b"\n") if line]
        events = [dict(event) for event in found if event is not None]
        return [event for event in events if type_ in (None, event["type"])]

    @property
    def types(self) -> list[str]:
        """The types of the recorded events, in order."""
        return [event["type"] for event in self.events()]

    @property
    def status(self) -> str:
        """``running``, ``queued``, ``waiting``, ``completed`` or ``failed``."""
        return self._host.agent(self._slug).core.status(self.id)

    @property
    def replies(self) -> list[str]:
        """The final answers, in order."""
        done = self.events("message.completed")
        return [e["data"]["text"] for e in done if e["data"].get("finishReason") == "stop"]

    @property
    def accepted(self) -> list[str]:
        """The ids of the deliveries that were accepted for it since the host's first start."""
        fresh = self._host.witness.fresh
        return [r.delivery.delivery_id for r in fresh if r.session.id == self.id]

    def outcomes(self, delivery_id: str) -> list[str]:
        """Return every outcome that the log names for a delivery; a law allows one."""
        found: list[str] = []
        for event in self.events():
            data = event["data"]
            ids = data.get("deliveryIds") or []
            if event["type"] == "message.received":
                found += ["prompted"] * ids.count(delivery_id)
            elif event["type"] == "deliveries.cleared":
                found += ["cleared"] * ids.count(delivery_id)
            elif event["type"] == "nudge.delivered" and data.get("deliveryId") == delivery_id:
                found.append("steered")
        return found

    # Waiting

    async def event(
        self,
        type_: str,
        count: int = 1,
        *,
        where: Callable[[Event], Any] = lambda _: True,
    ) -> Event:
        """Wait until so many events of a type are recorded; return the last of those."""

        def recorded() -> Event | None:
            found = [event for event in self.events(type_) if where(event)]
            return found[count - 1] if len(found) >= count else None

        what = f"{type_} number {count} of session {self.id}"
        event: Event = await self._host.until(recorded, what)
        return event

    async def rest(self) -> list[Event]:
        """Wait until nothing runs, nothing is pending and every handler has run.

        Returns the events. What was accepted before is done by then.
        """
        agent = self._host.agent(self._slug)

        async def resting() -> bool:
            owner = await agent.core.owner(self.id)
            rests = owner is None or owner.at_rest
            return rests and agent.dispatcher.caught_up(self.id) and self._settled()

        await self._host.until(resting, f"the rest of session {self.id}")
        return self.events()

    def _settled(self) -> bool:
        """Whether the log names an outcome for all that was accepted."""
        named = _named(self.events())
        return all(delivery_id in named for delivery_id in self.accepted)

    def check_laws(self, *, at_rest: bool = True) -> None:
        """Check its log; raises :class:`~threadline.testing.laws.LawBroken`."""
        check_laws(self.log(), self.accepted, at_rest=at_rest)


def _named(events: list[Event]) -> set[str]:
    """Return the deliveries that events name as prompted, steered or cleared."""
    named: set[str] = set()
    for event in events:
        named.update(event["data"].get("deliveryIds") or [])
        if event["type"] == "nudge.delivered":
            named.add(event["data"].get("deliveryId"))
    return named
