"""What each case of area E expects; one function a case, by its id."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cases.judges.registry import Case, judge
from tests.cases.world import Answer, NotCoveredError, World
from tests.kill.host import HostProcess

from threadline.errors import StateRootError
from threadline.session.owner import SessionOwner
from threadline.store.embedded import EmbeddedStore
from threadline.testing.laws import check_laws

__all__: list[str] = []

PROJECT = Path(__file__).parents[1] / "project"


async def _begin(world: World, case: Case) -> str:
    """Start the host and play the first step, which starts the session."""
    await world.start()
    await world.play(case["steps"][0])
    session_id = world.saved["sid"]
    await world.until(lambda: world.of(session_id, "step.started"), "a running turn")
    return session_id


async def _finish(world: World) -> None:
    await world.rest()
    world.check()


def _files(world: World, case: Case) -> None:
    """Place the case's files in the state root before the start."""
    for path, content in case.get("files", {}).items():
        target = world.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        target.write_text(text, "utf-8")
    for path, content in case.get("files_b64", {}).items():
        target = world.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(base64.b64decode(content))


@judge("E-01")
async def one_turn_at_a_time(world: World, case: Case, _: Any) -> None:
    """Twenty at once: one turn starts, the others are steered or drained; a hundred times."""
    (step,) = case["steps"]
    await world.start()
    for round_ in range(100):
        ids = [f"{round_}-d-{n:02d}" for n in range(step["count"])]
        answers = await asyncio.gather(
            *(
                world.send(
                    message="hi",
                    continuationToken=f"custom:{round_}",
                    admission=step["admission"],
                    deliveryId=delivery_id,
                )
                for delivery_id in ids
            )
        )
        assert {answer.status for answer in answers} == {202}
        assert len({answer.json()["sessionId"] for answer in answers}) == 1
    await _finish(world)


@judge("E-05")
async def nothing_falls_between_the_last_drain_and_the_end(
    world: World, case: Case, _: Any
) -> None:
    """A message at any point of a turn's end starts a follow-up turn by itself."""
    _first, step = case["steps"]
    session_id = await _begin(world, case)
    points = {
        "before_turn_completed": "turn.completed",
        "before_session_waiting": "session.waiting",
    }
    sent: list[asyncio.Task[Answer]] = []
    loop = asyncio.get_running_loop()

    def late(hook: str) -> None:
        delivery_id = f"{step['deliveryId']}-{hook}"
        task = loop.create_task(
            world.send(message="late", admission="coalesce", deliveryId=delivery_id)
        )
        sent.append(task)

    once: set[str] = set()
    plain = SessionOwner.emit

    def emit(self: SessionOwner, type_: str, data: dict[str, Any], turn: str | None = None) -> int:
        for hook, before in points.items():
            if before == type_ and hook not in once:
                once.add(hook)
                late(hook)
        index = plain(self, type_, data, turn)
        if type_ == "turn.completed" and "after_turn_completed" not in once:
            once.add("after_turn_completed")
            late("after_turn_completed")
        return index

    async def after_last_check(_: Any) -> None:
        if "after_last_steer_check" not in once:
            once.add("after_last_steer_check")
            await world.send(
                message="late", admission="coalesce", deliveryId=f"{step['deliveryId']}-after"
            )

    world.harness.hooks["after_last_steer_check"].append(after_last_check)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionOwner, "emit", emit)
        world.harness.hurry.set()
        await world.until(lambda: once >= {*step["hooks"]}, "every hook")
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            assert isinstance(answer, Answer)
    await _finish(world)
    accepted = [d for d in world.accepted if d.startswith("late-1")]
    assert len(accepted) >= 1
    for delivery_id in accepted:
        assert world.outcomes(session_id, delivery_id) == ["prompted"]


@judge("E-06")
async def a_late_steer_is_the_next_turns(world: World, case: Case, _: Any) -> None:
    """What arrives in the final text is prompted by the next turn, never called delivered."""
    session_id = await _begin(world, case)
    step = case["steps"][1]

    async def send(_: Any) -> None:
        world.harness.hooks["final_text"].clear()
        await world.play(step)

    world.harness.hooks["final_text"].append(send)
    world.harness.hurry.set()
    await world.until(lambda: step["deliveryId"] in world.accepted, "the steer")
    await _finish(world)
    assert world.outcomes(session_id, step["deliveryId"]) == ["prompted"]


@judge("E-07")
async def an_aborted_steer_is_not_lost(world: World, case: Case, _: Any) -> None:
    """Taken at a boundary, then stop, error or kill: the next turn prompts it."""
    for variant in case["steps"][2]["variants"]:
        fresh = World(world.root / variant)
        try:
            await _abort_between(fresh, case, variant)
        finally:
            await fresh.stop()


async def _abort_between(world: World, case: Case, variant: str) -> None:
    session_id = await _begin(world, case)
    reached = asyncio.Event()
    hold = asyncio.Event()

    async def hook(_: Any) -> None:
        world.harness.hooks["after_dequeue_before_inject"].clear()
        reached.set()
        if variant == "model_error":
            raise RuntimeError("the model failed")
        await hold.wait()

    world.harness.hooks["after_dequeue_before_inject"].append(hook)
    await world.play(case["steps"][1])
    await world.until(reached.is_set, "the boundary")
    if variant == "stop":
        await world.request("POST", f"/v1/session/{session_id}/stop")
    elif variant == "sigkill":
        await world.kill()
        await world.start()
    hold.set()
    await _finish(world)
    assert len(world.outcomes(session_id, "n-1")) == 1
    if variant != "sigkill":
        assert world.outcomes(session_id, "n-1") == ["prompted"]


@judge("E-09")
async def a_repeated_delivery_adds_nothing(world: World, case: Case, _: Any) -> None:
    """The first answer again, also with a stale token and after a restart; else 409."""
    session_id = await _begin(world, case)
    first = (await world.play(case["steps"][1])) or Answer(0, {}, b"")
    again = (await world.play(case["steps"][2])) or Answer(0, {}, b"")
    await world.play(case["steps"][3])
    restarted = (await world.play(case["steps"][4])) or Answer(0, {}, b"")
    for answer in (again, restarted):
        assert answer.status == 200
        assert answer.json()["admitted"] == "duplicate"
        for key in ("deliveryId", "sessionId", "continuationToken"):
            assert answer.json()[key] == first.json()[key]
    other = await world.send(admission="coalesce", deliveryId="wh-1", message="other")
    assert (other.status, other.json()["error"]) == (409, "delivery_conflict")
    start = await world.request("POST", "/v1/session", body={"message": "x", "deliveryId": "wh-1"})
    assert (start.status, start.json()["error"]) == (409, "delivery_conflict")
    await _finish(world)
    assert len(world.outcomes(session_id, "wh-1")) == 1


@judge("E-11")
async def a_zombie_turn_is_closed(world: World, case: Case, _: Any) -> None:
    """An open turn is interrupted, its call paired, it goes on; a second start adds nothing."""
    _files(world, case)
    world.harness.hurry.set()
    await world.start()
    await world.rest()
    session_id = "ses_fixture1"
    (failed,) = world.of(session_id, "turn.failed")
    assert (failed["data"]["status"], failed["data"]["code"]) == ("interrupted", "host_restarted")
    assert failed["index"] == 6
    assert world.of(session_id, "action.result")[0]["data"]["isError"] is True
    assert len(world.of(session_id, "actions.completed")) == 1
    assert world.events(session_id)[-1]["type"] == "session.waiting"
    answer = await world.play(case["steps"][1])
    assert answer is not None
    assert answer.status == 200
    before = world.log(session_id)
    await world.restart()
    await world.rest()
    assert world.log(session_id) == before
    follow_up = await world.request(
        "POST",
        f"/v1/session/{session_id}",
        body={"message": "go on", "continuationToken": "http:fixture-token"},
    )
    assert follow_up.status == 200
    await world.rest()
    assert world.events(session_id)[-1]["type"] == "session.waiting"


@judge("E-12")
async def cuts_lose_and_double_nothing(world: World, case: Case, _: Any) -> None:
    """Two hundred cuts at any byte, one over a restart: the pieces are the log."""
    session_id = await _begin(world, case)
    count = case["steps"][1]["count"]
    got: list[bytes] = []
    for cut in range(count):
        if cut == count // 2:
            await world.restart()
        got += await _read_some(world, session_id, len(got), 1 + (cut * 37) % 700)
    await world.rest()
    got += await _read_some(world, session_id, len(got), 1 << 30)
    assert b"".join(got) == world.log(session_id)
    world.check()


async def _read_some(world: World, session_id: str, start: int, most: int) -> list[bytes]:
    """Read at most so many bytes of the stream, then cut it; return the complete lines."""
    assert world.http is not None
    url = f"{world.base}/v1/session/{session_id}/stream?startIndex={start}"
    data = b""
    async with world.http.get(url) as response:
        with contextlib.suppress(TimeoutError):
            while len(data) < most:
                async with asyncio.timeout(0.05):
                    data += await response.content.read(min(most - len(data), 1 << 16)) or b""
                await world._pass(0.1)
    data = data[:most]
    return [line + b"\n" for line in data.split(b"\n")[:-1] if line]


@judge("E-14")
async def no_seam_between_replay_and_follow(world: World, case: Case, _: Any) -> None:
    """Fifty readers from different places see every index once, while events are added."""
    seed, readers, more = case["steps"]
    await world.start()
    start = await world.send(message="hi")
    session_id = start.json()["sessionId"]
    await world.rest()
    owner = await world.core.owner(session_id)
    assert owner is not None
    for number in range(seed["count"]):
        owner.emit("agent.bound", {"harness": "seed", "conversationId": str(number)})
    await owner.log.flush()
    last = owner.lease.next_index + more["count"] - 1

    async def read(start: int) -> list[int]:
        seen = []
        async for event in world.follow(session_id, start):
            seen.append(event["index"])
            if event["index"] == last:
                break
        return seen

    places = [n * seed["count"] // readers["count"] for n in range(readers["count"])]
    tasks = [asyncio.ensure_future(read(place)) for place in places]
    for number in range(more["count"]):
        owner.emit("agent.bound", {"harness": "more", "conversationId": str(number)})
        if number % 10 == 0:
            await asyncio.sleep(0)
    for place, seen in zip(places, await asyncio.gather(*tasks), strict=True):
        assert seen == list(range(place, last + 1))


@judge("E-18")
async def a_whole_last_line_without_newline_is_kept(world: World, case: Case, _: Any) -> None:
    """The event stays, its newline is added, and the next index follows."""
    _files(world, case)
    world.harness.hurry.set()
    await world.start()
    await world.rest()
    events = world.events("ses_fixture1")
    assert [event["index"] for event in events] == list(range(len(events)))
    assert events[1]["type"] == "turn.started"
    assert events[2]["index"] == 2


@judge("E-19")
async def a_bad_line_in_the_middle_is_skipped(world: World, case: Case, _: Any) -> None:
    """What is behind the damage is served with its own index; the damage is reported once."""
    _files(world, case)
    world.harness.hurry.set()
    await world.start()
    answer = await world.play(case["steps"][1])
    assert answer is not None
    assert answer.status == 200
    indices = [json.loads(line)["index"] for line in answer.body.splitlines()]
    assert indices == sorted(set(indices))
    assert {0, 1} <= set(indices)
    assert len(indices) > 2
    info = (await world.request("GET", "/v1/info")).json()
    assert sum("ses_fixture1" in sentence for sentence in info["diagnostics"]) == 1


@judge("E-20")
async def a_full_disk_is_survived(world: World, case: Case, _: Any) -> None:
    """The turn fails with its cause, new sends get 503, and space brings everything back."""
    mount = world.root
    size = f"size={case['steps'][0]['bytes']}"
    if await _mount("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(mount)) != 0:
        raise NotCoveredError("mount_small_state_root (this machine may not mount)")
    try:
        await _fill_and_free(world, case)
    finally:
        await world.stop()
        assert await _mount("umount", "-l", str(mount)) == 0


async def _mount(*command: str) -> int:
    try:
        run = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    except FileNotFoundError:
        return -1
    return await run.wait()


async def _fill_and_free(world: World, case: Case) -> None:
    steps = case["steps"]
    await world.start()
    await world.play(steps[1])
    session_id = world.saved["sid"]
    ballast = world.root / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))
    owner = world.core._owners[session_id]
    await world.until(lambda: owner.state.turn is None, "the end of the turn")
    more = await world.play(steps[3])
    assert more is not None
    assert more.status == 503
    assert "deliveryId" not in more.json()
    ballast.unlink()
    again = await world.play(steps[5])
    assert again is not None
    assert again.status == 200
    await _finish(world)
    (failed,) = world.of(session_id, "turn.failed")
    assert failed["data"]["code"] == "store_unavailable"


@judge("E-21")
async def a_state_root_has_one_host(world: World, case: Case, _: Any) -> None:
    """A second host refuses to start, also from another process; a kill frees the root."""
    await world.play(case["steps"][0])
    with pytest.raises(StateRootError, match="in use"):
        await EmbeddedStore(world.root).open()
    code = (
        "import asyncio, sys; from pathlib import Path;"
        "from threadline.store.embedded import EmbeddedStore;"
        f"asyncio.run(EmbeddedStore(Path({str(world.root)!r})).open())"
    )
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE
    )
    _, said = await run.communicate()
    assert run.returncode != 0
    assert b"in use by another host" in said
    await world.kill()
    await world.start()


@judge("E-22")
async def separators_round_trip(world: World, case: Case, _: Any) -> None:
    """The text comes back exactly from the log, the stream, the dump and after a restart."""
    await world.start()
    answer = await world.request("POST", "/v1/session", body=case["payload"])
    session_id = answer.json()["sessionId"]
    await world.rest()
    text = case["payload"]["message"]
    for again in range(2):
        for path in ("stream", "events"):
            dump = await world.request("GET", f"/v1/session/{session_id}/{path}")
            lines = [line for line in dump.body.split(b"\n") if line]
            received = [json.loads(line) for line in lines]
            assert received[1]["data"]["text"] == text
            assert not any(c in dump.body.decode() for c in "\u2028\u2029\u0085")
        if not again:
            await world.restart()
    await _finish(world)


@judge("E-27")
async def clients_that_do_not_read_cost_little(world: World, case: Case, _: Any) -> None:
    """Ten stalled readers and 200 MB: bounded memory, and the one who reads gets it all."""
    await world.start()
    session_id = (await world.send(message="hi")).json()["sessionId"]
    await world.rest()
    owner = await world.core.owner(session_id)
    assert owner is not None
    host, port = world.base.removeprefix("http://").split(":")
    stalled = []
    for _number in range(case["steps"][1]["count"]):
        client = socket.create_connection((host, int(port)))
        request = f"GET /v1/session/{session_id}/stream HTTP/1.1\r\nHost: {host}\r\n\r\n"
        client.sendall(request.encode())
        stalled.append(client)
    reader = asyncio.ensure_future(_count_bytes(world, session_id))
    await asyncio.sleep(0)
    before = _rss()
    piece = "x" * 100_000
    for number in range(case["steps"][2]["bytes"] // len(piece)):
        owner.emit("reasoning.completed", {"blockId": str(number), "text": piece})
        await owner.log.flush()
        await asyncio.sleep(0)
    owner.emit("session.waiting", {})
    await owner.log.flush()
    assert await reader == len(world.log(session_id))
    assert _rss() - before < 60_000_000
    for client in stalled:
        client.close()


async def _count_bytes(world: World, session_id: str) -> int:
    assert world.http is not None
    total = 0
    tail = b""
    url = f"{world.base}/v1/session/{session_id}/stream"
    async with world.http.get(url) as response:
        async for chunk in response.content.iter_any():
            total += len(chunk)
            tail = (tail + chunk)[-300:]
            last = tail[:-1].rpartition(b"\n")[2]
            if b'"session.waiting"' in last and total > 1_000_000:
                return total
    return total


def _rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@judge("E-28")
async def a_proxy_neither_buffers_nor_cuts(world: World, case: Case, _: Any) -> None:
    """Behind nginx with its defaults events come one by one, and silence ends no stream."""
    if shutil.which("nginx") is None:
        raise NotCoveredError("through_proxy (nginx is installed by make test-real)")
    from tests.cases import proxy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("threadline.host.stream.HEARTBEAT_SECONDS", 0.4)
        session_id = await _begin(world, {**case, "steps": case["steps"][1:]})
        async with proxy.nginx(world.base, world.root / "nginx", read_timeout=2) as address:
            await proxy.check(world, address, session_id, silence=5.0)
    await _finish(world)


@judge("E-29")
async def a_swallowed_cancellation_is_cut_off(world: World, case: Case, _: Any) -> None:
    """A turn that does not end after its grace period is closed; its late output goes nowhere."""
    session_id = await _begin(world, case)
    release = asyncio.Event()

    async def stubborn(turn: Any) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except BaseException:
                continue
        turn.message_completed("late", "too late")

    world.harness.hooks["final_text"].append(stubborn)
    world.harness.hurry.set()
    await world.until(world.harness.final_text.is_set, "the stubborn step")
    answer = await world.play(case["steps"][1])
    assert answer is not None
    assert answer.json()["stopped"] is True
    world.harness.hooks["final_text"].clear()
    await world.at(case["steps"][2]["at_s"])
    await world.until(lambda: world.of(session_id, "turn.failed"), "the end of the turn")
    (failed,) = world.of(session_id, "turn.failed")
    assert failed["data"]["status"] == case["steps"][2]["data"]["status"]
    follow_up = await world.send(message="go on")
    assert follow_up.status == 200
    release.set()
    await _finish(world)
    assert "too late" not in world.log(session_id).decode()
    assert len(world.of(session_id, "turn.completed")) == 1


@judge("E-30")
async def no_task_is_collected(world: World, case: Case, _: Any) -> None:
    """A thousand turns under constant garbage collection all end, and no task is left."""
    (step,) = case["steps"]
    await world.start()
    before = len(world.core.services.tasks)
    for batch in range(step["count"] // 100):
        sends = (
            world.send(message="hi", continuationToken=f"custom:{batch}-{n}") for n in range(100)
        )
        await asyncio.gather(*sends)
        gc.collect()
        await world._pass(0.1)
        gc.collect()
    await _finish(world)
    assert world.core.services.counts["turns", "completed"] == step["count"]
    await world.until(lambda: len(world.core.services.tasks) <= before, "the tasks' end")


@judge("E-32")
async def ids_stay_in_the_state_root(world: World, case: Case, variant: Any) -> None:
    """A hostile id is 404 or 400, and no file outside the state root is opened for it."""
    await world.start()
    opened: list[str] = []
    listening = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening[0] and event == "open" and isinstance(arguments[0], str):
            opened.append(arguments[0])

    sys.addaudithook(hook)
    for step in case["steps"]:
        filled = step | {"path": step["path"].replace("{variant}", variant)}
        answer = await world.play(filled)
        assert answer is not None
        assert answer.status in (400, 404, 405)
        assert answer.json()["ok"] is False
    for path in (f"/v1/tools/{variant}", f"/playground/assets/{variant}"):
        answer = await world.request("GET", path)
        assert answer.status in (400, 404, 405) or variant in ("..", ".")
    listening[0] = False
    inside = (str(world.root), sys.prefix, sys.base_prefix, "/proc/", "/dev/")
    source = str(Path(__file__).parents[3])
    assert [p for p in opened if not p.startswith((*inside, source))] == []


@judge("E-33")
async def hostile_file_paths_are_refused(world: World, case: Case, variant: Any) -> None:
    """Any bad path: 400, nothing written, no session; good ones land in the workspace."""
    await world.start()
    files = {variant: "data", "ok/x.txt": "fine"}
    answer = await world.request(
        "POST", "/v1/session", body={"message": "hi", "workspaceFiles": files}
    )
    sessions = [p for p in (world.root / "sessions").iterdir() if not p.name.startswith(".")]
    if variant == "dir/link/x.txt":  # hostile only where dir/link is a link: see E-34
        assert answer.status == 200
        await world.rest()
        assert (sessions[0] / "workspace" / "ok" / "x.txt").read_text() == "fine"
        return
    assert (answer.status, answer.json()["error"]) == (400, "invalid_request")
    assert sessions == []


@judge("E-34")
async def links_are_not_followed(world: World, case: Case, _: Any) -> None:
    """Files that would go through the agent's links are refused; targets stay as they were."""
    session_id = await _begin(world, case)
    folder = world.root / "sessions" / session_id / "workspace"
    victim = world.root / "victim"
    victim.mkdir()
    (folder / "out").symlink_to(victim)
    (folder / "f").symlink_to(world.root / "victim.txt")
    answer = await world.send(message="x", workspaceFiles=case["steps"][2]["workspaceFiles"])
    assert answer.status == 400
    assert list(victim.iterdir()) == []
    assert not (world.root / "victim.txt").exists()
    world.harness.hurry.set()
    await world.rest()
    (world.root / "victim.txt").write_text("secret")
    (victim / "kept").write_text("kept")
    for path in ("f", "out/kept"):
        call = {"input": {"path": path}, "sessionId": session_id}
        kept = await world.request("POST", "/v1/tools/keep", body=call)
        assert not kept.json()["ok"], path
    await world.request("DELETE", f"/v1/session/{session_id}")
    assert (victim / "kept").exists()
    assert not folder.parent.exists()


@judge("E-35")
async def a_deleted_session_is_gone(world: World, case: Case, _: Any) -> None:
    """Removed by hand while it runs: streams end, nothing recreates it, others go on."""
    steps = case["steps"]
    session_id = await _begin(world, case)
    other = await world.request("POST", "/v1/session", body={"message": "count to 1000 slowly"})

    async def drain() -> int:
        return len([event async for event in world.follow(session_id)])

    streaming = asyncio.ensure_future(drain())
    await world.at(steps[2]["at_s"])
    shutil.rmtree(world.root / "sessions" / session_id)
    await world.until(streaming.done, "the end of the stream")
    answer = await world.play(steps[3])
    listed = await world.play(steps[4])
    assert answer is not None
    assert listed is not None
    assert answer.status == 404
    assert session_id not in [s["sessionId"] for s in listed.json()["sessions"]]
    stop = await world.request("POST", f"/v1/session/{session_id}/stop")
    stream = await world.request("GET", f"/v1/session/{session_id}/events")
    assert (stop.status, stream.status) == (404, 404)
    world.accepted = {d: s for d, s in world.accepted.items() if s != session_id}
    await _finish(world)
    assert not (world.root / "sessions" / session_id).exists()
    assert world.of(other.json()["sessionId"], "turn.completed")


@judge("E-38")
async def another_callers_session_is_forbidden(world: World, case: Case, _: Any) -> None:
    """403 on every route that names it, before the first byte; unknown ids are 404."""
    await world.start()
    await world.play(case["steps"][0])
    artifact = await _artifact_of(world)
    for step in case["steps"][1:]:
        answer = await world.play(step)
        assert answer is not None
        assert (answer.status, answer.json()["error"]) == (403, "forbidden"), step["path"]
        unknown = step | {"path": step["path"].replace("{sid}", "ses_unknown")}
        missing = await world.play(unknown)
        assert missing is not None
        assert missing.status == 404, step["path"]
    headers = {"Authorization": "Bearer b-token"}
    listed = await world.request("GET", "/v1/sessions", headers=headers)
    assert listed.json() == {"sessions": []}
    for path in (artifact, f"{artifact}/content"):
        answer = await world.request("GET", path, headers=headers)
        assert (answer.status, answer.json()["error"]) == (403, "forbidden"), path
    listed = await world.request("GET", "/v1/artifacts", headers=headers)
    assert listed.json() == {"artifacts": []}
    await _finish(world)


async def _artifact_of(world: World) -> str:
    """Let principal A's session have an artifact; return its address."""
    await world.rest()
    session_id = world.saved["sid"]
    folder = world.root / "sessions" / session_id / "workspace"
    (folder / "f").write_text("secret")
    headers = {"Authorization": "Bearer a-token"}
    call = {"input": {"path": "f"}, "sessionId": session_id}
    kept = await world.request("POST", "/v1/tools/keep", body=call, headers=headers)
    listed = await world.request("GET", f"/v1/artifacts?sessionId={session_id}", headers=headers)
    assert [a["id"] for a in listed.json()["artifacts"]] == [kept.json()["result"]]
    return f"/v1/artifacts/{kept.json()['result']}"


@judge("E-39")
async def open_streams_do_not_hold_up_the_end(world: World, case: Case, _: Any) -> None:
    """SIGTERM: streams end at once, turns are interrupted, exit 0 in time, nothing to repair."""
    _, readers, signalled, expected = case["steps"]
    host = HostProcess(world.root, project=PROJECT)
    try:
        await host.start()
        await host.ready()
        async with aiohttp.ClientSession(host.url) as client:
            sessions = [await _start_turn(client) for _ in range(2)]
            streams = [
                asyncio.ensure_future(_read_all(client, sessions[n % 2]))
                for n in range(readers["count"])
            ]
            await _until_running(host, sessions)
            limit = expected["at_s"] - signalled["at_s"]
            async with asyncio.timeout(limit):
                assert await host.terminate() == expected["code"]
                await asyncio.gather(*streams)
        logs = [host.log_bytes(session) for session in sessions]
        for session, log in zip(sessions, logs, strict=True):
            last = json.loads(log.splitlines()[-1])
            assert (last["type"], last["data"]["code"]) == ("turn.failed", "host_shutdown"), session
    finally:
        await host.kill()


async def _start_turn(client: aiohttp.ClientSession) -> str:
    async with client.post("/v1/session", json={"message": "count to 1000 slowly"}) as answer:
        return str((await answer.json())["sessionId"])


async def _read_all(client: aiohttp.ClientSession, session_id: str) -> int:
    async with client.get(f"/v1/session/{session_id}/stream") as response:
        return len(await response.read())


async def _until_running(host: HostProcess, sessions: list[str]) -> None:
    async with asyncio.timeout(10):
        # Another process makes the condition true, so there is no event to wait for.
        while not all(b'"step.started"' in host.log_bytes(s) for s in sessions):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@judge("E-40")
async def unusual_bodies(world: World, case: Case, _: Any) -> None:
    """Each gets its documented status and a JSON error; nothing else changes."""
    steps = case["steps"]
    session_id = await _begin(world, case)
    expected = [409, 400, 400, 400, 400, 404, 405]
    log = world.log(session_id)
    for step, status in zip(steps[1:], expected, strict=True):
        answer = await world.play(step | {"at_s": world.now_s})
        assert answer is not None
        assert answer.status == status, step
        assert answer.json()["ok"] is False
        assert answer.json()["error"]
        if status == 405:
            assert answer.headers["Allow"] == "GET"
    assert world.log(session_id).startswith(log)
    assert len(world.of(session_id, "message.received")) == 1
    unknown = await world.request("POST", "/v1/session", body={"message": "x", "surprise": 1})
    assert (unknown.status, unknown.json()["error"]) == (400, "invalid_request")
    large = await world.request("POST", "/v1/session", body={"message": "x" * 11_000_000})
    assert (large.status, large.json()["error"]) == (413, "body_too_large")
    await _finish(world)


@judge("E-42")
async def slugs_are_checked(world: World, case: Case, variant: Any) -> None:
    """A slug that could leave the state root or hide a route is refused, by name."""
    from threadline.agent.config import Agent
    from threadline.errors import ProjectError
    from threadline.project import Project

    with pytest.raises(ProjectError) as refused:
        Project.of(Agent(instructions="x"), slug=variant)
    assert variant.strip() in str(refused.value)
    assert not world.root.exists() or list(world.root.iterdir()) == []


@judge("E-43")
async def a_failed_steer_returns_to_the_queue(world: World, case: Case, _: Any) -> None:
    """The steering call raises, or the process dies between the writes: one outcome, once."""
    session_id = await _begin(world, case)

    async def fail(_: Any) -> None:
        world.harness.hooks["harness.steer"].clear()
        raise ConnectionError("the harness is gone")

    world.harness.hooks["harness.steer"].append(fail)
    await world.play(case["steps"][1])
    await world.until(lambda: world.of(session_id, "turn.failed"), "the failure")
    await _finish(world)
    assert world.outcomes(session_id, "c-1") == ["prompted"]
    check_laws(world.log(session_id), ["c-1"])
