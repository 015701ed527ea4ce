"""A host that dies in the middle: the working folder of a turn that goes on stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.channels.github.world import HOOK, served

from threadline.session.slots import Slots
from threadline.testing import Gated


async def test_a_turn_that_goes_on_after_a_restart_keeps_its_files(tmp_path: Path) -> None:
    harness = Gated(calls=1, hold=["call"])
    async with served(harness, worktree=True, on=["opened", "mention"]) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        dev = world.github.user("dev-one")
        pull = dev.open_pull(title="Add retry", files={"a.py": ("a = 1\n", "a = 2\n")})
        await harness.gates["call"].reached()
        (session,) = world.host.sessions()
        folder = Path(world.host.agent().store.session(session.id).cwd)
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
            folders.append(Path(world.host.agent().store.session(turns[-1].id).cwd))
            (folders[-1] / "half-done.py").write_text("b = 1\n")
            dev.push(pull, files={"a.py": ("a = 1\n", "a = 3\n")})
            world.github.user("dev-two").comment(pull, "@agent-fixture mind the tests")
        await world.github.settled()
        for turn in turns:
            await world.host.until(lambda one=turn: world.host.agent().core.prepared(one.id))
        slots[0] = 1
        await world.host.crash()
        world.github.app.webhook_url = world.host.url + HOOK
        await harness.gates["call"].reached(3)
        for turn in turns:
            await world.host.until(lambda one=turn: world.host.agent().core.prepared(one.id))
        for folder in folders:
            assert (folder / "half-done.py").exists()
            assert (folder / "a.py").read_text() == "a = 2\n"
        harness.release()
        for turn in turns:
            await turn.rest()
