"""A crash between every pair of writes, and a power cut there: every law holds afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.session.host import Host, until

from threadline.errors import StoreUnavailable
from threadline.store import writer
from threadline.testing.faults import Crashed, FaultyDisk

if TYPE_CHECKING:
    import pytest


async def scenario(host: Host) -> None:
    """Everything that can happen to a session, one after the other."""
    tools = host.tools
    tools.held = True
    await host.send("a1")
    await host.working()
    await host.send("a2")  # steered
    tools.release()
    await host.working()
    await host.send("a3")  # steered at the second boundary
    tools.release()
    await host.rest()

    await host.send("a4")
    await host.working()
    await host.send("a5", admission="preempt")
    await host.working()
    await host.send("a6")
    await host.stop()  # a6 runs afterwards
    await host.working()
    await host.send("a7")
    await host.stop(clear_pending=True)
    tools.release()
    await host.rest()

    await host.send("t1", "t", mode="task")
    await host.send("d1", "d")
    await host.working(2)
    await host.send("d2", "d")
    await host.core.delete(host.session_id("d"))
    await until(lambda: tools.working == 1, host.disk)
    tools.held = False
    tools.release()
    await host.rest()

    tools.held = True
    await host.send("e1", "e")
    await host.working()
    await host.close()
    if host.disk.dead:
        raise Crashed


async def run(root: Path, crash_at: int | None, when: str, *, power_cut: bool = False) -> Host:
    """Run the scenario on a disk that dies; return what the next process made of it, at rest."""
    disk = FaultyDisk(crash_at, when)  # type: ignore[arg-type]
    host = Host(root, disk=disk)
    try:
        await host.start()
        await scenario(host)
    except (Crashed, StoreUnavailable):
        assert disk.dead
    if disk.dead:
        await host.kill(power_cut=power_cut)
    disk.revive()
    host.tools.held = False
    await host.start()
    await host.rest()
    return host


async def settle(host: Host) -> None:
    """Check the laws, and that another restart changes nothing, nor a power cut at rest."""
    host.check()
    await host.close()
    host.check_closed()
    logs = host.logs()
    await host.start()
    await host.rest()
    host.check()
    await host.kill(power_cut=True)
    await host.start()
    await host.rest()
    host.check()
    assert host.logs() == logs
    await host.close()


async def journal(root: Path) -> list[str]:
    """Return the operations of the scenario without a crash."""
    disk = FaultyDisk()
    host = Host(root, disk=disk)
    await host.start()
    await scenario(host)
    operations = list(disk.journal)
    host.tools.held = False
    await host.start()
    await host.rest()
    await settle(host)
    return operations


async def test_a_process_may_die_between_any_two_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LAZY_SECONDS", 0.0)
    operations = await journal(tmp_path / "whole")
    for number in range(1, len(operations) + 10):
        host = await run(tmp_path / f"b{number}", number, "before")
        await settle(host)


async def test_a_process_may_die_in_the_middle_of_any_write(tmp_path: Path) -> None:
    operations = await journal(tmp_path / "whole")
    for number, operation in enumerate(operations, 1):
        if operation.startswith(("append", "create")):
            host = await run(tmp_path / f"t{number}", number, "torn")
            await settle(host)


async def test_the_power_may_fail_between_any_two_writes(tmp_path: Path) -> None:
    operations = await journal(tmp_path / "whole")
    for number in range(1, len(operations) + 1):
        host = await run(tmp_path / f"p{number}", number, "after", power_cut=True)
        await settle(host)
