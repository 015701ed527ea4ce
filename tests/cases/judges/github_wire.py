"""GitHub webhooks: bytes, signatures, copies of a delivery, and what a 2xx means."""

from __future__ import annotations

import asyncio
import errno
import gzip
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from tests.cases.github_world import COMMENTS, HOOK, PR, SECRET, GitHubWorld
from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.pouring import pour

from threadline.testing import github_signature
from threadline.testing.inbound import Answer

__all__: list[str] = []

Step = Mapping[str, Any]
MEBI = 1024 * 1024


def _refused(answer: Answer, *statuses: int) -> None:
    """Check that an answer is a refusal in the documented form."""
    assert answer.status in statuses, answer.text
    told = answer.json()
    assert told["ok"] is False
    assert told["error"]


def _id(step: Step) -> str:
    delivery: str = step["headers"]["X-GitHub-Delivery"]
    return delivery


def one_turn(world: GitHubWorld, text: str, *ids: str) -> None:
    """Check that there was one turn on a comment, and one answer."""
    session = world.session()
    assert [one.id for one in world.sessions()] == [session.id]
    (received,) = session.events("message.received")
    assert received["data"]["text"] == text
    assert received["data"]["deliveryIds"] in [[one] for one in ids]
    assert world.accepted == received["data"]["deliveryIds"]
    assert len(session.events("turn.started")) == 1
    assert world.harness.begun == 1
    assert world.words() == [text]


@judge("G-02")
async def the_bytes_are_signed(world: GitHubWorld, case: Case, _: Any) -> None:
    """What was signed is taken as it came; by another scheme, or by none, nothing is."""
    good, *bad = steps_of(case)
    raw = good["raw_body"]
    again = json.dumps(json.loads(raw), separators=(",", ":"))
    altered = [{**good, "raw_body": other} for other in (again, raw + " ", raw[:-1])]
    async with world.fresh() as fresh:
        await fresh.start()
        for step in (*bad, *altered):
            _refused(await fresh.post(step, plant=False), 401)
        await fresh.rest()
        fresh.untouched()
    await world.start()
    for step in (good, *bad):
        answer = await world.play(step)
        assert answer is not None
        if step is good:
            assert answer.status == 202
        else:
            _refused(answer, 401)
    await world.rest()
    one_turn(world, "@agent-fixture hi", _id(good))


@judge("G-03")
async def a_form_is_signed_as_it_came(world: GitHubWorld, case: Case, _: Any) -> None:
    """The form's bytes are signed, then it is read; no character of the comment is lost."""
    (step,) = steps_of(case)
    await world.start()
    text = "@agent-fixture a+b & 100%"
    inner = json.dumps(json.loads(_payload(step)), separators=(",", ":"))
    _refused(await world.post({**step, "raw_body": inner}, plant=False), 401)
    signed = {**step, "raw_body": inner}
    signed["headers"] = {
        **step["headers"],
        "X-Hub-Signature-256": github_signature(SECRET, step["raw_body"]),
    }
    _refused(await world.post(signed, plant=False), 401)
    assert (await world.post(step)).status == 202
    await world.rest()
    one_turn(world, text, _id(step))
    assert text in world.harness.prompts[0]


def _payload(step: Step) -> str:
    payload: str = parse_qs(step["raw_body"])["payload"][0]
    return payload


@judge("G-05")
async def a_redelivery_is_the_same(world: GitHubWorld, case: Case, _: Any) -> None:
    """At once, behind a restart, a day later and at the end of the three days: one turn."""
    first, second, restart, late = steps_of(case)
    for together in (False, True):
        async with world.fresh() as fresh:
            await fresh.start()
            if together:
                answers = await asyncio.gather(fresh.post(first), fresh.post(second))
                assert all(answer.ok for answer in answers)
            else:
                assert (await fresh.post(first)).status == 202
                answer = await fresh.play(second)
                assert answer is not None
                assert answer.ok
            await fresh.rest()
            if together:
                await fresh.crash(power_cut=True)
            await fresh.play(restart)
            await fresh.rest()
            before = fresh.session().types
            for second_ in (late["at_s"], 3 * 86_400 - 60) if together else (late["at_s"],):
                await fresh.at(second_, stride=3600)
                assert (await fresh.post(late)).ok
                await fresh.rest()
                assert fresh.session().types == before
            one_turn(fresh, "@agent-fixture review", _id(first))


@judge("G-06")
async def two_hooks_tell_the_same(world: GitHubWorld, case: Case, _: Any) -> None:
    """In either order and at once it is one turn, which knows the App's installation."""
    with_app, without = steps_of(case)
    ids = _id(with_app), _id(without)
    for order in itertools.permutations((with_app, without)):
        for how in ("one by one", "at once", "restart between", "while it runs"):
            async with world.fresh() as fresh:
                fresh.harness.waits = how == "while it runs"
                await fresh.start()
                # Whoever is not told where the App is installed cannot learn it otherwise.
                fresh.github.fail("GET", "/repos/*/installation", 500, times=None)
                if how == "at once":
                    answers = await asyncio.gather(*(fresh.post(step) for step in order))
                    assert all(answer.ok for answer in answers)
                else:
                    await _one_by_one(fresh, order, how)
                fresh.harness.free()
                await fresh.rest()
                one_turn(fresh, "@agent-fixture review", *ids)
                assert fresh.accepted == [_id(order[0])] or how == "at once"
                (comment,) = [call for call in fresh.github.calls("POST", COMMENTS) if call.ok]
                token = fresh.github.state.tokens[comment.token or ""]
                assert token.installation is not None
                assert token.installation.id == 4401


async def _one_by_one(world: GitHubWorld, order: tuple[Step, ...], how: str) -> None:
    for number, step in enumerate(order):
        await world.at(0.2 * number)
        assert (await world.post(step)).ok
        if how == "while it runs" and number == 0:
            await world.until(lambda: world.accepted, "the first copy")
        if how == "restart between" and number == 0:
            await world.restart()


@judge("G-07")
async def a_2xx_means_that_it_is_kept(world: GitHubWorld, case: Case, _: Any) -> None:
    """Whichever write fails, GitHub is told, or nothing is missing; the redelivery is one turn."""
    fault, first, again = steps_of(case)
    async with world.fresh() as fresh:
        await fresh.start()
        await fresh.play(fault)
        answer = await fresh.play(first)
        assert answer is not None
        _refused(answer, *range(500, 600))
        assert fresh.accepted == []
        await fresh.play(again)
        await fresh.rest()
        one_turn(fresh, "@agent-fixture review", _id(again))
    told = 0
    for write in itertools.count(1):
        async with world.fresh() as fresh:
            await fresh.start()
            fresh.disk.code, fresh.disk.fail_at = errno.ENOSPC, write
            answer = await fresh.post(first)
            reached = fresh.disk.fail_at == 0
            fresh.disk.fail_at = 0
            if not answer.ok:
                _refused(answer, *range(500, 600))
                told += 1
            await fresh.at(again["at_s"])
            assert (await fresh.post(again)).ok
            await fresh.rest()
            one_turn(fresh, "@agent-fixture review", _id(again))
        if not reached:
            break
    assert told > 0


@judge("G-08")
async def the_answer_does_not_wait_for_the_work(world: GitHubWorld, case: Case, _: Any) -> None:
    """GitHub has its answer before it is asked for anything; a long clone and turn are one turn."""
    (step,) = steps_of(case)
    async with world.fresh(code=True) as fresh:
        fresh.git.seconds = 40
        fresh.harness.waits = True
        await fresh.start()
        await fresh.github.settled()
        before = len(fresh.github.calls())
        gate = fresh.github.hold("*", "*", "before")
        for _again in range(2):
            answer = await fresh.post(step)
            assert answer.ok
            assert fresh.now_s == 0
            assert fresh.git.fetches == []
            assert [call.done for call in fresh.github.calls()[before:] if call.done] == []
        gate.release()
        await fresh.until(lambda: fresh.git.fetches, "the clone")
        assert fresh.harness.begun == 0
        await fresh.within(300, lambda: fresh.harness.begun, "the turn")
        assert fresh.now_s >= 40
        assert (fresh.harness.folders[0] / "up.py").read_text() == "a\nb\nc\n"
        await fresh.pass_(180)
        assert (await fresh.post(step)).ok
        fresh.harness.free()
        await fresh.rest()
        assert len(fresh.events("turn.started")) == 1
        assert fresh.accepted == [_id(step)]
        assert len(fresh.said()) == 1


@judge("G-33")
async def a_body_has_its_limits(world: GitHubWorld, case: Case, _: Any) -> None:
    """What is no object, too large, cut off or packed is refused; then all goes on as before."""
    no_object, no_json, large = steps_of(case)
    good = _good(no_object)
    await world.start()
    for step in (no_object, {**no_object, "raw_body": '"x"'}, no_json):
        signed = step["raw_body"] == '"x"'
        _refused(await world.post(step, signed=signed), 400)
    answer = await world.play(large)
    assert answer is not None
    _refused(answer, 400, 413)
    await _read_no_further(world, large["bytes"])
    await _cut_off(world, good)
    packed = gzip.compress(good["raw_body"].encode())
    for raw in (packed, packed[:-9], gzip.compress(bytes(64 * MEBI))):
        headers = {
            **good["headers"],
            "Content-Encoding": "gzip",
            "X-Hub-Signature-256": github_signature(SECRET, raw),
        }
        refused = await world.host.post(HOOK, body=raw, headers=headers)
        _refused(refused, 400, 413, 415)
    world.untouched()
    await _large_is_taken(world, good)
    await world.post(good, signed=True)
    await world.rest()
    one_turn(world, "@agent-fixture hi", _id(good))


def _good(like: Step) -> dict[str, Any]:
    """Return a comment that is taken."""
    person = {"login": "dev-one", "id": 501, "type": "User"}
    body = {
        "action": "created",
        "issue": {"number": 7, "state": "open", "pull_request": {"url": "https://x.test"}},
        "comment": {
            "id": 55001,
            "user": person,
            "created_at": "2025-10-09T08:53:20Z",
            "author_association": "MEMBER",
            "body": "@agent-fixture hi",
        },
        "repository": {"id": 900100, "full_name": "octo-fixture/widget"},
        "sender": person,
        "installation": {"id": 4401},
    }
    return {**like, "raw_body": json.dumps(body)}


async def _read_no_further(world: GitHubWorld, size: int) -> None:
    """A large body is refused by what is said of it, or as soon as it is too large."""
    declared = await pour(world.host.url, HOOK, [b"x" * 1000], length=size)
    _refused(declared.answer, 400, 413)
    endless = await pour(world.host.url, HOOK, _pieces(80 * MEBI), length=None)
    _refused(endless.answer, 400, 413)
    assert endless.sent < 60 * MEBI
    async with world.fresh() as fresh:
        fresh.serving["max_body"] = 2 * size
        await fresh.start()
        whole = await pour(fresh.host.url, HOOK, _pieces(size), length=size)
        _refused(whole.answer, 401)
    elsewhere = await pour(world.host.url, "/v1/session", _pieces(24 * MEBI), length=24 * MEBI)
    _refused(elsewhere.answer, 413)


def _pieces(size: int) -> Iterator[bytes]:
    return (b"x" * 65_536 for _ in range(size // 65_536))


async def _cut_off(world: GitHubWorld, good: Step) -> None:
    """A length that is too small: what comes first is no JSON, and the rest no request."""
    raw = good["raw_body"].encode()
    for signed in (raw, raw[:-10]):
        headers = {**good["headers"], "X-Hub-Signature-256": github_signature(SECRET, signed)}
        poured = await pour(world.host.url, HOOK, [raw], length=len(raw) - 10, headers=headers)
        assert poured.answer.status in ((400, 415) if signed != raw else (400, 401, 415))
        assert not poured.rest or poured.rest.startswith(b"HTTP/1.1 400")


async def _large_is_taken(world: GitHubWorld, good: Step) -> None:
    """Bodies as large as GitHub sends them, 25 MB, are read."""
    body = json.loads(good["raw_body"])
    body["action"], body["pad"] = "deleted", ""
    body["pad"] = "x" * (25_000_000 - len(json.dumps(body)))
    large = {**good, "raw_body": json.dumps(body)}
    answer = await world.post(large, signed=True, plant=False)
    assert answer.status == 200
    assert world.named(PR) is None
