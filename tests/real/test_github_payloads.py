"""GitHub's example payloads, all of them, signed and delivered; ``make test-real`` installs them.

https://github.com/octokit/webhooks
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.channels.github.world import World, deliver, served

from threadline_github.inbound.decide import DEFAULT_ON, TRIGGERS

pytestmark = [pytest.mark.real]

HERE = Path(__file__).parent / "github"
CORPUS = "@octokit/webhooks-examples/api.github.com/index.json"
INSTALLATION = 1
PULL = "pr:codertocat/hello-world#2"
Payload = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def payloads() -> list[Payload]:
    """Each event's name and payload, in the order of the collection."""
    done = subprocess.run(
        [HERE / "install.sh"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    events = json.loads((Path(done.stdout.strip()) / CORPUS).read_bytes())
    return [(event["name"], example) for event in events for example in event["examples"]]


@pytest.mark.parametrize(
    ("on", "more"),
    [(DEFAULT_ON, {}), (TRIGGERS, {"closed": 2, "comment": 3})],
    ids=["usual", "all"],
)
async def test_all_are_accepted_and_start_what_they_should(
    payloads: list[Payload], on: frozenset[str], more: dict[str, int]
) -> None:
    assert len(payloads) == 329
    with capture_logs() as logs:
        async with served(on=on) as world:
            asked = await _deliver_all(world, payloads)
            usual = {"opened": 4, "ready_for_review": 3, "reopened": 2, "synchronize": 1}
            assert asked == Counter({**usual, **more})
            assert await _conversations(world) == {PULL}
            await _is_healthy(world)
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


async def _deliver_all(world: World, payloads: list[Payload]) -> Counter[str]:
    """Deliver all; return what was accepted as a message, by what triggered it."""
    _begin(world)
    for number, (event, payload) in enumerate(payloads, 1):
        answer = await deliver(world, event, payload, number)
        assert 200 <= answer.status < 300, (event, payload.get("action"), answer.body)
        assert answer.json()["ok"] is True
    await world.host.rest()
    return Counter(one.delivery.metadata["trigger"] for one in world.host.witness.accepted)


def _begin(world: World) -> None:
    """Have the pull request that the payloads tell of."""
    owner = world.github.add_user("Codertocat", 21031067)
    repository = world.github.add_repository("Codertocat/Hello-World", 186853002)
    world.github.install(owner, identity=INSTALLATION)
    world.github.user("Codertocat").open_pull(repository, number=2, tell=False)


async def _conversations(world: World) -> set[str]:
    """Return the tokens of all sessions; none has a law broken."""
    for session in world.host.sessions():
        session.check_laws()
    store = world.host.agent().store
    return {str(store.token(session.id, "github")) for session in world.host.sessions()}


async def _is_healthy(world: World) -> None:
    """A person is answered as ever."""
    assert (await world.host.get("/readyz")).status == 200
    pull = world.github.user("dev-two").open_pull(tell=False)
    world.github.user("dev-one").comment(pull, "@agent-fixture are you there?")
    await world.github.until(lambda: len(world.github.comments(pull)) == 2)
    await world.host.rest()
