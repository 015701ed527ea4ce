"""A disk that fills up or fails: nothing acknowledged is lost, and everybody is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.session.host import Host, until

from threadline.errors import StoreUnavailable
from threadline.harness.base import Turn
from threadline.harness.scripted import Scripted

if TYPE_CHECKING:
    from tests.session.conftest import MakeHost


async def finish(host: Host) -> None:
    host.tools.held = False
    host.tools.release()
    await host.rest()
    host.check()


async def test_a_full_disk_ends_the_turn_and_keeps_the_session(host: Host) -> None:
    await host.send("a1")
    await host.working()
    host.disk.full = True
    with pytest.raises(StoreUnavailable):
        await host.send("a2")
    host.acknowledged.pop("a2", None)
    host.tools.release()
    await host.clock.sleeping(2)
    await host.clock.elapse(3)
    assert b"turn.failed" not in host.log()
    assert host.log().endswith(b"\n")
    host.disk.full = False
    await host.clock.elapse(3)
    await host.rest()
    host.check()
    assert host.ends() == ["store_unavailable"]
    _, admitted = await host.send("a2")
    assert admitted == "started"
    await finish(host)


async def test_nothing_runs_while_its_prompt_cannot_be_recorded(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    host.disk.full = True
    ran = len(host.tools.runs)
    host.tools.release()
    await host.clock.sleeping(2)
    await host.clock.elapse(5)
    assert len(host.tools.runs) == ran
    host.disk.full = False
    host.tools.held = False
    await host.clock.elapse(1)
    await host.rest()
    host.check()
    assert host.ends() == ["store_unavailable", "completed"]


async def test_a_nudge_whose_checkpoint_fails_is_not_steered(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def model(turn: Turn) -> str:
        if turn.prompt.text == "say a1":
            turn.step_started()
            await turn.call_tools([])
            await until(lambda: host.owner().pending)
            nudges = await turn.boundary([])
            with monkeypatch.context() as patch:
                patch.setattr(host.disk, "append", _refuse)
                await turn.confirm(nudges, ["held"])
        return "ok"

    host = await make_host(Scripted(model))
    await host.send("a1")
    await host.send("a2")
    await host.rest()
    host.check()
    assert host.steered() == []
    assert host.prompts() == [["a1"], ["a2"]]


def _refuse(handle: int, data: bytes) -> None:
    raise OSError(28, "No space left on device")


async def test_a_failed_sync_is_recovered_from(host: Host) -> None:
    host.tools.held = False
    await host.send("a1")
    await host.rest()
    host.tools.held = True
    host.disk.failing_syncs = 1
    await host.send("a2")
    await until(lambda: host.core._reopening)
    await host.send("a3")
    await host.clock.sleeping(2)
    await host.clock.elapse(5)
    await finish(host)
    assert host.ends()[-1] == "completed"
    assert host.disk.failing_syncs == 0


async def test_a_sync_that_fails_before_a_write_tool_is_recovered_from(host: Host) -> None:
    """The tool call hears of it first, not the one who syncs in the background."""
    host.tools.writes = {"work"}
    host.tools.held = False
    await host.send("a0")
    await host.rest()
    gate = asyncio.Event()
    synced = host.core.store.sync

    async def sync(lease: object) -> None:
        gate.set()
        await synced(lease)  # type: ignore[arg-type]

    host.core.store.sync = sync  # type: ignore[method-assign]
    await host.send("a1")
    await gate.wait()
    host.disk.failing_syncs = 1
    await until(lambda: not host.core._owners or host.core._reopening or host.owner().at_rest)
    await host.clock.elapse(5)
    await finish(host)
    assert host.ends()[0] == "completed"


async def test_a_host_with_a_full_disk_can_be_shut_down(host: Host) -> None:
    await host.send("a1")
    await host.working()
    host.disk.full = True
    closing = asyncio.create_task(host.close())
    while not closing.done():
        await host.clock.elapse(1)
    host.disk.full = False
    await host.start()
    await finish(host)
    assert host.ends()[0] in ("host_restarted", "host_shutdown")


async def test_an_event_that_cannot_be_written_for_an_unknown_reason_closes_the_session(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its index is taken, so going on would leave a gap; the log alone says where to go on."""
    await host.send("a1")
    await host.working()

    def broken(line: bytes) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(host.core.services, "mask", broken)
    host.tools.release()
    await until(lambda: host.core._reopening)
    monkeypatch.setattr(host.core.services, "mask", lambda line: line)
    await host.clock.sleeping(2)
    await host.clock.elapse(5)
    await finish(host)
    assert host.ends()[-1] == "completed"
