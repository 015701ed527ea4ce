"""Hosts that are closed after the test, having leaked nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.session.host import WORK, Host

from threadline.harness.base import Harness
from threadline.store import embedded, ledger

MakeHost = Callable[..., Awaitable[Host]]


@pytest.fixture(autouse=True)
def _unsynced_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real sync proves nothing here, where power only fails in FaultyDisk; it only takes time."""

    def quick(path: Path) -> sqlite3.Connection:
        connection = ledger.connect(path)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    monkeypatch.setattr(embedded, "connect", quick)


@pytest.fixture
async def make_host(tmp_path: Path) -> AsyncIterator[MakeHost]:
    """Return a function that starts hosts on one state root."""
    hosts: list[Host] = []
    before = asyncio.all_tasks()

    async def make(harness: Harness | None = WORK, **given: Any) -> Host:
        host = Host(tmp_path / "state", harness, **given)
        hosts.append(host)
        return await host.start()

    yield make
    for host in hosts:
        host.disk.full = False
        await host.close()
    leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not leaked


@pytest.fixture
async def host(make_host: MakeHost) -> Host:
    """Return a host whose turns call ``work`` twice, which waits until it is released."""
    host = await make_host()
    host.tools.held = True
    return host
