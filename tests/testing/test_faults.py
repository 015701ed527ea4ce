"""The disk that fails on demand."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from threadline.store.disk import Disk
from threadline.testing.faults import Crashed, FaultyDisk


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.touch()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    yield handle
    os.close(handle)


def content(tmp_path: Path) -> bytes:
    return (tmp_path / "file").read_bytes()


@pytest.mark.parametrize(
    ("when", "left"), [("before", b"one"), ("torn", b"onetw"), ("after", b"onetwoo")]
)
def test_it_dies_where_it_is_told_and_stays_dead(
    tmp_path: Path, handle: int, when: Any, left: bytes
) -> None:
    disk = FaultyDisk(2, when)
    disk.append(handle, b"one")
    with pytest.raises(Crashed):
        disk.append(handle, b"twoo")
    with pytest.raises(Crashed):
        disk.append(handle, b"x")
    with pytest.raises(Crashed):
        disk.sync(handle)
    assert disk.dead
    assert content(tmp_path) == left
    disk.revive()
    disk.append(handle, b"!")
    assert content(tmp_path) == left + b"!"


def test_it_counts_and_names_every_operation(tmp_path: Path, handle: int) -> None:
    disk = FaultyDisk()
    disk.make_dir(tmp_path / "a" / "b")
    disk.create(tmp_path / "a" / "new", b"x")
    disk.append(handle, b"x")
    disk.truncate(handle, 0)
    disk.sync(handle)
    disk.sync_dir(tmp_path)
    disk.replace(tmp_path / "a" / "new", tmp_path / "a" / "old")
    disk.remove(tmp_path / "a")
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("BEGIN")
    disk.commit(connection)
    connection.close()
    names = [entry.split()[0] for entry in disk.journal]
    assert names == [name for name in vars(Disk) if not name.startswith("_")]
    assert disk.operations == len(names)


def test_a_full_disk_takes_nothing(tmp_path: Path, handle: int) -> None:
    disk = FaultyDisk()
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        disk.append(handle, b"x")
    with pytest.raises(OSError, match="No space"):
        disk.create(tmp_path / "new", b"x")
    with pytest.raises(OSError, match="No space"):
        disk.make_dir(tmp_path / "folder")
    disk.sync(handle)
    disk.full = False
    disk.append(handle, b"x")


def test_a_failed_sync_loses_its_pages_for_good(tmp_path: Path, handle: int) -> None:
    disk = FaultyDisk()
    disk.append(handle, b"one")
    disk.sync(handle)
    disk.append(handle, b"two")
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(handle)
    disk.append(handle, b"three")
    disk.sync(handle)
    assert content(tmp_path) == b"onetwothree"
    disk.lose_unsynced(tmp_path)
    assert content(tmp_path) == b"one\0\0\0three"


def test_a_power_cut_leaves_what_was_synced(tmp_path: Path, handle: int) -> None:
    disk = FaultyDisk()
    disk.append(handle, b"one")
    disk.sync(handle)
    disk.append(handle, b"two")
    disk.create(tmp_path / "kept", b"data")
    disk.create(tmp_path / "empty", b"data", sync=False)
    disk.sync_dir(tmp_path)
    disk.create(tmp_path / "gone", b"data")
    disk.make_dir(tmp_path / "folder" / "inner")
    disk.create(tmp_path / "new", b"new")
    disk.replace(tmp_path / "new", tmp_path / "kept")
    disk.lose_unsynced(tmp_path)
    assert content(tmp_path) == b"one"
    assert (tmp_path / "kept").read_bytes() == b"data"
    assert (tmp_path / "empty").read_bytes() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "kept"]


def test_a_synced_move_is_for_good(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.create(tmp_path / "old", b"old")
    disk.create(tmp_path / "new", b"new")
    disk.replace(tmp_path / "new", tmp_path / "old")
    disk.sync_dir(tmp_path)
    disk.lose_unsynced(tmp_path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("old", b"new")]


def test_what_is_cut_and_synced_is_shorter(tmp_path: Path, handle: int) -> None:
    disk = FaultyDisk()
    disk.append(handle, b"onetwo")
    disk.sync(handle)
    disk.truncate(handle, 3)
    disk.append(handle, b"!")
    disk.lose_unsynced(tmp_path)
    assert content(tmp_path) == b"one"
