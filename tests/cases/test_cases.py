"""Each case runs by its id: ``pytest tests/cases -k E-12``; another file with ``--cases FILE``."""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases.conftest import NOT_COVERED
from tests.cases.github_world import GitHubWorld
from tests.cases.judges.registry import JUDGES
from tests.cases.served import ServedWorld
from tests.cases.slack_world import SlackWorld
from tests.cases.world import NotCoveredError, World

for _room in Path(__file__).with_name("judges").glob("[!_]*.py"):
    importlib.import_module(f"tests.cases.judges.{_room.stem}")

SERVED: dict[str, type[ServedWorld]] = {"G": GitHubWorld, "S": SlackWorld}

NEEDS_REAL_PARTS = {"E-28"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case, and of each of its variants."""
    path = Path(metafunc.config.getoption("--cases"))
    cases = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
    parameters = []
    for case in cases:
        variants = case.get("variants", [None])
        for number, variant in enumerate(variants):
            name = case["id"] if len(variants) == 1 else f"{case['id']}-{number}"
            marks = [pytest.mark.real] if case["id"] in NEEDS_REAL_PARTS else []
            parameters.append(pytest.param(case, variant, id=name, marks=marks))
    metafunc.parametrize(("case", "variant"), parameters)


@pytest.fixture
async def world(case: dict[str, Any], tmp_path: Path) -> AsyncIterator[World | ServedWorld]:
    """A host that is not started yet, with the services around it that the case needs."""
    root = tmp_path / "state"
    root.mkdir()
    kind = SERVED.get(case["id"].partition("-")[0])
    world = World(root) if kind is None else kind(root)
    yield world
    await world.stop()


async def test_case(
    world: World | ServedWorld,
    case: dict[str, Any],
    variant: Any,
    record_property: Callable[[str, object], None],
) -> None:
    """What the case calls right holds, and so does what is true in every case."""
    judge = JUDGES.get(case["id"])
    if judge is None:
        pytest.skip(f"{NOT_COVERED}nothing here knows what {case['id']} expects")
    try:
        await judge(world, case, variant)
    except NotCoveredError as missing:
        pytest.skip(f"{NOT_COVERED}{missing}")
    if isinstance(world, ServedWorld):
        await world.finish()
    for step in world.not_covered:
        record_property(NOT_COVERED, step)
