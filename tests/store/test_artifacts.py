"""What the embedded store promises of artifacts: whole contents, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from pathlib import Path

import pytest
from tests.store.conformance import accept, tag
from tests.store.test_embedded import EmbeddedRig

from threadline.errors import StoreUnavailable
from threadline.store.embedded import EmbeddedStore
from threadline.testing.faults import Crashed, FaultyDisk, When

OLD, NEW = b"old " * 300_000, b"new " * 400_000
LARGE = 10_000_000


@pytest.fixture
def rig(tmp_path: Path) -> EmbeddedRig:
    return EmbeddedRig(tmp_path / "state")


def files(rig: EmbeddedRig) -> list[Path]:
    return sorted((rig.root / "artifacts").iterdir())


async def reopened(rig: EmbeddedRig, *, power_cut: bool) -> EmbeddedStore:
    """Kill the process, cut the power on top or not, and start the next."""
    await rig.kill()
    if power_cut:
        rig.disk.lose_unsynced(rig.root)
    return await rig.open(boot="boot-2" if power_cut else "boot-1")


async def scenario(store: EmbeddedStore, acknowledged: list[str]) -> None:
    """Make two artifacts, replace one, evict the other."""
    await store.artifacts.tag(tag("a", OLD, data="old", max_bytes=LARGE))
    acknowledged.append("made")
    await store.artifacts.tag(tag("b", OLD, data="old", max_bytes=LARGE))
    acknowledged.append("both")
    await store.artifacts.tag(tag("b", NEW, data="new", max_bytes=LARGE))
    acknowledged.append("replaced")
    await store.artifacts.tag(tag("c", NEW, data="new", keep=2, max_bytes=LARGE))
    acknowledged.append("evicted")
    (oldest, _) = reversed(store.artifacts.list())
    await store.artifacts.delete(oldest.artifact.id)
    acknowledged.append("deleted")


# What must be there after each step that was acknowledged.
_AFTER = {
    "": {},
    "made": {"a": "old"},
    "both": {"a": "old", "b": "old"},
    "replaced": {"a": "old", "b": "new"},
    "evicted": {"b": "new", "c": "new"},
    "deleted": {"c": "new"},
}


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power-cut"])
@pytest.mark.parametrize("when", ["before", "torn", "after"])
async def test_a_crash_at_any_write_leaves_whole_artifacts(
    tmp_path: Path, when: When, power_cut: bool
) -> None:
    """The last acknowledged step holds, or the next one; contents match their records."""
    steps = list(_AFTER)
    for crash_at in range(1, 200):
        rig = EmbeddedRig(tmp_path / str(crash_at))
        store = await rig.open()
        done: list[str] = []
        rig.disk.revive(crash_at, when)
        with contextlib.suppress(Crashed, StoreUnavailable):
            await scenario(store, done)
        if not rig.disk.dead:
            await store.close()
            assert crash_at > 20
            return
        store = await reopened(rig, power_cut=power_cut)
        found = {r.artifact.key: r.artifact.data for r in store.artifacts.list()}
        last = done[-1] if done else ""
        possible = steps[steps.index(last) : steps.index(last) + 2]
        assert found in [_AFTER[step] for step in possible], (crash_at, found)
        for record in store.artifacts.list():
            path = store.artifacts.path(record)
            assert path is not None, (crash_at, record)
            content = OLD if record.artifact.data == "old" else NEW
            assert path.read_bytes() == content
            assert record.artifact.size == len(content)
        if (rig.root / "artifacts").exists():
            assert {p.name for p in files(rig)} == {r.content for r in store.artifacts.list()}
        await store.close()
    pytest.fail("the scenario never ended")


async def test_contents_are_private_and_leave_nothing_behind(rig: EmbeddedRig) -> None:
    store = await rig.open()
    assert not (rig.root / "artifacts").exists()
    for content in (b"1", b"22", None, b"333"):
        await store.artifacts.tag(tag("k", content))
    (path,) = files(rig)
    assert path.read_bytes() == b"333"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await store.close()


async def test_a_reader_of_what_is_replaced_reads_on(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await store.artifacts.tag(tag("k", OLD, max_bytes=LARGE))
    path = store.artifacts.path(first)
    assert path is not None
    with path.open("rb") as reading:
        head = reading.read(10)
        await store.artifacts.tag(tag("k", NEW, max_bytes=LARGE))
        assert head + reading.read() == OLD
    await store.close()


async def test_a_full_disk_refuses_and_leaves_what_there_is(rig: EmbeddedRig) -> None:
    store = await rig.open()
    first = await store.artifacts.tag(tag("k", b"kept"))
    rig.disk.full = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.artifacts.tag(tag("k", b"more"))
    rig.disk.full = False
    assert store.artifacts.list() == [first]
    assert len(files(rig)) == 1
    assert (await store.artifacts.tag(tag("k", b"more"))).artifact.size == 4
    await store.close()


async def test_a_commit_that_fails_leaves_no_file(
    rig: EmbeddedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await rig.open()

    def failing(_: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr(FaultyDisk, "commit", failing)
        with pytest.raises(StoreUnavailable):
            await store.artifacts.tag(tag("k", b"x"))
    assert files(rig) == []
    assert store.artifacts.list() == []
    await store.close()


async def test_a_sync_that_fails_stores_nothing(rig: EmbeddedRig) -> None:
    store = await rig.open()
    rig.disk.failing_syncs = 1
    with pytest.raises(StoreUnavailable):
        await store.artifacts.tag(tag("k", b"x"))
    assert files(rig) == []
    assert store.artifacts.list() == []
    await store.close()


async def test_files_of_others_are_left_alone(rig: EmbeddedRig) -> None:
    """Only what this ledger wrote and names no more is removed; a lost ledger's files stay."""
    store = await rig.open()
    await accept(store)
    made = await store.artifacts.tag(tag("k", b"kept"))
    await store.close()
    (rig.root / "artifacts" / "notes.txt").write_text("by hand")
    orphan = rig.root / "artifacts" / f"{str(made.content)[:9]}{'0' * 32}"
    orphan.write_text("torn")
    store = await rig.open()
    assert {p.name for p in files(rig)} == {"notes.txt", made.content}
    await store.close()
    (rig.root / "threadline.db").unlink()
    store = await rig.open()
    assert store.artifacts.list() == []
    assert {p.name for p in files(rig)} == {"notes.txt", made.content}
    again = await store.artifacts.tag(tag("k", b"again"))
    path = store.artifacts.path(again)
    assert path is not None
    assert path.read_bytes() == b"again"
    await store.close()


async def test_a_link_is_no_content(rig: EmbeddedRig, tmp_path: Path) -> None:
    store = await rig.open()
    made = await store.artifacts.tag(tag("k", b"x"))
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (path,) = files(rig)
    path.unlink()
    assert store.artifacts.path(made) is None
    path.symlink_to(secret)
    assert store.artifacts.path(made) is None
    await store.close()


async def test_a_closed_store_takes_no_tag(rig: EmbeddedRig) -> None:
    store = await rig.open()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.artifacts.tag(tag("k", b"x"))
    with pytest.raises(StoreUnavailable):
        await store.artifacts.delete("art_x")
    assert not (rig.root / "artifacts").exists()


async def test_a_store_of_before_artifacts_takes_them(rig: EmbeddedRig) -> None:
    store = await rig.open()
    await accept(store)
    await store.close()
    store = await rig.open()
    store._sql.execute("DROP TABLE artifacts")
    store._sql.execute("DELETE FROM meta WHERE key = 'artifacts'")
    await store.close()
    store = await rig.open()
    assert (await store.artifacts.tag(tag("k", b"x"))).artifact.size == 1
    await store.close()


async def test_a_cancelled_tag_leaves_whole_artifacts(rig: EmbeddedRig) -> None:
    store = await rig.open()
    tagging = asyncio.create_task(store.artifacts.tag(tag("k", OLD, max_bytes=LARGE)))
    await asyncio.sleep(0)
    tagging.cancel()
    await asyncio.wait([tagging])
    await store.artifacts.tag(tag("other"))
    await store.close()
    store = await rig.open()
    for record in store.artifacts.list(kind="report"):
        assert record.content is None or store.artifacts.path(record) is not None
    await store.close()
