"""GitHub outbound: tokens that expire, and limits that are waited for; an answer is there once."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from structlog.testing import capture_logs
from tests.cases.github_world import COMMENTS, GitHubWorld
from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.told import Answer, Tool

from threadline_github.testing import Call

__all__: list[str] = []

Step = Mapping[str, Any]
MARGIN = timedelta(minutes=5)


@judge("G-15")
async def tokens_are_renewed(world: GitHubWorld, case: Case, _: Any) -> None:
    """A token is renewed in time, and once more when it is refused; none is ever written down."""
    post, stub, reply = steps_of(case)
    for code in (False, True):
        for working in (False, True):
            async with world.fresh(code=code) as fresh:
                with capture_logs() as logs:
                    await _long_turn(fresh, post, working=working)
                    await fresh.at(stub["at_s"], stride=30)
                    await fresh.play(stub)
                    await fresh.at(reply["at_s"], stride=30)
                    await fresh.play(reply)
                    await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                    await fresh.within(60, lambda: fresh.words() == ["done"], "the answer")
                    await fresh.rest()
                    await _another_turn(fresh)
                assert fresh.words() == ["done", "more"]
                _in_time(fresh)
                _kept_nowhere(fresh, logs)
    await _shortly_before_its_end(world, post, reply)
    await _refused_at_once(world, post, reply)
    await _refused_for_good(world, post, reply)


async def _long_turn(world: GitHubWorld, post: Step, **options: Any) -> None:
    world.harness.waits = True
    await world.start(**options)
    answer = await world.play(post)
    assert answer is not None
    assert answer.status == 202
    await world.until(lambda: world.harness.begun == 1, "the turn")
    assert len(world.github.tokens) == 1


async def _another_turn(world: GitHubWorld) -> None:
    """Have a second turn, on a commit that is fetched with a token that is good now."""
    fetched = len(world.git.fetches)
    sha = await world.push("b" * 40, {"up.py": "# more\n"})
    world.harness.tell(
        Tool("shell", {"command": "cat up.py; git remote -v; git config --list; env"}),
        Answer("more"),
    )
    world.github.user("dev-one").comment(world.pull, "@agent-fixture more")
    await world.until(lambda: len(world.events("turn.completed")) == 2, "the second turn")
    await world.rest()
    if world.code:
        (seen,) = (one["output"] for one in world.results("shell"))
        assert seen.startswith("# more\n")
        assert "x-access-token" not in seen
        later = world.git.fetches[fetched:]
        assert later
        assert {one.status for one in later if one.token is not None} == {200}
    assert world.pull.head == sha


def _in_time(world: GitHubWorld) -> None:
    """Check that no call, and no fetch, was made with a token that had little time left."""
    owners = {one.value: one for one in world.github.tokens}
    began = world.clock.now() - timedelta(seconds=world.now_s)
    uses = [(call.token, call.at) for call in world.github.calls()]
    uses += [(fetch.token, fetch.at) for fetch in world.git.fetches]
    assert len(owners) >= 2
    for token, at in uses:
        known = owners.get(token or "")
        if known is not None:
            assert known.expires_at is not None
            assert known.expires_at - (began + timedelta(seconds=at)) >= MARGIN


def _kept_nowhere(world: GitHubWorld, logs: list[Any]) -> None:
    """Check that no token is in what is logged, nor in any file of the host."""
    texts = [str(logs).encode(), *_files(world)]
    assert len(texts) > 3
    for token in world.github.tokens:
        basic = base64.b64encode(f"x-access-token:{token.value}".encode())
        for secret in (token.value.encode(), basic):
            assert not any(secret in text for text in texts), "a token is written down"


def _files(world: GitHubWorld) -> Iterator[bytes]:
    for path in world.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.read_bytes()


async def _shortly_before_its_end(world: GitHubWorld, post: Step, reply: Step) -> None:
    """A token that is good for a few minutes more is not used any more."""
    for code in (False, True):
        async with world.fresh(code=code) as fresh:
            await _long_turn(fresh, post, working=False)
            await fresh.at(3600 - 120, stride=30)
            await fresh.play({**reply, "at_s": fresh.now_s})
            await fresh.within(60, lambda: fresh.words() == ["done"], "the answer")
            await _another_turn(fresh)
            assert fresh.now_s < 3600
            _in_time(fresh)


async def _refused_at_once(world: GitHubWorld, post: Step, reply: Step) -> None:
    """A token that is revoked before its time is replaced, and the call is made again."""
    for code in (False, True):
        async with world.fresh(code=code) as fresh:
            await _long_turn(fresh, post, working=False)
            (installation,) = fresh.github.app.installations
            fresh.github.revoke(installation)
            before = len(fresh.github.calls())
            fresh.harness.tell(Answer(reply["text"]))
            await fresh.until(lambda: fresh.words() == ["done"], "the answer")
            made = [call.status for call in fresh.github.calls()[before:] if _is_comment(call)]
            assert made == [401, 201]
            fresh.github.revoke(installation)
            await _another_turn(fresh)
            assert fresh.words() == ["done", "more"]


def _is_comment(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/comments")


async def _refused_for_good(world: GitHubWorld, post: Step, reply: Step) -> None:
    """Where every token is refused, a call is repeated once, not for ever."""
    async with world.fresh() as fresh:
        await _long_turn(fresh, post, working=False)
        fresh.github.fail("POST", COMMENTS, 401, times=None)
        fresh.harness.tell(Answer(reply["text"]))
        await fresh.until(lambda: fresh.events("turn.completed"), "the end")
        await fresh.pass_(600, stride=30)
        tried = fresh.github.calls("POST", COMMENTS)
        assert 2 <= len(tried) <= 40
        for one, next_ in itertools.pairwise(tried[1::2]):
            assert next_.at > one.at
        assert len({call.token for call in tried[:2]}) == 2
        fresh.github.heal()
        await fresh.rest()


LIMITED = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)


@judge("G-16")
async def limits_are_waited_for(world: GitHubWorld, case: Case, _: Any) -> None:
    """By its header, by its reset, or for a minute and more; the answer is kept, and there once."""
    post, stub, reply = steps_of(case)
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "{reset}"}
    left = {"x-ratelimit-remaining": "4999"}
    kinds: list[tuple[dict[str, Any], float, bool]] = [
        ({}, 60, False),
        ({"status": 429}, 60, False),
        ({"headers": reset}, 300, False),
        ({"headers": reset, "status": 429}, 300, False),
        ({"headers": left}, 60, True),
        ({"headers": {}}, 60, True),
        ({"headers": {}, "status": 429}, 60, True),
    ]
    for changes, wait, grows in kinds:
        for restarts in (False, True):
            async with world.fresh() as fresh:
                limited = _limited(fresh, {**stub, **changes})
                await _refused(fresh, post, reply, limited)
                if restarts:
                    await fresh.crash()
                (waits,) = await _ledger(fresh)
                assert "intentAt" in waits
                await fresh.within(3600, fresh.said, "the answer", step=10)
                await fresh.rest()
                assert fresh.words() == [reply["text"]]
                (done,) = await _ledger(fresh)
                assert done["ref"] == f"issues/comments/{fresh.said()[0].id}"
                if restarts:
                    assert len(fresh.github.calls("POST", COMMENTS)) <= stub["times"] + 1
                else:
                    _waited(fresh, wait, grows=grows, times=stub["times"])
    await _while_it_works(world, post, stub, reply)
    await _a_decision_stands(world, post, reply)


async def _ledger(world: GitHubWorld) -> list[dict[str, Any]]:
    """Return what the ledger says of what was posted for the one message there is."""
    (delivery_id,) = world.accepted
    answer = await world.http({"method": "GET", "path": f"/v1/deliveries/{delivery_id}"})
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.json()["outbound"]
    return found


def _limited(world: GitHubWorld, stub: Step) -> dict[str, Any]:
    """Return a stub with the time of the reset in its headers: five minutes from when it is met."""
    moment = int(world.clock.now().timestamp()) + 310
    headers = {
        name: value.replace("{reset}", str(moment)) for name, value in stub["headers"].items()
    }
    return {**stub, "headers": headers}


async def _refused(
    world: GitHubWorld, post: Step, reply: Step, stub: Step, *, working: bool = False
) -> None:
    """Let a turn end whose answer is refused."""
    world.harness.waits = True
    await world.start(working=working)
    world.stub(stub)
    await world.play(post)
    await world.until(lambda: world.harness.begun == 1, "the turn")
    await world.play(reply)
    await world.until(lambda: world.events("turn.completed"), "the end")
    await world.until(lambda: world.github.calls("POST", COMMENTS), "the first attempt")


def _waited(world: GitHubWorld, wait: float, *, grows: bool, times: int) -> None:
    """Check how often it was tried, and how long was waited in between."""
    tried = world.github.calls("POST", COMMENTS)
    gaps = [next_.at - one.at for one, next_ in itertools.pairwise(tried)]
    assert [call.ok for call in tried] == [False] * times + [True]
    assert gaps[0] >= wait - 1
    assert all(gap >= 59 or wait == 300 for gap in gaps)
    assert max(gaps) <= max(wait, 60) * 4 + 30
    if grows:
        assert gaps == sorted(gaps)
        assert gaps[-1] > gaps[0]
    # While a limit holds nothing else is written either.
    for call in world.written():
        assert call in tried or call.at >= tried[-1].at or call.at <= tried[0].at


async def _while_it_works(world: GitHubWorld, post: Step, stub: Step, reply: Step) -> None:
    """The comment that says that the agent works meets the limit: then the answer stands alone."""
    for times in (1, 2):
        async with world.fresh() as fresh:
            await _refused(fresh, post, reply, {**stub, "times": times}, working=True)
            await fresh.within(600, fresh.said, "the answer", step=10)
            await fresh.rest()
            assert fresh.words() == [reply["text"]]
            assert len(fresh.github.calls("POST", COMMENTS)) == times + 1


async def _a_decision_stands(world: GitHubWorld, post: Step, reply: Step) -> None:
    """A refusal that is no limit is not tried again, and the ledger says what became of it."""
    body = {"message": "Resource not accessible by integration", "status": "403"}
    headers = {"x-ratelimit-remaining": "4999"}
    stub = {"method": "POST", "path": COMMENTS, "status": 403, "body": body, "headers": headers}
    async with world.fresh() as fresh:
        await _refused(fresh, post, reply, stub)
        await fresh.pass_(2 * 3600, stride=60)
        await fresh.restart()
        await fresh.pass_(600, stride=60)
        assert len(fresh.github.calls("POST", COMMENTS)) == 1
        assert fresh.said() == []
        (posted,) = await _ledger(fresh)
        assert "Resource not accessible" in posted["failure"]
