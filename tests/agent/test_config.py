"""What an agent's configuration accepts."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from threadline.agent import config
from threadline.agent.config import Agent, Local, is_channel_id
from threadline.agent.tools import tool
from threadline.errors import UnsupportedOption
from threadline.harness.base import Capabilities, Turn, TurnResult


class Echo:
    name = "echo"
    model = None
    capabilities = Capabilities()

    async def run(self, turn: Turn) -> TurnResult:
        return TurnResult(turn.prompt.text)


def test_everything_is_optional() -> None:
    agent = Agent()
    assert agent.harness is None
    assert agent.auth is None
    assert agent.max_running_turns is None
    assert agent.on_restart == "resume"
    assert agent.retention is None
    assert (agent.settle_seconds, agent.drain_seconds) == (10.0, 10.0)
    assert agent.blob_threshold == 256 * 1024
    assert list(agent.tools) == []
    assert dict(agent.channels) == {}


def test_every_option_at_once() -> None:
    channel = SimpleNamespace(routes=[], auth=None)
    agent = Agent(
        name="On-call helper",
        description="Helps.",
        harness=Echo(),
        instructions="Be brief.",
        auth=[lambda request: None],
        local=Local(cwd="/tmp"),
        max_running_turns=8,
        on_restart="fail",
        retention=timedelta(days=30),
        settle_seconds=0,
        drain_seconds=1.5,
        blob_threshold=1,
        tools=[tool(lambda: None)],
        channels={"alert_watch": channel},
    )
    assert agent.name == "On-call helper"
    assert agent.channels["alert_watch"] is channel


def test_an_empty_chain_is_a_chain() -> None:
    assert Agent(auth=[]).auth == []


def test_experiments_are_refused() -> None:
    with pytest.raises(UnsupportedOption, match="remove it"):
        Agent(experiments={"prompt": ["a", "b"]})


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"name": ""}, "Agent.name"),
        ({"name": 3}, "Agent.name"),
        ({"description": " "}, "Agent.description"),
        ({"instructions": ""}, "Agent.instructions"),
        ({"harness": "anthropic:claude"}, "PydanticAI"),
        ({"harness": Echo}, "the class Echo"),
        ({"auth": lambda request: None}, "a list of policies"),
        ({"auth": ["bearer"]}, "a list of policies"),
        ({"auth": "bearer"}, "a list of policies"),
        ({"local": "/tmp"}, "Local"),
        ({"max_running_turns": 0}, "max_running_turns"),
        ({"max_running_turns": True}, "max_running_turns"),
        ({"max_running_turns": 2.0}, "max_running_turns"),
        ({"on_restart": "retry"}, "'resume' or 'fail'"),
        ({"retention": timedelta(0)}, "retention"),
        ({"retention": 30}, "timedelta"),
        ({"settle_seconds": -1}, "settle_seconds"),
        ({"settle_seconds": float("nan")}, "settle_seconds"),
        ({"drain_seconds": "10"}, "drain_seconds"),
        ({"drain_seconds": True}, "drain_seconds"),
        ({"blob_threshold": 0}, "blob_threshold"),
        ({"tools": "search"}, "a list of tools"),
        ({"tools": tool(lambda: None)}, "a list of tools"),
        ({"tools": [lambda: None]}, "@tool"),
        ({"tools": [tool(name="a")(lambda: 1), tool(name="a")(lambda: 2)]}, "two tools"),
        ({"channels": []}, "map a channel's id"),
        ({"channels": {"Slack!": SimpleNamespace(routes=[])}}, "cannot name a channel"),
        ({"channels": {"slack": 3}}, "must be a Channel"),
    ],
)
def test_values_that_cannot_be(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Agent(**options)


def test_a_cwd_must_be_a_path() -> None:
    with pytest.raises(ValueError, match=r"Local\.cwd"):
        Local(cwd=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("slack", True),
        ("alert_watch", True),
        ("gh-2", True),
        ("", False),
        ("A", False),
        ("_a", False),
    ],
)
def test_channel_ids(text: str, fits: bool) -> None:
    assert is_channel_id(text) is fits


def test_public_names_are_sorted() -> None:
    assert config.__all__ == sorted(config.__all__)
