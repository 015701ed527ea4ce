"""A call that holds up the event loop is interrupted, and its result says what to do."""

from __future__ import annotations

import pytest
from tests.agent.conftest import Journal, Run

from threadline import tool
from threadline.agent import watchdog


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "BLOCK_SECONDS", 0.2)


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_loop_without_end_is_interrupted(run: Run, journal: Journal, effect: str) -> None:
    @tool(effect=effect)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    async def spin() -> None:
        """Spin."""
        while True:
            pass

    result = await run(spin)
    assert result.is_error
    assert result.code == "tool_blocked"
    assert "Write it as a plain def" in result.output
    assert ("may have taken effect" in result.output) == (effect == "write")
    assert "tool_blocks_loop" in journal.events
