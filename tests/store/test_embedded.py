"""The embedded store passes the conformance suite, and keeps what is its own promise."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.store.conformance import (
    AT,
    StoreConformance,
    accept,
    event,
    fixed,
    indices,
    request,
)

from threadline.clock import iso
from threadline.errors import (
    DeliveryConflict,
    LeaseLost,
    StaleToken,
    StateRootError,
    StoreUnavailable,
)
from threadline.principal import LOCAL
from threadline.store.base import Checkpoint, Lease, Outcome, SessionDeleted
from threadline.store.embedded import EmbeddedStore
from threadline.testing.faults import Crashed, FaultyDisk


class EmbeddedRig:
    """A state root, and the disk below it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FaultyDisk()
        self._store: EmbeddedStore | None = None

    async def open(self, *, boot: str = "boot-1") -> EmbeddedStore:
        self.disk.revive()
        self._store = EmbeddedStore(self.root, disk=self.disk, boot=boot)
        await self._store.open()
        return self._store

    async def kill(self) -> None:
        self.disk.die()
        assert self._store is not None
        await self._store.close()


@pytest.fixture
def rig(tmp_path: Path) -> EmbeddedRig:
    return EmbeddedRig(tmp_path / "state")


class TestConformance(StoreConformance):
    """Every store passes these."""


# Files and modes


def line(session_id: str, index: int, type_: str = "step.started", **data: Any) -> bytes:
    return event(session_id, index, type_, **data)


async def write(store: EmbeddedStore, lease: Lease, count: int, **data: Any) -> None:
    lines = []
    for _ in range(count):
        lines.append(line(lease.session.id, lease.next_index, **data))
        lease.next_index += 1
    await store.append(lease, lines)


async def opened(store: EmbeddedStore, session_id: str) -> Lease:
    lease = await store.lease(session_id)
    assert lease is not None
    return lease


async def everything(store: EmbeddedStore, session_id: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(session_id)])


async def test_every_file_is_private_and_a_session_has_few(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    await write(store, lease, 3)
    store.save_checkpoint(lease, Checkpoint("t1", [1]))
    await store.sync(lease)
    for path in [rig.root, *rig.root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    mine = [p for p in rig.root.rglob("*") if p.is_file() and first.session.id in str(p)]
    assert sorted(p.name for p in mine) == [
        "events.ndjson",
        f"{first.session.id}.ndjson",
        "session.json",
    ]
    await store.close()


async def test_session_json_says_who_it_is(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await store.accept(
        request("1", channel="incidents", rotating=False, token="inc", title="T", cwd="/srv")
    )
    wire = orjson.loads((rig.root / "sessions" / first.session.id / "session.json").read_bytes())
    assert wire == {
        "id": first.session.id,
        "channel": "incidents",
        "mode": "chat",
        "principal": {"kind": "user", "id": "alice", "name": "Alice"},
        "createdAt": AT,
        "title": "T",
        "cwd": "/srv",
        "continuationToken": "inc",
        "tokenRotates": False,
    }
    await store.close()


async def test_no_token_that_rotates_is_stored_in_the_clear(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    await store.close()
    secret = first.token.partition(":")[2].encode()
    for path in rig.root.rglob("*"):
        assert not path.is_file() or secret not in path.read_bytes()


# One host


async def test_a_second_host_is_refused_and_told_where_the_first_is(rig: EmbeddedRig) -> None:
    store = await rig.open()
    store.announce("http://127.0.0.1:3000")
    with pytest.raises(StateRootError) as refused:
        await EmbeddedStore(rig.root).open()
    assert "http://127.0.0.1:3000" in refused.value.details["holder"]
    await accept(store)
    await store.close()
    again = EmbeddedStore(rig.root)
    await again.open()
    await again.close()


async def test_a_killed_hosts_lock_is_free(rig: EmbeddedRig) -> None:
    await rig.open()
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from threadline.store.embedded import EmbeddedStore\n"
        "async def main():\n"
        "    await EmbeddedStore(Path(sys.argv[1])).open()\n"
        "    print('open', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    await rig.kill()
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(rig.root), stdout=asyncio.subprocess.PIPE
    )
    assert host.stdout is not None
    assert await host.stdout.readline() == b"open\n"
    with pytest.raises(StateRootError):
        await rig.open()
    host.kill()
    await host.communicate()
    store = await rig.open()
    await store.close()


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateRootError):
        await EmbeddedStore(tmp_path / "file" / "state").open()


async def test_a_broken_ledger_is_refused_and_left_alone(rig: EmbeddedRig) -> None:
    store = await rig.open()
    await accept(store)
    await store.close()
    (rig.root / "threadline.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StateRootError, match="backup"):
        await rig.open()
    assert (rig.root / "threadline.db").read_bytes().startswith(b"not a database")
    (rig.root / "threadline.db").unlink()
    store = await rig.open()
    await store.close()


async def test_an_unmounted_volume_deletes_nothing(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    await store.close()
    sessions = rig.root / "sessions"
    sessions.rename(rig.root / "away")
    for other in (None, b"another root\n"):
        if other is not None:
            sessions.mkdir(exist_ok=True)
            (sessions / ".root").write_bytes(other)
        with pytest.raises(StateRootError, match="volume"):
            await rig.open()
    shutil.rmtree(sessions)
    (rig.root / "away").rename(sessions)
    store = await rig.open()
    assert store.session(first.session.id) is not None
    await store.close()


# Folders and rows


async def test_a_folder_removed_by_hand_is_a_deleted_session(rig: EmbeddedRig) -> None:
    store = await rig.open()
    heard: list[Any] = []
    store.listen(heard.append)
    first = await store.accept(fixed("1", "inc", delivery_id="d1", at=iso(datetime.now(UTC))))
    lease = await opened(store, first.session.id)
    await write(store, lease, 1)
    store.save_checkpoint(lease, Checkpoint("t1", [1]))
    folder = rig.root / "sessions" / first.session.id
    shutil.rmtree(folder)
    with pytest.raises(LeaseLost):
        store.put_blob(lease, b"late")
    assert not folder.exists()
    with pytest.raises(LeaseLost):
        await write(store, lease, 1)
    assert heard[-1] == SessionDeleted(first.session.id)
    assert not folder.exists()
    assert store.checkpoints(first.session.id) == []
    again = await store.accept(fixed("2", "inc", delivery_id="d2"))
    assert again.session.id != first.session.id
    assert [d.state for d in store.delivery("d1")] == ["cleared"]
    await store.close()


async def test_history_of_a_folder_removed_by_hand_goes_too(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    shutil.rmtree(rig.root / "sessions" / first.session.id)
    with contextlib.suppress(LeaseLost):
        store.save_checkpoint(lease, Checkpoint("t1", [1]))
    with pytest.raises(LeaseLost):
        await write(store, lease, 1)
    assert not (rig.root / "runner" / f"{first.session.id}.ndjson").exists()
    await store.close()


async def test_a_folder_removed_while_the_host_was_down_is_a_deleted_session(
    rig: EmbeddedRig,
) -> None:
    store = await rig.open()
    first = await accept(store, delivery_id="d1", at=iso(datetime.now(UTC)))
    await store.close()
    shutil.rmtree(rig.root / "sessions" / first.session.id)
    store = await rig.open()
    assert store.session(first.session.id) is None
    assert store.unrested() == []
    assert [d.state for d in store.delivery("d1")] == ["cleared"]
    await store.close()


async def test_a_folder_replaced_by_a_link_is_a_deleted_session(
    rig: EmbeddedRig, tmp_path: Path
) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    folder = rig.root / "sessions" / first.session.id
    victim = tmp_path / "victim"
    folder.rename(victim)
    folder.symlink_to(victim)
    before = sorted(p.name for p in victim.iterdir())
    assert store.session(first.session.id) is None
    with pytest.raises(LeaseLost):
        await write(store, lease, 1)
    assert not folder.is_symlink()
    assert sorted(p.name for p in victim.iterdir()) == before
    await store.close()


async def test_leftovers_without_a_row_are_removed(rig: EmbeddedRig) -> None:
    store = await rig.open()
    await store.close()
    sessions = rig.root / "sessions"
    for name in ("ses_empty", "ses_half"):
        (sessions / name).mkdir()
    (sessions / "ses_half" / "events.ndjson").touch()
    (sessions / "notes").mkdir()
    store = await rig.open()
    assert sorted(p.name for p in sessions.iterdir()) == [".root", "notes"]
    await store.close()


STARTED = (
    b'{"type":"session.started","index":0,"sessionId":"ses_fixture1",'
    b'"at":"2025-10-09T08:53:20.000Z","data":{}}\n'
)
PROMPT = (
    b'{"type":"message.received","index":1,"sessionId":"ses_fixture1","turnId":"t1",'
    b'"at":"2025-10-09T08:53:20.000Z","data":{"text":"hi","deliveryIds":["dlv_1"]}}\n'
)
TURN = (
    b'{"type":"turn.started","index":1,"sessionId":"ses_fixture1","turnId":"t1",'
    b'"at":"2025-10-09T08:53:20.000Z","data":{}}'
)
LAST = (
    b'{"type":"session.waiting","index":2,"sessionId":"ses_fixture1",'
    b'"at":"2025-10-09T08:53:21.000Z","data":{}}\n'
)


def place(rig: EmbeddedRig, log: bytes, **wire: Any) -> Path:
    """Put a session's folder into the state root, as a restored backup would."""
    folder = rig.root / "sessions" / "ses_fixture1"
    folder.mkdir(parents=True)
    (folder / "events.ndjson").write_bytes(log)
    if wire:
        (folder / "session.json").write_bytes(orjson.dumps(wire))
    return folder


async def test_a_session_in_the_tree_is_adopted(rig: EmbeddedRig) -> None:
    place(
        rig,
        STARTED + PROMPT,
        id="ses_fixture1",
        mode="chat",
        channel="http",
        continuationToken="http:fixture-token",
    )
    store = await rig.open()
    record = store.session("ses_fixture1")
    assert record is not None
    assert (record.channel, record.mode, record.owner) == ("http", "chat", LOCAL)
    assert "ses_fixture1" in store.unrested()
    (known,) = store.delivery("dlv_1")
    assert (known.state, known.event_index, known.turn_id) == ("prompted", 1, "t1")
    local = {"by": LOCAL, "session_id": "ses_fixture1", "token": "http:fixture-token"}
    assert (await accept(store, "hi", **local, delivery_id="dlv_1")).duplicate
    follow_up = await accept(store, "more", **local)
    with pytest.raises(StaleToken):
        await accept(store, "more", **local)
    assert (await accept(store, "x", **local | {"token": follow_up.token})).session == record
    await store.close()


async def test_a_last_line_without_its_newline_is_kept(rig: EmbeddedRig) -> None:
    folder = place(rig, STARTED + TURN)
    store = await rig.open()
    assert await store.next_index("ses_fixture1") == 2
    assert (folder / "events.ndjson").read_bytes() == STARTED + TURN + b"\n"
    assert (folder / "session.json").is_file()
    assert list(store.damage) == []
    await store.close()


@pytest.mark.parametrize(
    "damage",
    [bytes(4096) + b"\n", bytes(4096), b"garbage\n", TURN + b"\n", b'{"type":"x"}\n', b"\n"],
    ids=["nul line", "nul block", "garbage", "repeated index", "no index", "empty line"],
)
async def test_damage_in_the_middle_is_stepped_over_and_reported_once(
    rig: EmbeddedRig, damage: bytes
) -> None:
    folder = place(rig, STARTED + TURN + b"\n" + damage + LAST)
    store = await rig.open()
    kept = [e["index"] for e in store.replay("ses_fixture1", 0)]
    assert kept in ([0, 1, 2], [0, 1])
    assert len(store.damage) == 1
    lease = await opened(store, "ses_fixture1")
    assert lease.next_index == kept[-1] + 1
    assert (folder / "events.damaged").read_bytes() == STARTED + TURN + b"\n" + damage + LAST
    await store.close()
    store = await rig.open()
    await opened(store, "ses_fixture1")
    assert list(store.damage) == []
    await store.close()


async def test_damage_in_a_known_log_is_taken_out_when_it_is_opened(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    await write(store, lease, 3)
    await store.close()
    path = rig.root / "sessions" / first.session.id / "events.ndjson"
    one, two, three, _ = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([one, bytes(len(two)), three, b'{"torn']))
    store = await rig.open()
    lease = await opened(store, first.session.id)
    assert lease.next_index == 3
    assert await everything(store, first.session.id) == one + b"\n" + three + b"\n"
    assert len(store.damage) == 1
    await write(store, lease, 1)
    assert indices(await everything(store, first.session.id)) == [0, 2, 3]
    await store.close()


async def test_a_reader_of_a_mended_log_must_come_back(rig: EmbeddedRig) -> None:
    """Its offsets mean nothing any more; it must neither spin nor read elsewhere."""
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    await write(store, lease, 3)
    path = rig.root / "sessions" / first.session.id / "events.ndjson"
    reader = store.read(first.session.id, follow=True)
    assert indices(await anext(reader)) == [0, 1, 2]
    assert await anext(reader) == b""
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(data.index(b"\n")))
    await opened(store, first.session.id)
    assert [chunk async for chunk in reader] == []
    assert indices(await everything(store, first.session.id)) == [1, 2]
    await store.close()


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 1.0])
async def test_a_torn_last_line_is_cut(rig: EmbeddedRig, kept: float) -> None:
    store = await rig.open()
    first = await accept(store)
    await write(store, await opened(store, first.session.id), 2)
    await store.close()
    path = rig.root / "sessions" / first.session.id / "events.ndjson"
    whole = path.read_bytes()
    torn = line(first.session.id, 2, text="é" * 100)
    path.write_bytes(whole + torn[: round((len(torn) - 1) * kept)])
    store = await rig.open()
    expected = 3 if kept == 1.0 else 2
    assert await store.next_index(first.session.id) == expected
    assert (await everything(store, first.session.id)).count(b"\n") == expected
    assert (await opened(store, first.session.id)).next_index == expected
    await store.close()


async def test_a_torn_history_record_does_not_swallow_the_next(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    store.save_checkpoint(lease, Checkpoint("t1", [1]))
    await store.close()
    path = rig.root / "runner" / f"{first.session.id}.ndjson"
    path.write_bytes(path.read_bytes() + b'{"turnId":"t2","mess')
    store = await rig.open()
    lease = await opened(store, first.session.id)
    store.save_checkpoint(lease, Checkpoint("t3", [3]))
    assert [c.turn_id for c in store.checkpoints(first.session.id)] == ["t1", "t3"]
    await store.close()


async def test_a_lost_ledger_is_rebuilt_from_the_tree(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await store.accept(fixed("1", "inc-1", delivery_id="d1", mode="chat"))
    start = await accept(store, delivery_id="s1")
    for result in (first, start):
        lease = await opened(store, result.session.id)
        part = {"deliveryId": result.delivery.delivery_id, "text": result.delivery.text}
        await store.append(
            lease,
            [
                line(result.session.id, 0, "session.started"),
                line(
                    result.session.id,
                    1,
                    "message.received",
                    text=part["text"],
                    deliveryIds=[part["deliveryId"]],
                    parts=[part],
                ),
            ],
        )
    await store.close()
    for path in rig.root.glob("threadline.db*"):
        path.unlink()
    store = await rig.open()
    assert len(store.damage) == 1
    again = await store.accept(fixed("1", "inc-1", delivery_id="d1"))
    assert again.duplicate
    assert again.session == first.session
    assert (await store.accept(fixed("2", "inc-1"))).session == first.session
    with pytest.raises(DeliveryConflict):
        await store.accept(fixed("other", "inc-1", delivery_id="d1"))
    # The secret of the rotating tokens went with the ledger: a repeated start gets a new one.
    known = await accept(store, delivery_id="s1")
    assert known.duplicate
    assert known.session == start.session
    assert (await accept(store, delivery_id="s1")).token == known.token
    follow_up = await accept(store, "more", session_id=start.session.id, token=known.token)
    assert follow_up.session == start.session
    await store.close()


# Failing disks


async def test_a_full_disk_refuses_deliveries_and_keeps_what_it_has(rig: EmbeddedRig) -> None:
    store = await rig.open()
    heard: list[Any] = []
    store.listen(heard.append)
    first = await accept(store, delivery_id="d1")
    lease = await opened(store, first.session.id)
    await write(store, lease, 2)
    rig.disk.full = True
    heard.clear()
    results = await asyncio.gather(
        *(accept(store, delivery_id=f"n{n}") for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(result, StoreUnavailable) for result in results)
    with pytest.raises(StoreUnavailable):
        await store.append(lease, [line(first.session.id, 2)])
    with pytest.raises(StoreUnavailable):
        store.save_checkpoint(lease, Checkpoint("t1", [1]))
    with pytest.raises(StoreUnavailable):
        await store.check()
    with pytest.raises(StoreUnavailable):
        await accept(store)
    assert heard == []
    assert indices(await everything(store, first.session.id)) == [0, 1]
    rig.disk.full = False
    await store.check()
    assert not (await accept(store, delivery_id="n0")).duplicate
    await store.append(lease, [line(first.session.id, 2)])
    assert indices(await everything(store, first.session.id)) == [0, 1, 2]
    await store.close()


async def test_work_that_nobody_waits_for_survives_a_full_disk(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store, delivery_id="d1")
    lease = await opened(store, first.session.id)
    lease.next_index = 1
    await store.append(lease, [line(first.session.id, 0)], [Outcome("d1", "prompted", 0, "t1")])
    await store.sync(lease)
    rig.disk.full = True
    with pytest.raises(StoreUnavailable):
        await accept(store)
    rig.disk.full = False
    await accept(store)
    assert [d.state for d in store.delivery("d1")] == ["prompted"]
    await store.close()


async def test_a_write_that_failed_half_leaves_whole_lines(
    rig: EmbeddedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    await write(store, lease, 1)
    append, truncate = rig.disk.append, rig.disk.truncate

    def half(handle: int, data: bytes) -> None:
        append(handle, data[:20])
        raise OSError(28, "No space left on device")

    def stuck(handle: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(rig.disk, "append", half)
    monkeypatch.setattr(rig.disk, "truncate", stuck)
    with pytest.raises(StoreUnavailable):
        await store.append(lease, [line(first.session.id, 1)])
    assert indices(await everything(store, first.session.id)) == [0]
    monkeypatch.setattr(rig.disk, "append", append)
    monkeypatch.setattr(rig.disk, "truncate", truncate)
    await store.append(lease, [line(first.session.id, 1)])
    await store.close()
    path = rig.root / "sessions" / first.session.id / "events.ndjson"
    assert path.read_bytes() == line(first.session.id, 0) + line(first.session.id, 1)


async def test_a_failed_sync_closes_the_session_until_it_is_opened_again(
    rig: EmbeddedRig,
) -> None:
    store = await rig.open()
    first = await accept(store, delivery_id="d1")
    other = await accept(store)
    lease = await opened(store, first.session.id)
    lease.next_index = 1
    await store.append(lease, [line(first.session.id, 0)], [Outcome("d1", "prompted", 0, "t1")])
    store.save_checkpoint(lease, Checkpoint("t1", [1]))
    rig.disk.failing_syncs = 2
    with pytest.raises(StoreUnavailable):
        await store.sync(lease)
    rig.disk.failing_syncs = 0
    with pytest.raises(LeaseLost):
        await write(store, lease, 1)
    await accept(store)
    assert [d.delivery_id for d in store.unsettled(first.session.id, 1)] == ["d1"]
    fine = await opened(store, other.session.id)
    await write(store, fine, 1)
    await store.sync(fine)
    again = await opened(store, first.session.id)
    assert again.next_index == 1
    await write(store, again, 1)
    await store.sync(again)
    await rig.kill()
    # The failed pages were written anew, so that this sync is true even after a power cut.
    rig.disk.lose_unsynced(rig.root)
    store = await rig.open(boot="boot-2")
    assert indices(await everything(store, first.session.id)) == [0, 1]
    assert [c.turn_id for c in store.checkpoints(first.session.id)] == ["t1"]
    await store.close()


async def test_a_failed_sync_is_known_to_the_next_process(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    await write(store, lease, 2)
    rig.disk.failing_syncs = 1
    with pytest.raises(StoreUnavailable):
        await store.sync(lease)
    await rig.kill()
    store = await rig.open()
    again = await opened(store, first.session.id)
    assert again.recovered is None
    await store.sync(again)
    await rig.kill()
    rig.disk.lose_unsynced(rig.root)
    store = await rig.open(boot="boot-2")
    assert indices(await everything(store, first.session.id)) == [0, 1]
    await store.close()


async def test_all_waiting_syncs_hear_of_a_failure(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    lease = await opened(store, first.session.id)
    await write(store, lease, 1)
    rig.disk.failing_syncs = 1
    results = await asyncio.gather(*(store.sync(lease) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    await store.close()


async def test_a_power_cut_leaves_what_was_promised(rig: EmbeddedRig) -> None:
    """Deliveries at once; events, history and their files from a sync on; blobs at once."""
    store = await rig.open()
    first = await accept(store, delivery_id="d1")
    lease = await opened(store, first.session.id)
    await write(store, lease, 1)
    store.save_checkpoint(lease, Checkpoint("t1", [1]))
    blob_id = store.put_blob(lease, b"whole")
    await store.sync(lease)
    await write(store, lease, 5)
    store.save_checkpoint(lease, Checkpoint("t1", [2]))
    await rig.kill()
    rig.disk.lose_unsynced(rig.root)
    store = await rig.open(boot="boot-2")
    assert store.session(first.session.id) == first.session
    assert [d.delivery_id for d in store.unsettled(first.session.id, 0)] == ["d1"]
    assert indices(await everything(store, first.session.id)) == [0]
    assert [c.messages for c in store.checkpoints(first.session.id)] == [[1]]
    path = store.blob(first.session.id, blob_id)
    assert path is not None
    assert path.read_bytes() == b"whole"
    await store.close()


async def test_what_a_killed_process_wrote_is_synced_by_the_next(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await accept(store)
    await write(store, await opened(store, first.session.id), 3)
    await rig.kill()
    store = await rig.open()
    await store.sync(await opened(store, first.session.id))
    await rig.kill()
    rig.disk.lose_unsynced(rig.root)
    store = await rig.open(boot="boot-2")
    assert indices(await everything(store, first.session.id)) == [0, 1, 2]
    await store.close()


async def test_tokens_need_the_secret_however_the_first_start_ended(tmp_path: Path) -> None:
    """A crash while the ledger is made must never leave tokens that anybody could derive."""
    for crash_at in range(1, 40):
        disk = FaultyDisk(crash_at)
        root = tmp_path / str(crash_at)
        store = EmbeddedStore(root, disk=disk)
        try:
            await store.open()
        except Crashed:
            disk.lose_unsynced(root)
            disk.revive()
            store = EmbeddedStore(root, disk=disk)
            await store.open()
        else:
            await store.close()
            return
        first = await accept(store)
        assert len(store._ledger.secret) == 32
        assert (await accept(store, "2", session_id=first.session.id, token=first.token)).token
        await store.close()
    pytest.fail("the scenario never ended")
