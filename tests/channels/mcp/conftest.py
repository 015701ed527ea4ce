"""A host with an agent that a test steers, and clients of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.host.serving import Gate, Served, agent, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def served(tmp_path: Path, gate: Gate) -> AsyncIterator[Served]:
    async with serve(tmp_path, agent(gate, description="Knows the on-call rota.")) as running:
        yield running
