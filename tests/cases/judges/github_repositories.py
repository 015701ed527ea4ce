"""GitHub repositories: their other owners, and their names in other letter case."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from structlog.testing import capture_logs
from tests.cases.github_world import BOT, PR, GitHubWorld
from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.told import Answer, Tool

__all__: list[str] = []

Step = Mapping[str, Any]
ORG = "new-fixture-org"


@judge("G-21")
async def access_is_decided_anew(world: GitHubWorld, case: Case, _: Any) -> None:
    """A transferred repository keeps its sessions; whoever acts there is whom its new owner lets.

    Nothing is done any more with what the old owner's installation could do.
    """
    (step,) = steps_of(case)
    for code in (False, True):
        async with world.fresh(code=code) as fresh:
            await _first_turn(fresh)
            before = await _transferred(fresh, step)
            await fresh.push("b" * 40)
            await _asked(fresh, "@agent-fixture two")
            _went_on(fresh, before, "one", "@agent-fixture two")
    await _not_installed(world, step)
    await _in_the_middle_of_a_turn(world, step)
    await _rights_of_before(world, step)
    await _lists(world, step)
    await _told_too_late(world, step)


async def _first_turn(world: GitHubWorld, **options: Any) -> None:
    """Have a conversation before the transfer."""
    world.harness.tell(Answer("one"))
    await world.start(**options)
    await _asked(world, "@agent-fixture one")
    assert world.session(PR).replies == ["one"]
    assert _installations(world, 0) == {4401}


async def _asked(world: GitHubWorld, text: str) -> None:
    world.github.user("dev-one").comment(world.pull, text)
    await world.github.settled()
    await world.rest()


async def _transferred(world: GitHubWorld, step: Step, *, installed: bool = True) -> int:
    """Transfer the repository and deliver the event; return how many calls there were by then."""
    widget = world.widget
    async with world.quietly():
        world.github.transfer(widget, ORG)
        if installed:
            world.github.install(ORG, identity=4402)
    if world.code:
        widget.clone_url = world.git.serve(f"{ORG}/widget", world.bare)
    before = len(world.github.calls())
    assert (await world.post(step)).status == 200
    return before


def _installations(world: GitHubWorld, before: int) -> set[int]:
    """Return the installations that acted in calls behind so many, and in fetches at all."""
    owners = {one.value: one.installation for one in world.github.tokens}
    later = world.github.calls()[before:]
    used = {call.token for call in later}
    used |= {one.token for one in world.git.fetches if before == 0 or ORG in one.name}
    found = {one.id for token in used if (one := owners.get(token or "")) is not None}
    asked = (call.path.split("/") for call in later if call.path.endswith("/access_tokens"))
    return found | {int(path[3]) for path in asked}


def _went_on(world: GitHubWorld, before: int, *replies: str) -> None:
    """Check that the conversation went on, in the name of the new owner's installation."""
    assert len(world.sessions()) == 1
    assert world.session(PR).replies == list(replies)
    assert world.words() == list(replies)
    assert _installations(world, before) == {4402}
    fetched = [one for one in world.git.fetches if ORG in one.name]
    assert bool(fetched) == world.code


async def _not_installed(world: GitHubWorld, step: Step) -> None:
    """Without the App there is no turn, and the reason is recorded; installed, all goes on."""
    async with world.fresh() as fresh:
        await _first_turn(fresh)
        before = await _transferred(fresh, step, installed=False)
        types = fresh.session(PR).types
        heard = _heard(fresh, owner=ORG, installation=None)
        with capture_logs() as logs:
            sent = fresh.github.send("issue_comment", heard)
            await fresh.github.until(lambda: sent.done)
        assert sent.status_code == 200
        assert "not installed" in sent.answer
        assert [one for one in logs if "not installed" in str(one.get("reason"))]
        await fresh.rest()
        await fresh.pass_(400)
        assert fresh.session(PR).types == types
        assert fresh.words() == ["one"]
        assert _installations(fresh, before) == set()
        fresh.github.install(ORG, identity=4402)
        await _asked(fresh, "@agent-fixture two")
        _went_on(fresh, before, "one", "@agent-fixture two")


def _heard(world: GitHubWorld, *, owner: str, installation: int | None) -> dict[str, Any]:
    """Return a webhook of another comment, as it would be in the time of an owner."""
    payload = copy.deepcopy(world.github.deliveries("issue_comment")[0].payload)
    payload["comment"]["id"] += 1
    payload["comment"]["body"] = "@agent-fixture late"
    payload["repository"]["owner"]["login"] = owner
    payload["repository"]["full_name"] = f"{owner}/widget"
    payload.pop("installation", None)
    return payload if installation is None else payload | {"installation": {"id": installation}}


async def _in_the_middle_of_a_turn(world: GitHubWorld, step: Step) -> None:
    """The answer of a turn that began before is posted in the new owner's name, or waits."""
    for installed, working in itertools.product((True, False), repeat=2):
        async with world.fresh() as fresh:
            await _first_turn(fresh, working=working)
            fresh.harness.waits = True
            fresh.github.user("dev-one").comment(fresh.pull, "@agent-fixture two")
            await fresh.until(lambda: fresh.harness.begun == 2, "the turn")
            if working:
                await fresh.within(60, lambda: len(fresh.said()) == 2, "the comment on it")
            await fresh.github.settled()
            before = await _transferred(fresh, step, installed=installed)
            fresh.harness.free()
            await fresh.until(lambda: len(fresh.events("turn.completed")) == 2, "its end")
            await fresh.pass_(60)
            assert 4401 not in _installations(fresh, before)
            if installed:
                await fresh.rest()
            assert ("@agent-fixture two" in fresh.words()) is installed


async def _rights_of_before(world: GitHubWorld, step: Step) -> None:
    """What somebody might do under the old owner counts for nothing."""
    async with world.fresh() as fresh:
        fresh.harness.tell(Tool("deploy", {"service": "shop"}))
        await _first_turn(fresh)
        assert fresh.deployed == ["shop"]
        await _transferred(fresh, step)
        fresh.github.permit("dev-one", "read")
        fresh.harness.tell(Tool("deploy", {"service": "shop"}), Answer("two"))
        await _asked(fresh, "@agent-fixture two")
        assert fresh.words() == ["one", "two"]
        assert fresh.deployed == ["shop"]


async def _lists(world: GitHubWorld, step: Step) -> None:
    """A list of repositories that names the old owner's does not name the new owner's."""
    named = {
        False: ["Octo-Fixture/widget"],
        True: ["octo-fixture/widget", "New-Fixture-Org/widget"],
    }
    for heard, repositories in named.items():
        async with world.fresh() as fresh:
            await _first_turn(fresh, repositories=repositories)
            before = await _transferred(fresh, step)
            await _asked(fresh, "@agent-fixture two")
            assert len(fresh.session(PR).replies) == (2 if heard else 1)
            assert _installations(fresh, before) == ({4402} if heard else set())


async def _told_too_late(world: GitHubWorld, step: Step) -> None:
    """What comes behind the transfer, but is of before, brings the old owner's rights not back."""
    async with world.fresh() as fresh:
        await _first_turn(fresh)
        before = await _transferred(fresh, step)
        late = _heard(fresh, owner="octo-fixture", installation=4401)
        sent = fresh.github.send("issue_comment", late)
        await fresh.github.until(lambda: sent.done)
        await fresh.rest()
        assert sent.ok
        assert 4401 not in _installations(fresh, before)
        await _asked(fresh, "@agent-fixture two")
        assert "@agent-fixture two" in fresh.words()
        assert 4401 not in _installations(fresh, before)


@judge("G-22")
async def letter_case_splits_nothing(world: GitHubWorld, case: Case, _: Any) -> None:
    """Owners and names in any letter case are one session; branches and paths stay as they are."""
    upper, lower = steps_of(case)
    for named in ("Octo-Fixture/Widget", "octo-fixture/widget", "OCTO-FIXTURE/WIDGET"):
        for order in ((upper, lower), (lower, upper)):
            async with world.fresh() as fresh:
                await fresh.start(repositories=[named])
                for number, step in enumerate(order):
                    assert (await fresh.play({**step, "at_s": 30 * number})) is not None
                    await fresh.rest()
                (session,) = fresh.sessions()
                assert fresh.session(PR).id == session.id
                assert fresh.named("pr:Octo-Fixture/Widget#7") is None
                await _continued(fresh, session.id)
                assert len(fresh.sessions()) == 1
                words = sorted(fresh.words())
                assert words == ["@agent-fixture x", "@agent-fixture y", "over HTTP"]
    await _paths(world, upper)


async def _continued(world: GitHubWorld, session_id: str) -> None:
    """Go on over the host's own API, with the token in any letter case, but with no other."""
    for token, status in (
        ("pr:Octo-Fixture/WIDGET#7", 200),
        ("pr:octo-fixture/widget#8", 409),
        ("pr:octo-fixture/gadget#7", 409),
    ):
        answer = await world.http(
            {
                "method": "POST",
                "path": f"/v1/session/{session_id}",
                "body": {"message": "over HTTP", "continuationToken": token},
            }
        )
        assert answer.status == status, answer.text
        await world.rest()
        assert world.session(PR).id == session_id


async def _paths(world: GitHubWorld, step: Step) -> None:
    """Two paths, and two branches, that differ by letter case alone are two."""
    async with world.fresh(code=True) as fresh:
        fresh.files = {"Src/Up.py": ("a\n", "a\nB\n"), "src/up.py": ("a\n", "a\nb\n")}
        await fresh.start()
        other = fresh.github.user("dev-two")
        async with fresh.quietly():
            for branch in ("Feature/X", "feature/x"):
                other.open_pull(branch=branch, files={"x.txt": (None, f"{branch}\n")})
        findings = [{"path": path, "line": 2, "body": path} for path in fresh.files]
        review = {"body": "Two files.", "comments": findings}
        fresh.harness.tell(
            Tool("shell", {"command": "cat Src/Up.py src/up.py; git branch -r"}),
            Tool("review_pull_request", review),
            Answer("done"),
        )
        await fresh.post(step)
        await fresh.rest()
        (listed,) = fresh.results("shell")
        assert listed["output"].startswith("a\nB\na\nb\n")
        mine = [one for one in fresh.github.review_comments(fresh.pull) if one.author.login == BOT]
        assert sorted((one.path, one.line) for one in mine) == [("Src/Up.py", 2), ("src/up.py", 2)]
        for branch in ("Feature/X", "feature/x"):
            assert f"origin/{branch}\n" in listed["output"]
