"""A disk that is slow, or dies at the next operation of a name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from threadline.testing import Crashed, FaultyDisk


def test_a_delay_is_taken_by_every_operation(tmp_path: Path) -> None:
    disk = FaultyDisk(delay=0.02)
    began = time.monotonic()
    disk.make_dir(tmp_path / "a")
    disk.create(tmp_path / "a" / "b", b"x")
    assert time.monotonic() - began >= 0.04


def test_a_delay_may_be_of_some_operations_only(tmp_path: Path) -> None:
    disk = FaultyDisk(delay=60.0, slow={"commit"})
    disk.create(tmp_path / "b", b"x")
    disk.delay, disk.slow = 0.0, {"create"}
    disk.create(tmp_path / "c", b"x")
    assert (tmp_path / "c").read_bytes() == b"x"


def test_it_dies_at_the_next_operation_of_a_name(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.crash_next("create")
    disk.make_dir(tmp_path / "a")
    with pytest.raises(Crashed):
        disk.create(tmp_path / "b", b"x")
    assert not (tmp_path / "b").exists()
    with pytest.raises(Crashed):
        disk.make_dir(tmp_path / "c")
    disk.revive()
    disk.create(tmp_path / "b", b"x")


def test_it_dies_after_or_in_the_middle_too(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.crash_next("create", when="after")
    with pytest.raises(Crashed):
        disk.create(tmp_path / "b", b"text")
    disk.revive()
    disk.crash_next("create", when="torn")
    with pytest.raises(Crashed):
        disk.create(tmp_path / "c", b"text")
    assert ((tmp_path / "b").read_bytes(), (tmp_path / "c").read_bytes()) == (b"text", b"te")
