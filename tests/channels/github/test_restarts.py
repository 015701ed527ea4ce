"""A host that dies in the middle: the working folder of a turn that goes on stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.channels.github.world import HOOK, World, served

from threadline.session.slots import Slots
from threadline.testing import Gated
from threadline_github.workspace.underway import under_way


def folder_of(world: World, session_id: str) -> Path:
    record = world.host.agent().store.session(session_id)
    assert record is not None
    return Path(str(record.cwd))


def prepared(world: World, session_id: str) -> bool:
    return world.host.agent().core.prepared(session_id)


async def test_a_turn_that_goes_on_after_a_restart_keeps_its_files(tmp_path: Path) -> None:
    harness = Gated(calls=1, hold=["call"])
    async with served(harness, worktree=True, on=["opened", "mention"]) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        dev = world.github.user("dev-one")
        pull = dev.open_pull(title="Add retry", files={"a.py": ("a = 1\n", "a = 2\n")})
        await harness.gates["call"].reached()
        (session,) = world.host.sessions()
        folder = folder_of(world, session.id)
        (folder / "half-done.py").write_text("b = 1\n")
        dev.push(pull, files={"a.py": ("a = 1\n", "a = 3\n")})
        world.github.user("dev-two").comment(pull, "@agent-fixture mind the tests")
        await world.github.settled()
        await world.host.until(lambda: world.host.agent().core.prepared(session.id))
        await world.host.crash()
        world.github.app.webhook_url = world.host.url + HOOK
        await harness.gates["call"].reached(2)
        await world.host.until(lambda: world.host.agent().core.prepared(session.id))
        assert (folder / "half-done.py").exists()
        assert (folder / "a.py").read_text() == "a = 2\n"
        harness.release()
        await world.host.session(session.id).rest()


async def test_also_one_that_waits_for_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = [2]
    monkeypatch.setattr("threadline.host.agent.Slots", lambda _: Slots(slots[0]))
    harness = Gated(calls=1, hold=["call"])
    async with served(harness, worktree=True, on=["opened", "mention"]) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        dev, turns, folders = world.github.user("dev-one"), [], []
        for number in (1, 2):
            pull = dev.open_pull(
                title="Add retry", branch=f"b{number}", files={"a.py": ("a = 1\n", "a = 2\n")}
            )
            await harness.gates["call"].reached(number)
            turns.append(world.session(f"pr:octo-fixture/widget#{pull.number}"))
            folders.append(folder_of(world, turns[-1].id))
            (folders[-1] / "half-done.py").write_text("b = 1\n")
            dev.push(pull, files={"a.py": ("a = 1\n", "a = 3\n")})
            world.github.user("dev-two").comment(pull, "@agent-fixture mind the tests")
        await world.github.settled()
        await world.host.until(lambda: all(prepared(world, one.id) for one in turns))
        slots[0] = 1
        await world.host.crash()
        world.github.app.webhook_url = world.host.url + HOOK
        await harness.gates["call"].reached(3)
        await world.host.until(lambda: all(prepared(world, one.id) for one in turns))
        for folder in folders:
            assert (folder / "half-done.py").exists()
            assert (folder / "a.py").read_text() == "a = 2\n"
        harness.release()
        for turn in turns:
            await turn.rest()


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], None),
        ([("message.received", {})], None),
        ([("session.started", {})], False),
        ([("turn.started", {})], True),
        ([("turn.started", {}), ("turn.completed", {}), ("session.waiting", {})], False),
        ([("turn.failed", {"status": "interrupted", "code": "host_restarted"})], True),
        ([("turn.failed", {"status": "interrupted", "code": "host_shutdown"})], True),
        ([("turn.failed", {"status": "interrupted", "code": "resume_limit"})], False),
        (
            [("turn.failed", {"status": "interrupted", "code": "host_restarted", "asks": True})],
            False,
        ),
        ([("turn.failed", {"status": "cancelled", "code": "stopped"})], False),
        ([("session.waiting", {}), ("turn.started", {}), ("action.result", {})], True),
    ],
)
def test_what_a_log_says_of_a_turn(events: Any, expected: bool | None) -> None:
    assert under_way({"type": type_, "data": data} for type_, data in events) is expected
