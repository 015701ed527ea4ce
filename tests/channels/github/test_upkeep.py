"""What nobody needs any more goes from the disk, though no delivery says so."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.channels.github.world import World, served

from threadline import Context, TryAgain
from threadline.testing import Gated
from threadline_github.testing import Pull
from threadline_github.workspace.upkeep import Upkeep
from threadline_github.workspace.worktrees import Worktrees

PULL = "/repos/octo-fixture/widget/pulls/*"


@dataclass
class House:
    """A pull request whose code is on the disk."""

    world: World
    harness: Gated
    pull: Pull
    folder: Path

    @property
    def token(self) -> str:
        return f"pr:octo-fixture/widget#{self.pull.number}"

    def age(self) -> None:
        """Let it be long ago that anything was touched."""
        repository = self.folder.parent
        for path in (self.folder, *repository.glob("*.json"), repository / "mirror.git/config"):
            os.utime(path, (0, 0))

    async def round(self) -> None:
        """Look after the disk once."""
        runtime = self.world.host.agent().runtimes["github"]
        ctx = Context(runtime)
        await Upkeep(self.world.channel.hub, Worktrees(ctx.folder)).run_once(ctx)


@asynccontextmanager
async def house(tmp_path: Path) -> AsyncIterator[House]:
    harness = Gated(hold=["answer"])
    async with served(harness, worktree=True) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        dev = world.github.user("dev-one")
        pull = dev.open_pull(title="Add retry", files={"a.py": ("a = 1\n", "a = 2\n")})
        await harness.gates["answer"].reached()
        (session,) = world.host.sessions()
        record = world.host.agent().store.session(session.id)
        assert record is not None
        yield House(world, harness, pull, Path(str(record.cwd)))


async def closed_unseen(one: House) -> None:
    one.world.github.webhooks.lose(1, when=lambda delivery: delivery.action == "closed")
    one.world.github.user("dev-one").close(one.pull)
    await one.world.github.settled()


async def test_a_pull_request_that_was_closed_unseen(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        one.harness.release()
        await one.world.session(one.token).rest()
        await closed_unseen(one)
        await one.round()
        assert one.folder.is_dir()
        one.age()
        await one.round()
        assert not one.folder.exists()
        assert not one.folder.with_name(f"{one.folder.name}.json").exists()


async def test_what_is_open_or_runs_stays(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        one.age()
        before = len(one.world.github.calls("GET", PULL))
        await closed_unseen(one)
        await one.round()
        assert len(one.world.github.calls("GET", PULL)) == before
        assert one.folder.is_dir()
        one.world.github.user("dev-one").reopen(one.pull)
        await one.world.github.settled()
        one.harness.release()
        await one.world.session(one.token).rest()
        one.age()
        await one.round()
        assert one.folder.is_dir()


async def test_a_session_that_was_deleted(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        one.harness.release()
        session = one.world.session(one.token)
        await session.rest()
        await one.world.host.agent().core.delete(session.id)
        one.age()
        await one.round()
        assert not one.folder.exists()


async def test_while_github_is_away_nothing_goes(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        one.harness.release()
        await one.world.session(one.token).rest()
        await closed_unseen(one)
        one.age()
        one.world.github.fail("GET", PULL, 502, times=None)
        with pytest.raises(TryAgain):
            await one.round()
        assert one.folder.is_dir()


async def test_a_mirror_that_nobody_uses(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        one.harness.release()
        await one.world.session(one.token).rest()
        one.world.github.user("dev-one").close(one.pull)
        await one.world.github.settled()
        await one.world.github.until(lambda: not one.folder.exists())
        await one.round()
        mirror = one.folder.parent / "mirror.git"
        assert mirror.is_dir()
        os.utime(mirror / "config", (0, 0))
        await one.round()
        assert not one.folder.parent.exists()
