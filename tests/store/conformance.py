"""What any store owes; a subclass provides the ``rig`` that opens, closes and kills it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from threadline import ndjson
from threadline.clock import iso
from threadline.errors import (
    ApprovalClosed,
    Conflict,
    DeliveryConflict,
    Forbidden,
    LeaseLost,
    NotFound,
    StaleToken,
    TaskSession,
    TooLarge,
)
from threadline.principal import Principal
from threadline.store.base import (
    AcceptRequest,
    AcceptResult,
    ArtifactRecord,
    Checkpoint,
    DeliveryRecord,
    InboxItem,
    Lease,
    Outcome,
    SessionDeleted,
    SessionRecord,
    StopRecord,
    Store,
    Tag,
    Watermark,
)

__all__ = [
    "ALICE",
    "AT",
    "BOB",
    "Rig",
    "StoreConformance",
    "accept",
    "event",
    "fixed",
    "indices",
    "request",
    "tag",
]

ALICE = Principal("user", "alice", name="Alice")
BOB = Principal("user", "bob")
AT = "2025-01-01T00:00:00.000Z"


class Rig(Protocol):
    """One agent's stored state, and the process that has it open."""

    async def open(self, *, boot: str = "boot-1") -> Store:
        """Open a store on the state, as a process of this boot of the machine."""

    async def kill(self) -> None:
        """End the process that has it open, as SIGKILL does."""


def request(text: str = "hi", *, by: Principal = ALICE, **fields: Any) -> AcceptRequest:
    """Return a start or follow-up of an owner-only, rotating channel, unless told otherwise."""

    def may(session: SessionRecord) -> bool:
        return session.owner.key == by.key

    given: dict[str, Any] = {
        "channel": "http",
        "principal": by,
        "owner": by,
        "may": may,
        "text": text,
        "admission": "preempt",
        "at": AT,
        "rotating": True,
    }
    return AcceptRequest(**(given | fields))


def fixed(text: str, token: str, **fields: Any) -> AcceptRequest:
    """Return a message of a channel whose tokens are its own."""
    return request(text, channel="incidents", rotating=False, token=token, **fields)


async def accept(store: Store, text: str = "hi", **fields: Any) -> AcceptResult:
    """Accept one delivery."""
    return await store.accept(request(text, **fields))


def event(session_id: str, index: int, type_: str = "step.started", **data: Any) -> bytes:
    """Return a stored line."""
    return ndjson.encode(
        {"type": type_, "index": index, "sessionId": session_id, "at": AT, "data": data}
    )


def tag(key: str = "k", content: bytes | None = None, **fields: Any) -> Tag:
    """Return a tag of Alice's, unless told otherwise."""
    given: dict[str, Any] = {
        "kind": "report",
        "key": key,
        "owner": ALICE,
        "at": AT,
        "keep": 1000,
        "max_bytes": 1_000_000,
    }
    if content is not None:
        given |= {"content": io.BytesIO(content), "content_type": "text/csv", "filename": "r.csv"}
    return Tag(**(given | fields))


def held(store: Store, record: ArtifactRecord | None) -> bytes | None:
    """Return what an artifact holds."""
    path = store.artifacts.path(record) if record is not None else None
    return path.read_bytes() if path is not None else None


async def opened(store: Store, session_id: str) -> Lease:
    lease = await store.lease(session_id)
    assert lease is not None
    return lease


async def write(store: Store, lease: Lease, count: int, **data: Any) -> None:
    """Append so many events."""
    lines = []
    for _ in range(count):
        lines.append(event(lease.session.id, lease.next_index, **data))
        lease.next_index += 1
    await store.append(lease, lines)


async def everything(store: Store, session_id: str, start: int = 0) -> bytes:
    return b"".join([chunk async for chunk in store.read(session_id, start)])


def indices(data: bytes) -> list[int]:
    return [line.event["index"] for line in ndjson.scan(data) if line is not None]


class StoreConformance:
    """Every store passes these."""

    @pytest.fixture
    async def store(self, rig: Rig) -> AsyncIterator[Store]:
        store = await rig.open()
        yield store
        await store.close()

    # Accept: who, dedupe, mode, token

    async def test_a_start_makes_a_session_with_a_fresh_token(self, store: Store) -> None:
        first, second = await accept(store), await accept(store)
        assert first.created
        assert first.session.id != second.session.id
        assert first.token != second.token
        assert store.session(first.session.id) == first.session
        assert store.token(first.session.id, "http") == first.token
        assert first.delivery.seq < second.delivery.seq

    async def test_an_unnamed_message_of_a_fixed_token_channel_gets_a_token(
        self, store: Store
    ) -> None:
        first = await accept(store, channel="incidents", rotating=False)
        assert first.token
        found = store.session_by_token("incidents", first.token)
        assert found == first.session

    async def test_another_principal_is_refused_before_anything_else(self, store: Store) -> None:
        first = await accept(store, delivery_id="d1")
        target: dict[str, Any] = {"session_id": first.session.id, "by": BOB}
        for fields in (
            {"token": first.token},
            {"token": "http:stale"},
            {"token": first.token, "delivery_id": "d1"},
        ):
            with pytest.raises(Forbidden):
                await accept(store, **target, **fields)

    async def test_an_unknown_session_is_not_found(self, store: Store) -> None:
        for name in ("ses_none", "../etc", "ses_a/../../b", "x" * 5000):
            with pytest.raises(NotFound):
                await accept(store, session_id=name, token="http:x")

    async def test_a_duplicate_gets_the_first_answer(self, store: Store) -> None:
        first = await accept(store, delivery_id="d1")
        again = await accept(store, delivery_id="d1")
        assert again.duplicate
        assert (again.session, again.token) == (first.session, first.token)
        assert again.delivery.seq == first.delivery.seq

    async def test_a_duplicate_follow_up_may_have_a_stale_token(self, store: Store) -> None:
        first = await accept(store)
        target = {"session_id": first.session.id, "token": first.token, "delivery_id": "d2"}
        second = await accept(store, "more", **target)
        again = await accept(store, "more", **target)
        assert again.duplicate
        assert again.token == second.token != first.token

    async def test_duplicates_are_known_after_a_kill(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store, delivery_id="d1")
        target = {"session_id": first.session.id, "token": first.token, "delivery_id": "d2"}
        second = await accept(store, "more", **target)
        await rig.kill()
        store = await rig.open()
        assert (await accept(store, delivery_id="d1")).token == first.token
        again = await accept(store, "more", **target)
        assert again.duplicate
        assert again.token == second.token
        await store.close()

    async def test_an_id_used_for_another_text_or_session_conflicts(self, store: Store) -> None:
        first = await accept(store, delivery_id="d1")
        other = await accept(store, delivery_id="d9")
        with pytest.raises(DeliveryConflict):
            await accept(store, "another text", delivery_id="d1")
        with pytest.raises(DeliveryConflict):
            await accept(store, session_id=other.session.id, token=other.token, delivery_id="d1")
        with pytest.raises(DeliveryConflict):
            await accept(store, rotating=False, token="inc-1", delivery_id="d1")
        assert store.token(first.session.id, "http") == first.token

    async def test_ids_are_apart_by_channel_and_owner(self, store: Store) -> None:
        results = [
            await accept(store, delivery_id="d1"),
            await accept(store, delivery_id="d1", by=BOB),
            await accept(store, delivery_id="d1", channel="playground"),
        ]
        assert len({result.session.id for result in results}) == 3
        assert len(store.delivery("d1")) == 3
        assert len(store.delivery("d1", channel="http")) == 2
        assert [d.session_id for d in store.delivery("d1", owner=BOB.key)] == [
            results[1].session.id
        ]

    async def test_an_id_names_one_delivery_of_a_session(self, store: Store) -> None:
        """Outcomes name deliveries by id alone, so two channels may not share one."""
        first = await store.accept(fixed("hi", "inc-1", delivery_id="d1"))
        with pytest.raises(DeliveryConflict):
            await accept(
                store, "more", session_id=first.session.id, token="inc-1", delivery_id="d1"
            )

    async def test_a_task_takes_no_follow_up(self, store: Store) -> None:
        task = await accept(store, mode="task", delivery_id="d1")
        with pytest.raises(TaskSession):
            await accept(store, "more", session_id=task.session.id, token=task.token)
        with pytest.raises(TaskSession):
            await accept(store, "more", session_id=task.session.id, token="http:stale")
        assert (await accept(store, mode="task", delivery_id="d1")).duplicate

    async def test_a_task_may_not_join_a_chat(self, store: Store) -> None:
        chat = await accept(store)
        with pytest.raises(TaskSession):
            await accept(store, "more", mode="task", session_id=chat.session.id, token=chat.token)

    async def test_a_rotating_token_works_once(self, store: Store) -> None:
        first = await accept(store)
        target = first.session.id
        second = await accept(store, "2", session_id=target, token=first.token)
        with pytest.raises(StaleToken):
            await accept(store, "3", session_id=target, token=first.token)
        with pytest.raises(StaleToken):
            await accept(store, "3", session_id=target)
        third = await accept(store, "3", session_id=target, token=second.token)
        assert store.token(target, "http") == third.token
        assert store.session_by_token("http", second.token) is None

    async def test_of_two_follow_ups_at_once_one_is_stale(self, store: Store) -> None:
        first = await accept(store)
        results = await asyncio.gather(
            *(accept(store, str(n), session_id=first.session.id, token=first.token) for n in "ab"),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == [
            "AcceptResult",
            "StaleToken",
        ]

    async def test_a_stale_rotating_token_alone_starts_no_session(self, store: Store) -> None:
        first = await accept(store)
        await accept(store, "2", token=first.token)
        with pytest.raises(StaleToken):
            await accept(store, "3", token=first.token)

    async def test_a_fixed_token_names_its_session_for_good(self, store: Store) -> None:
        first = await store.accept(fixed("1", "inc-1"))
        second = await store.accept(fixed("2", "inc-1"))
        other = await store.accept(fixed("3", "inc-2"))
        assert first.session.id == second.session.id != other.session.id
        assert (first.created, second.created) == (True, False)
        assert first.token == second.token == "inc-1"
        assert store.session_by_token("incidents", "inc-1") == first.session
        assert store.session_by_token("http", "inc-1") is None

    async def test_one_fixed_token_at_once_makes_one_session(self, store: Store) -> None:
        results = await asyncio.gather(*(store.accept(fixed(str(n), "inc")) for n in range(20)))
        assert len({result.session.id for result in results}) == 1
        assert sum(result.created for result in results) == 1

    async def test_an_http_follow_up_gets_an_alias(self, store: Store) -> None:
        first = await store.accept(fixed("1", "inc-1"))
        alias = await accept(store, "2", session_id=first.session.id, token="inc-1")
        assert alias.session.id == first.session.id
        assert alias.token.startswith("http:")
        again = await accept(store, "3", session_id=first.session.id, token=alias.token)
        assert store.session_by_token("incidents", "inc-1") == first.session
        assert store.token(first.session.id, "incidents") == "inc-1"
        with pytest.raises(StaleToken):
            await accept(store, "4", session_id=first.session.id, token=alias.token)
        assert again.token != alias.token

    async def test_an_alias_leaves_a_rotating_channels_own_token_alone(self, store: Store) -> None:
        first = await accept(store, channel="playground")
        await accept(store, "2", session_id=first.session.id, token=first.token)
        own = await accept(
            store, "3", channel="playground", session_id=first.session.id, token=first.token
        )
        assert not own.duplicate

    async def test_what_a_delivery_carries_is_kept(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(
            store,
            sender={"id": "u1"},
            context=["before"],
            attachments=[{"name": "a.txt"}],
            files={"a.bin": b"\x00\xff"},
            metadata={"k": [1]},
            cwd="/srv",
        )
        await rig.kill()
        store = await rig.open()
        (kept,) = store.unsettled(first.session.id, 0)
        assert kept == first.delivery
        await store.close()

    # The inbox

    async def test_records_reach_the_listener_in_order_and_before_the_caller(
        self, store: Store
    ) -> None:
        heard: list[InboxItem] = []
        store.listen(heard.append)
        first = await accept(store, delivery_id="d1")
        assert heard == [first.delivery]
        await accept(store, delivery_id="d1")
        stop = await store.stop(first.session.id, at=AT)
        assert heard == [first.delivery, stop]
        await asyncio.gather(*(store.accept(fixed(str(n), "inc")) for n in range(50)))
        seqs = [item.seq for item in heard if isinstance(item, DeliveryRecord)]
        assert seqs == sorted(seqs)
        assert len(seqs) == 51

    async def test_a_cancelled_senders_delivery_reaches_the_listener(self, store: Store) -> None:
        heard: list[InboxItem] = []
        told = asyncio.Event()

        def listener(item: InboxItem) -> None:
            heard.append(item)
            told.set()

        store.listen(listener)
        sending = asyncio.create_task(accept(store, delivery_id="d1"))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending])
        await told.wait()
        assert [item.delivery_id for item in heard if isinstance(item, DeliveryRecord)] == ["d1"]
        assert (await accept(store, delivery_id="d1")).duplicate

    async def test_a_listener_that_raises_keeps_nobody_from_an_answer(self, store: Store) -> None:
        failures: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))

        def broken(item: InboxItem) -> None:
            raise ZeroDivisionError

        store.listen(broken)
        results = await asyncio.gather(*(accept(store) for _ in range(3)))
        assert len(results) == len(failures) == 3

    async def test_stops_are_kept_until_they_are_done(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store)
        stop = await store.stop(first.session.id, at=AT, clear_pending=True, before=AT)
        assert stop.after_seq == first.delivery.seq
        await rig.kill()
        store = await rig.open()
        assert store.stops(first.session.id) == [stop]
        assert first.session.id in store.unrested()
        store.stop_done(stop)
        await accept(store)
        assert store.stops(first.session.id) == []
        await store.close()

    async def test_the_first_decision_on_a_call_is_kept(self, rig: Rig) -> None:
        store = await rig.open()
        session = (await accept(store)).session.id
        heard: list[InboxItem] = []
        store.listen(heard.append)
        by = ALICE.to_wire()
        first = await store.decide(session, "c1", "denied", by=by, at=AT, reason="no")
        with pytest.raises(ApprovalClosed):
            await store.decide(session, "c1", "approved", by=by, at=AT)
        other = await store.decide(session, "c2", "approved", by=by, at=AT)
        assert heard == [first, other]
        assert first.seq < other.seq
        await rig.kill()
        store = await rig.open()
        assert store.decisions(session, ["c1", "c2", "c3"]) == {"c1": first, "c2": other}
        assert store.decisions(session, []) == {}
        await store.delete(session)
        with pytest.raises(NotFound):
            await store.decide(session, "c4", "approved", by=by, at=AT)
        await store.close()

    async def test_of_decisions_at_once_one_is_kept(self, store: Store) -> None:
        session = (await accept(store)).session.id
        answers = await asyncio.gather(
            *(
                store.decide(session, "c1", decision, by=ALICE.to_wire(), at=AT)
                for decision in ("approved", "denied", "approved")
            ),
            return_exceptions=True,
        )
        assert [isinstance(answer, ApprovalClosed) for answer in answers].count(False) == 1

    async def test_a_dry_run_and_a_time_are_the_sessions(self, rig: Rig) -> None:
        store = await rig.open()
        plain = (await accept(store)).session
        session = (await accept(store, dry_run=True, as_of=AT)).session
        assert (session.dry_run, session.as_of) == (True, AT)
        await rig.kill()
        store = await rig.open()
        assert store.session(session.id) == session
        for other in ({"dry_run": True}, {"as_of": AT}):
            token = store.token(plain.id, "http")
            with pytest.raises(Conflict):
                await accept(store, "2", session_id=plain.id, token=token, **other)
        token = store.token(session.id, "http")
        with pytest.raises(Conflict):
            await accept(store, "2", session_id=session.id, token=token, as_of="2000")
        again = await accept(store, "2", session_id=session.id, token=token, dry_run=True, as_of=AT)
        assert again.session == session
        await store.close()

    def test_a_stop_spares_what_is_newer(self) -> None:
        stop = StopRecord(1, "ses_a", 5, AT, before="2025-01-01T00:00:01.000Z")
        assert stop.concerns(5, AT)
        assert not stop.concerns(6, AT)
        assert not stop.concerns(5, "2025-01-01T00:00:01.000Z")

    # The log

    async def test_only_the_newest_lease_may_write(self, store: Store) -> None:
        first = await accept(store)
        old = await opened(store, first.session.id)
        await write(store, old, 1)
        new = await opened(store, first.session.id)
        assert new.next_index == 1
        with pytest.raises(LeaseLost):
            await write(store, old, 1)
        with pytest.raises(LeaseLost):
            store.save_checkpoint(old, Checkpoint("t1", []))
        await write(store, new, 1)
        store.release(old)
        await write(store, new, 1)
        assert indices(await everything(store, first.session.id)) == [0, 1, 2]

    async def test_a_released_lease_may_not_write(self, store: Store) -> None:
        first = await accept(store)
        lease = await opened(store, first.session.id)
        store.release(lease)
        with pytest.raises(LeaseLost):
            await write(store, lease, 1)

    async def test_a_reader_gets_stored_bytes_from_an_index(self, store: Store) -> None:
        first = await accept(store)
        lease = await opened(store, first.session.id)
        await write(store, lease, 500, text="x" * 100)
        whole = await everything(store, first.session.id)
        lines = whole.split(b"\n")
        for start in (0, 1, 2, 250, 498, 499, 500, 1000):
            assert await everything(store, first.session.id, start) == b"\n".join(lines[start:])
        assert await store.next_index(first.session.id) == 500
        assert store.size(first.session.id) == len(whole)

    async def test_a_follower_gets_each_event_once(self, store: Store) -> None:
        first = await accept(store)
        lease = await opened(store, first.session.id)
        await write(store, lease, 10)
        seen: list[int] = []
        caught_up = asyncio.Event()

        async def follow() -> None:
            async for chunk in store.read(first.session.id, 3, follow=True):
                seen.extend(indices(chunk))
                if not chunk:
                    caught_up.set()
                if 29 in seen:
                    return

        reader = asyncio.create_task(follow())
        await caught_up.wait()
        assert seen == list(range(3, 10))
        for _ in range(10):
            await write(store, lease, 2)
            await asyncio.sleep(0)
        await reader
        assert seen == list(range(3, 30))

    async def test_a_follower_ends_with_the_session_and_with_the_store(self, rig: Rig) -> None:
        store = await rig.open()
        first, second = await accept(store), await accept(store)

        async def follow(session_id: str) -> None:
            async for _ in store.read(session_id, follow=True):
                pass

        readers = [asyncio.create_task(follow(r.session.id)) for r in (first, second)]
        await asyncio.sleep(0)
        assert await store.delete(first.session.id)
        await readers[0]
        assert not readers[1].done()
        await store.close()
        await readers[1]

    async def test_reading_no_session_yields_nothing(self, store: Store) -> None:
        assert await everything(store, "ses_none") == b""
        assert await store.next_index("ses_none") is None

    async def test_events_survive_a_kill_without_a_sync(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store)
        await write(store, await opened(store, first.session.id), 3)
        await rig.kill()
        store = await rig.open()
        assert indices(await everything(store, first.session.id)) == [0, 1, 2]
        assert (await opened(store, first.session.id)).next_index == 3
        await store.close()

    async def test_outcomes_are_cached_after_a_sync_only(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store, delivery_id="d1")
        lease = await opened(store, first.session.id)
        line = event(first.session.id, 0)
        lease.next_index = 1
        await store.append(lease, [line], [Outcome("d1", "prompted", 0, "t1")])
        (told,) = store.delivery("d1")
        assert (told.state, told.event_index, told.turn_id) == ("prompted", 0, "t1")
        await accept(store)
        assert [d.delivery_id for d in store.unsettled(first.session.id, 1)] == ["d1"]
        await store.sync(lease)
        await accept(store)
        (kept,) = store.delivery("d1")
        assert kept == told
        assert store.unsettled(first.session.id, 1) == []
        assert store.unsettled(first.session.id, 0) == [kept]
        assert store.sequence_of(first.session.id, ["d1", "d2"]) == {"d1": kept.seq}
        await store.close()

    async def test_a_session_rests_only_when_all_its_deliveries_have_outcomes(
        self, store: Store
    ) -> None:
        first = await accept(store, delivery_id="d1")
        lease = await opened(store, first.session.id)
        mark = Watermark(0, 0, AT, {"status": "waiting", "lastSeq": first.delivery.seq})
        store.rest(lease, mark)
        await accept(store)
        assert first.session.id in store.unrested()
        lease.next_index = 1
        await store.append(
            lease, [event(first.session.id, 0)], [Outcome("d1", "prompted", 0, "t1")]
        )
        await store.sync(lease)
        store.rest(lease, Watermark(store.size(first.session.id), 1, AT, mark.state))
        await accept(store)
        assert first.session.id not in store.unrested()
        assert store.rested_status(first.session.id) == "waiting"
        store.release(lease)
        again = await opened(store, first.session.id)
        assert again.mark is not None
        assert again.mark.next_index == 1

    async def test_a_session_with_something_newer_does_not_rest(self, store: Store) -> None:
        first = await store.accept(fixed("1", "inc"))
        lease = await opened(store, first.session.id)
        await store.accept(fixed("2", "inc"))
        state = {"status": "waiting", "lastSeq": first.delivery.seq}
        store.rest(lease, Watermark(0, 0, AT, state))
        await accept(store)
        assert first.session.id in store.unrested()

    async def test_idle_sessions_are_found_by_their_last_event(self, store: Store) -> None:
        first = await accept(store, delivery_id="d1")
        lease = await opened(store, first.session.id)
        lease.next_index = 1
        await store.append(
            lease, [event(first.session.id, 0)], [Outcome("d1", "prompted", 0, "t1")]
        )
        await store.sync(lease)
        state = {"status": "waiting", "lastSeq": first.delivery.seq}
        store.rest(lease, Watermark(store.size(first.session.id), 1, AT, state))
        await accept(store)
        moment = datetime(2025, 1, 1, tzinfo=UTC)
        assert store.idle_since(moment) == []
        assert store.idle_since(moment + timedelta(seconds=1)) == [first.session.id]

    async def test_replay_decodes_from_an_offset(self, store: Store) -> None:
        first = await accept(store)
        lease = await opened(store, first.session.id)
        await write(store, lease, 2)
        offset = store.size(first.session.id)
        await write(store, lease, 2)
        assert [e["index"] for e in store.replay(first.session.id, offset)] == [2, 3]

    async def test_after_another_boot_the_log_goes_on_far_behind(self, rig: Rig) -> None:
        store = await rig.open(boot="boot-1")
        first = await accept(store)
        await write(store, await opened(store, first.session.id), 3)
        await rig.kill()
        store = await rig.open(boot="boot-2")
        lease = await opened(store, first.session.id)
        assert lease.recovered == (3, lease.next_index - 1)
        assert lease.next_index >= 3 + 10_000
        await store.close()

    async def test_after_another_boot_an_empty_log_may_have_been_read_too(self, rig: Rig) -> None:
        store = await rig.open(boot="boot-1")
        first = await accept(store)
        await rig.kill()
        store = await rig.open(boot="boot-2")
        lease = await opened(store, first.session.id)
        assert lease.recovered == (0, lease.next_index - 1)
        await store.close()

    async def test_a_second_power_cut_never_leads_to_the_same_indices(self, rig: Rig) -> None:
        """What the first recovery wrote is lost again, but somebody may have read it."""
        store = await rig.open(boot="boot-1")
        first = await accept(store)
        await rig.kill()
        seen: set[int] = set()
        for boot in ("boot-2", "boot-3", "boot-4"):
            store = await rig.open(boot=boot)
            lease = await opened(store, first.session.id)
            assert not seen & set(range(lease.next_index, lease.next_index + 10_000))
            seen |= set(range(lease.next_index, lease.next_index + 10_000))
            await rig.kill()

    async def test_a_delivery_does_not_hide_that_the_power_failed(self, rig: Rig) -> None:
        store = await rig.open(boot="boot-1")
        first = await store.accept(fixed("1", "inc"))
        await write(store, await opened(store, first.session.id), 3)
        await rig.kill()
        store = await rig.open(boot="boot-2")
        await store.accept(fixed("2", "inc"))
        await store.stop(first.session.id, at=AT)
        assert (await opened(store, first.session.id)).recovered is not None
        await store.close()

    async def test_a_deleted_session_takes_no_stop(self, store: Store) -> None:
        first = await accept(store)
        await store.delete(first.session.id)
        with pytest.raises(NotFound):
            await store.stop(first.session.id, at=AT)

    async def test_a_rested_log_goes_on_without_a_gap_after_another_boot(self, rig: Rig) -> None:
        store = await rig.open(boot="boot-1")
        first = await accept(store, delivery_id="d1")
        lease = await opened(store, first.session.id)
        lease.next_index = 1
        await store.append(
            lease, [event(first.session.id, 0)], [Outcome("d1", "prompted", 0, "t1")]
        )
        await store.sync(lease)
        state = {"status": "waiting", "lastSeq": first.delivery.seq}
        store.rest(lease, Watermark(store.size(first.session.id), 1, AT, state))
        await store.close()
        store = await rig.open(boot="boot-2")
        lease = await opened(store, first.session.id)
        assert lease.recovered is None
        assert lease.next_index == 1
        await store.close()

    # History, blobs, cursors, values

    async def test_history_is_kept_in_order(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store)
        lease = await opened(store, first.session.id)
        one = Checkpoint("t1", [{"n": 1}, "\u2028"], [])
        two = Checkpoint("t2", [], [{"deliveryId": "d2", "afterCallIds": ["c1"]}])
        store.save_checkpoint(lease, one)
        store.save_checkpoint(lease, two)
        await rig.kill()
        store = await rig.open()
        assert store.checkpoints(first.session.id) == [one, two]
        assert store.checkpoints("ses_none") == []
        await store.close()

    async def test_blobs_are_kept_beside_the_log(self, store: Store) -> None:
        first = await accept(store)
        lease = await opened(store, first.session.id)
        blob_id = store.put_blob(lease, b"\x00whole")
        path = store.blob(first.session.id, blob_id)
        assert path is not None
        assert path.read_bytes() == b"\x00whole"
        for name in ("blob_none", "../session.json", "blob_../../x", ""):
            assert store.blob(first.session.id, name) is None

    async def test_cursors_move(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store)
        assert store.cursor(first.session.id, "slack") == 0
        store.set_cursor(first.session.id, "slack", 7)
        await accept(store)
        assert store.cursor(first.session.id, "slack") == 7
        assert store.cursor(first.session.id, "other") == 0
        store.set_cursor(first.session.id, "slack", 9)
        await store.close()
        store = await rig.open()
        assert store.cursor(first.session.id, "slack") == 9
        await store.close()

    async def test_values_are_kept(self, rig: Rig) -> None:
        store = await rig.open()
        assert await store.kv_get("k") is None
        await store.kv_put("k", {"a": [1, None]})
        await store.kv_put("k", {"a": [2]})
        await rig.kill()
        store = await rig.open()
        assert await store.kv_get("k") == {"a": [2]}
        assert await store.kv_delete("k")
        assert not await store.kv_delete("k")
        assert await store.kv_get("k") is None
        await store.close()

    # Artifacts

    async def test_an_artifact_is_what_its_tag_said_also_after_a_kill(self, rig: Rig) -> None:
        store = await rig.open()
        first = await accept(store)
        made = await store.artifacts.tag(
            tag("k", b"a,b\n", title="T", data={"n": [1]}, session_id=first.session.id)
        )
        assert made.artifact.to_wire() == {
            "id": made.artifact.id,
            "kind": "report",
            "key": "k",
            "title": "T",
            "data": {"n": [1]},
            "sessionId": first.session.id,
            "createdAt": AT,
            "updatedAt": AT,
            "size": 4,
            "contentType": "text/csv",
            "filename": "r.csv",
        }
        assert made.owner == ALICE
        for _ in range(2):
            assert store.artifacts.get(made.artifact.id) == made
            assert store.artifacts.find(ALICE.key, "report", "k") == made
            assert held(store, made) == b"a,b\n"
            await rig.kill()
            store = await rig.open()
        assert store.artifacts.get("art_none") is None
        await store.close()

    async def test_a_tag_of_the_same_kind_and_key_replaces_all_but_the_id(
        self, store: Store
    ) -> None:
        session_id = (await accept(store)).session.id
        first = await store.artifacts.tag(
            tag("k", b"old", title="Old", data=1, session_id=session_id)
        )
        later = "2025-01-02T00:00:00.000Z"
        second = await store.artifacts.tag(tag("k", b"newer", at=later))
        assert second.artifact.to_wire() == {
            "id": first.artifact.id,
            "kind": "report",
            "key": "k",
            "sessionId": session_id,
            "createdAt": AT,
            "updatedAt": later,
            "size": 5,
            "contentType": "text/csv",
            "filename": "r.csv",
        }
        assert held(store, second) == b"newer"
        assert store.artifacts.path(first) is None
        assert len(store.artifacts.list()) == 1
        third = await store.artifacts.tag(tag("k"))
        assert third.artifact.updated_at == later
        assert (third.content, third.artifact.size, held(store, third)) == (None, None, None)

    async def test_owners_kinds_and_keys_are_apart(self, store: Store) -> None:
        made = [
            await store.artifacts.tag(tag("k")),
            await store.artifacts.tag(tag("k", owner=BOB)),
            await store.artifacts.tag(tag("k", kind="note")),
            await store.artifacts.tag(tag("other")),
        ]
        assert len({record.artifact.id for record in made}) == 4
        assert store.artifacts.list() == made[::-1]
        assert store.artifacts.list(owner=BOB.key) == [made[1]]
        assert store.artifacts.list(kind="note") == [made[2]]
        assert store.artifacts.list(limit=2) == [made[3], made[2]]
        again = await store.artifacts.tag(tag("k"))
        assert [r.artifact.id for r in store.artifacts.list(limit=1)] == [again.artifact.id]

    async def test_artifacts_are_found_by_session_and_outlive_it(self, store: Store) -> None:
        sessions = [(await accept(store)).session.id for _ in range(2)]
        made = [
            await store.artifacts.tag(tag(f"k{n}", b"kept", session_id=session_id))
            for n, session_id in enumerate(sessions)
        ]
        assert await store.delete(sessions[0])
        assert store.artifacts.list(session_id=sessions[0]) == [made[0]]
        assert held(store, made[0]) == b"kept"
        with pytest.raises(NotFound):
            await store.artifacts.tag(tag("k0", b"late", session_id=sessions[0]))
        assert held(store, store.artifacts.get(made[0].artifact.id)) == b"kept"

    async def test_the_oldest_updated_goes_when_there_are_too_many(self, store: Store) -> None:
        made = [await store.artifacts.tag(tag(f"k{n}", b"x", keep=3)) for n in range(3)]
        await store.artifacts.tag(tag("k0", b"y", keep=3))
        await store.artifacts.tag(tag("k3", keep=3))
        assert [r.artifact.key for r in store.artifacts.list()] == ["k3", "k0", "k2"]
        assert store.artifacts.path(made[1]) is None
        await store.artifacts.tag(tag("k4", keep=1))
        assert [r.artifact.key for r in store.artifacts.list()] == ["k4"]

    async def test_too_much_content_changes_nothing(self, store: Store) -> None:
        first = await store.artifacts.tag(tag("k", b"12345", max_bytes=5))
        with pytest.raises(TooLarge):
            await store.artifacts.tag(tag("k", b"123456", max_bytes=5))
        assert store.artifacts.get(first.artifact.id) == first
        assert held(store, first) == b"12345"

    async def test_an_artifact_is_removed_with_what_it_holds(self, store: Store) -> None:
        made = await store.artifacts.tag(tag("k", b"x"))
        assert await store.artifacts.delete(made.artifact.id)
        assert not await store.artifacts.delete(made.artifact.id)
        assert store.artifacts.get(made.artifact.id) is None
        assert store.artifacts.path(made) is None
        fresh = await store.artifacts.tag(tag("k"))
        assert fresh.artifact.id != made.artifact.id

    async def test_what_a_log_was_not_told_is_known_after_a_kill(self, rig: Rig) -> None:
        store = await rig.open()
        session_id = (await accept(store)).session.id
        await store.artifacts.tag(tag("alone"))
        first = await store.artifacts.tag(tag("k", session_id=session_id))
        second = await store.artifacts.tag(tag("k", session_id=session_id))
        store.artifacts.told(first)
        third = await store.artifacts.tag(tag("k2", session_id=session_id))
        await rig.kill()
        store = await rig.open()
        assert store.artifacts.untold() == [second, third]
        store.artifacts.told(second)
        store.artifacts.told(third)
        await store.close()
        store = await rig.open()
        assert store.artifacts.untold() == []
        await store.close()

    async def test_tags_at_once_leave_one_of_them_whole(self, store: Store) -> None:
        contents = [str(n).encode() * 1000 for n in range(8)]
        made = await asyncio.gather(
            *(store.artifacts.tag(tag("k", c, data=n)) for n, c in enumerate(contents))
        )
        assert len({record.artifact.id for record in made}) == 1
        (last,) = store.artifacts.list()
        assert held(store, last) == contents[last.artifact.data]

    # Sessions

    async def test_sessions_are_listed_newest_first(self, store: Store) -> None:
        made = [
            (await accept(store, at=f"2025-01-01T00:00:0{n}.000Z", by=ALICE if n else BOB)).session
            for n in range(3)
        ]
        assert store.sessions() == made[::-1]
        assert store.sessions(BOB.key) == [made[0]]
        assert store.sessions(limit=1) == [made[2]]

    async def test_a_deleted_session_leaves_nothing_but_its_keys(self, rig: Rig) -> None:
        store = await rig.open()
        heard: list[InboxItem] = []
        store.listen(heard.append)
        now = iso(datetime.now(UTC))
        first = await store.accept(fixed("1", "inc", delivery_id="d1", at=now))
        session_id = first.session.id
        lease = await opened(store, session_id)
        await write(store, lease, 1)
        store.save_checkpoint(lease, Checkpoint("t1", [1]))
        blob_id = store.put_blob(lease, b"x")
        assert await store.delete(session_id)
        assert not await store.delete(session_id)
        assert heard[-1] == SessionDeleted(session_id)
        for attempt in (
            lambda: store.append(lease, [event(session_id, 1)]),
            lambda: _save(store, lease),
            lambda: _blob(store, lease),
        ):
            with pytest.raises(LeaseLost):
                await attempt()
        for _ in range(2):
            assert store.session(session_id) is None
            assert store.sessions() == []
            assert store.checkpoints(session_id) == []
            assert store.blob(session_id, blob_id) is None
            assert await store.lease(session_id) is None
            assert await everything(store, session_id) == b""
            assert [d.state for d in store.delivery("d1")] == ["cleared"]
            assert (await store.accept(fixed("1", "inc", delivery_id="d1"))).duplicate
            with pytest.raises(NotFound):
                await accept(store, session_id=session_id, token="inc")
            await rig.kill()
            store = await rig.open()
        fresh = await store.accept(fixed("2", "inc", delivery_id="d2"))
        assert fresh.created
        assert fresh.session.id != session_id
        await store.close()

    async def test_keys_of_a_deleted_session_are_forgotten_after_a_month(self, rig: Rig) -> None:
        store = await rig.open()
        first = await store.accept(fixed("1", "inc", delivery_id="d1"))
        await store.delete(first.session.id)
        await store.close()
        store = await rig.open()
        assert store.delivery("d1") == []
        await store.close()

    async def test_a_cancelled_delete_is_whole(self, store: Store) -> None:
        first = await accept(store)
        lease = await opened(store, first.session.id)
        told = asyncio.Event()
        store.listen(lambda item: told.set() if isinstance(item, SessionDeleted) else None)
        deleting = asyncio.create_task(store.delete(first.session.id))
        await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.wait([deleting])
        await told.wait()
        with pytest.raises(LeaseLost):
            await write(store, lease, 1)
        assert store.session(first.session.id) is None

    async def test_the_store_says_that_it_works(self, store: Store) -> None:
        await store.check()
        assert list(store.damage) == []

    async def test_a_closed_store_refuses_at_once(self, rig: Rig) -> None:
        from threadline.errors import StoreUnavailable

        store = await rig.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.check()
        with pytest.raises(StoreUnavailable):
            await accept(store)


async def _save(store: Store, lease: Lease) -> None:
    store.save_checkpoint(lease, Checkpoint("t2", [2]))


async def _blob(store: Store, lease: Lease) -> None:
    put: Callable[[Lease, bytes], str] = store.put_blob
    put(lease, b"late")
