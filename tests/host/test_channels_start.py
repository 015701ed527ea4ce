"""Channels that cannot start say so all at once, and leave nothing open."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.host.serving import agent

from threadline import Channel, Context
from threadline.errors import ProjectError
from threadline.host.app import Host, Options
from threadline.project import Project


class Needy(Channel):
    """Misses a variable, or not; remembers its life."""

    def __init__(self, missing: str | None, life: list[str]) -> None:
        super().__init__()
        self.missing = missing
        self.life = life

    async def on_start(self, ctx: Context) -> None:
        self.life.append(f"{self.id} starts")
        if self.missing is not None:
            raise ProjectError([f"{self.missing} is not set."])

    async def on_stop(self, ctx: Context) -> None:
        self.life.append(f"{self.id} stops")


async def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    life: list[str] = []
    channels = {
        "a": Needy("A_TOKEN", life),
        "b": Needy(None, life),
        "c": Needy("C_SECRET", life),
    }
    project = Project.of(agent(channels=channels), slug="bot")
    host = Host([project], Options(mode="single", state_root=tmp_path))
    with pytest.raises(ProjectError) as raised:
        await host.start()
    assert raised.value.problems == ["A_TOKEN is not set.", "C_SECRET is not set."]
    assert sorted(life) == [f"{name} {what}" for name in "abc" for what in ("starts", "stops")]
