"""Slack outbound: that an answer arrives, once, whatever Slack, people and power do meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.judges.texts import MODES, ROOT, WAYS, begin
from tests.cases.slack_world import CHANNEL, SlackWorld
from tests.cases.told import Answer, Delta, Order, Say, Tool

__all__: list[str] = []

STREAMS = ("stream", "agent")
NOT_STREAMING = "message_not_in_streaming_state"


def _whole(world: SlackWorld) -> str:
    """Return all that the thread shows, without the spaces between messages."""
    return " ".join(" ".join(world.words(ROOT)).split())


def _settled_streams(world: SlackWorld) -> None:
    """Check that nothing is left streaming."""
    assert not [one for one in world.everywhere() if one.streaming]


@judge("S-113")
async def an_expired_stream_is_completed(world: SlackWorld, case: Case, _: Any) -> None:
    """However the stream ends while a tool runs, the final text is complete, and there once."""
    steps = {step.get("method", step["do"]): step for step in steps_of(case)}
    first, second = [step for step in steps_of(case) if step["do"] == "agent_reply"]
    silent = second["at_s"] - first["at_s"]
    shapes: dict[str, list[Order]] = {
        "narration": [Say(""), Tool("idle", {"seconds": silent - 4})],
        "one message": [Delta(" ")],
    }
    for mode in STREAMS:
        for shape, orders in shapes.items():
            for end in ("stubbed", "expired", "early"):
                async with world.fresh() as fresh:
                    if end == "stubbed":
                        # Once: two messages never have one ts.
                        fresh.stub({**steps["chat.startStream"], "times": 1})
                    elif end == "early":
                        fresh.slack.options.stream_seconds = 100
                    await begin(fresh, case, mode)
                    await fresh.at(first["at_s"])
                    fresh.harness.tell(Delta(first["text"]))
                    await fresh.at(first["at_s"] + 3)
                    assert mode == "agent" or fresh.calls("chat.startStream")
                    fresh.harness.tell(*orders)
                    more = "more " if (end, shape) == ("early", "one message") else ""
                    await fresh.at(110)
                    fresh.harness.tell(*([Delta(more)] if more else []))
                    await fresh.at(430)
                    if end == "stubbed":
                        fresh.stub(steps["chat.appendStream"])
                        fresh.stub(steps["chat.stopStream"])
                    await fresh.at(second["at_s"])
                    fresh.harness.tell(Answer(second["text"]))
                    await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                    await fresh.rest()
                    assert not fresh.events("turn.failed")
                    shown = _whole(fresh)
                    assert shown.count(second["text"]) == 1, (mode, shape, end, shown)
                    if shape == "one message":
                        assert shown == f"{first['text']} {more}{second['text']}", (mode, end)
                    assert shown.count(first["text"]) <= 1
                    _settled_streams(fresh)


@judge("S-114")
async def appends_and_the_stop_are_in_order(world: SlackWorld, case: Case, _: Any) -> None:
    """Nothing overtakes; what is left goes into the stop or an edit; the turn is completed."""
    start, burst = steps_of(case)[1:]
    pieces = [f"d{number} " for number in range(burst["count"])]
    text = "".join(pieces).strip()
    for mode in STREAMS:
        for race in ("none", "held", "held long", "lost"):
            async with world.fresh() as fresh:
                fresh.stub({**start, "times": 1})
                await begin(fresh, case, mode)
                await fresh.at(burst["at_s"])
                await _burst(fresh, pieces, race, streams=mode == "stream")
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                fresh.slack.heal()
                await fresh.rest()
                assert not fresh.events("turn.failed")
                assert _whole(fresh) == text, (mode, race)
                _settled_streams(fresh)
                _in_order(fresh)


async def _burst(world: SlackWorld, pieces: list[str], race: str, *, streams: bool) -> None:
    """Stream the pieces and end, while appends are slow or come too late."""
    first = 1 if race != "none" else 0
    world.harness.tell(*(Delta(piece) for piece in pieces[:first]))
    await world.pass_(2 * first)
    gate = None
    if race.startswith("held"):
        gate = world.slack.hold("chat.appendStream", "before")
    elif race == "lost":
        for one in world.everywhere():
            if one.stream is not None:
                one.stream.state = "errored"
    world.harness.tell(*(Delta(piece) for piece in pieces[first:100]))
    await world.pass_(0.04)
    world.harness.tell(*(Delta(piece) for piece in pieces[100:]))
    await world.pass_(0.01 if race == "none" else 2)
    world.harness.tell(Answer(""))
    await world.until(lambda: world.events("turn.completed"), "the end")
    if gate is not None:
        for _ in range(50):
            await world.pass_(0.001)
        assert not streams or gate.arrived
        assert not world.calls("chat.stopStream")
        if race == "held long":
            await world.pass_(5)
        gate.release()
    if race == "lost" and streams:
        assert [call for call in world.calls("chat.appendStream") if call.error == NOT_STREAMING]


def _in_order(world: SlackWorld) -> None:
    """Check that no append took effect behind the stop of its stream."""
    stopped = set()
    for call in world.slack.calls():
        if call.method == "chat.stopStream" and call.took_effect:
            stopped.add(call.args["ts"])
        if call.method == "chat.appendStream" and call.took_effect:
            assert call.args["ts"] not in stopped


@judge("S-118")
async def a_final_answer_is_tried_again(world: SlackWorld, case: Case, _: Any) -> None:
    """After Slack's own delay, behind a restart too, until a quarter of an hour has passed."""
    _post, stub, reply, restart = steps_of(case)
    for restarts in (True, False):
        async with world.fresh() as fresh:
            fresh.stub(stub)
            await begin(fresh, case, "post")
            await fresh.play(reply)
            await fresh.until(lambda: fresh.events("turn.completed"), "the end")
            await fresh.at(restart["at_s"])
            before = len(fresh.calls("chat.postMessage"))
            if restarts:
                await fresh.restart()
            await fresh.within(60, lambda: fresh.said(ROOT), "the answer")
            await fresh.rest()
            assert fresh.words(ROOT) == ["final"]
            times = [call.at for call in fresh.calls("chat.postMessage")]
            assert len(times) == stub["times"] + 1
            for run in [times[:before], times[before:]] if restarts else [times]:
                for one, next_ in itertools.pairwise(run):
                    assert next_ - one >= 1
    for outage in (840, 1200):
        async with world.fresh() as fresh:
            fresh.stub({**stub, "times": None})
            await begin(fresh, case, "post")
            await fresh.play(reply)
            await fresh.at(outage)
            fresh.slack.heal()
            tried = len(fresh.calls("chat.postMessage"))
            await fresh.at(outage + 120)
            if outage == 840:
                assert fresh.words(ROOT) == ["final"]
            else:
                assert fresh.words(ROOT) == []
                assert len(fresh.calls("chat.postMessage")) == tried


@judge("S-120")
async def a_withdrawn_question_has_no_answer(world: SlackWorld, case: Case, _: Any) -> None:
    """Whether Slack told of it, or a look, or the post's own answer: nothing is left to see."""
    steps = steps_of(case)
    deleted = next(step for step in steps if step["at_s"] == 2)
    stubs = [step for step in steps if step["do"] == "stub"]
    for mode in MODES:
        for told in ("event", "look", "stray"):
            async with world.fresh() as fresh:
                await begin(fresh, case, mode)
                for stub in stubs:
                    if told != "stray" or stub["method"] != "conversations.replies":
                        fresh.stub(stub)
                await fresh.at(deleted["at_s"])
                if told == "event":
                    answer = await fresh.play(deleted)
                    assert answer is not None
                    assert answer.status == 200
                elif told == "look":
                    fresh.delete(CHANNEL, ROOT)
                else:  # it is there to look at, and gone when the answer comes
                    _delete_behind_a_look(fresh)
                await fresh.at(5)
                fresh.harness.tell(Answer("answer"))
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                await fresh.rest()
                assert fresh.everywhere() == [], (mode, told)
                if told != "stray":
                    assert not fresh.calls("chat.postMessage"), (mode, told)
                    assert not fresh.calls("chat.startStream"), (mode, told)


def _delete_behind_a_look(world: SlackWorld) -> None:
    def gone(_: Mapping[str, Any]) -> bool:
        world.delete(CHANNEL, ROOT)
        return False

    for method in ("chat.postMessage", "chat.startStream"):
        world.slack.fail(method, when=gone)


@judge("S-121")
async def where_nobody_can_reply(world: SlackWorld, case: Case, _: Any) -> None:
    """The answer is shown once beside the thread, to who asked; nothing is tried for ever."""
    _post, stub, reply = steps_of(case)
    for mode in MODES:
        for stubbed in (True, False):
            async with world.fresh() as fresh:
                if stubbed:
                    fresh.stub(stub)
                    fresh.stub({**stub, "method": "chat.startStream"})
                await begin(fresh, case, mode)
                if not stubbed:
                    fresh.slack.state.channels[CHANNEL].posts[ROOT].subtype = "channel_join"
                await fresh.play(reply)
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                await fresh.rest()
                (shown,) = fresh.everywhere()
                assert shown.root is None
                text = f"{shown.text} {shown.blocks}"
                assert reply["text"] in text
                assert shown.only_for == "U0HUMAN001" or "<@U0HUMAN001>" in text
                posts = len(fresh.calls("chat.postMessage"))
                assert posts <= 3
                await fresh.restart()
                await fresh.at(fresh.now_s + 120)
                assert len(fresh.everywhere()) == 1
                assert len(fresh.calls("chat.postMessage")) == posts


@judge("S-127")
async def an_answer_outlives_the_process(world: SlackWorld, case: Case, _: Any) -> None:
    """Killed between the end of the turn and the post, it is posted once behind the start."""
    _post, reply, kill, start, expected = steps_of(case)
    moments = ("turn.completed", "intent", "receipt", "dropped", "on its way")
    for mode in MODES:
        for moment in moments:
            for power_cut in (False, True) if mode == "post" else (False,):
                async with world.fresh() as fresh:
                    await begin(fresh, case, mode)
                    await fresh.at(reply["at_s"])
                    await _die(fresh, moment, reply["text"], power_cut=power_cut)
                    await fresh.at(start["at_s"])
                    await fresh.start()
                    fresh.harness.free()
                    await fresh.at(expected["at_s"])
                    await fresh.rest()
                    where = (mode, moment, power_cut)
                    assert _whole(fresh) in (reply["text"], "report please"), where
                    if not power_cut:
                        assert _whole(fresh) == reply["text"], where
                        if mode == "post":
                            fresh.expect_call(expected)
                    assert len(fresh.everywhere()) == 1, where
    del kill
    for mode in MODES:
        async with world.fresh() as fresh:
            await begin(fresh, case, mode)
            await _die(fresh, "turn.completed", reply["text"])
            await fresh.at(2 * 3600)
            await fresh.start()
            await fresh.at(2 * 3600 + 30)
            await fresh.rest()
            shown = _whole(fresh)
            assert reply["text"] in shown
            assert shown != reply["text"], "a note about the delay"
            assert len(fresh.everywhere()) == 1


async def _die(world: SlackWorld, moment: str, text: str, *, power_cut: bool = False) -> None:
    """Answer, and be killed at a moment before the host knows of the post."""
    methods = ("chat.postMessage", "chat.stopStream", "chat.startStream", "chat.update")
    gates = []
    world.slack.options.own_events = False  # Slack would wait for a host that dies meanwhile
    if moment == "on its way":
        gates = [world.slack.hold(method, "after") for method in methods]
    elif moment != "receipt":
        for method in methods:
            world.slack.drop(method, "before", times=None)
    if moment in ("turn.completed", "intent", "receipt"):
        world.host.witness.die_at = moment
    world.harness.tell(Answer(text))
    if moment == "on its way":
        await world.until(lambda: any(gate.arrived for gate in gates), "the post on its way")
        await world.until(lambda: world.events("turn.completed"), "the end of the turn")
    elif moment == "dropped":
        await world.until(lambda: world.slack.calls("chat.postMessage"), "the post")
        await world.until(lambda: world.events("turn.completed"), "the end of the turn")
    else:
        await world.until(lambda: world.disk.dead, "the death")
    await world.host.kill(power_cut=power_cut)
    world.slack.heal()
    world.slack.options.own_events = True
    await world.slack.settled()


@judge("S-129")
async def a_lost_placeholder_is_let_go(world: SlackWorld, case: Case, variant: Any) -> None:
    """No more edits of it, and the answer anew, once; an answer that was removed stays away."""
    _post, stub, reply = steps_of(case)
    for way in WAYS:
        for removed in (False, True):
            async with world.fresh() as fresh:
                await begin(fresh, case, *way)
                fresh.harness.tell(Delta("final "))
                await fresh.at(stub["at_s"])
                fresh.stub(stub, variant)
                placeholder = [one.ts for one in fresh.said(ROOT)]
                if removed and placeholder:
                    await _remove(fresh, placeholder[0])
                for second in (4, 5, 6, 7):
                    await fresh.at(second)
                    fresh.harness.tell(Delta(f"piece{second} "))
                await fresh.at(reply["at_s"])
                fresh.harness.tell(Answer(reply["text"]))
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                await fresh.rest()
                assert not fresh.events("turn.failed")
                refused = [call for call in fresh.calls("chat.update") if not call.took_effect]
                assert len(refused) <= 1, (way, removed)
                if way == ("stream", False):
                    assert placeholder
                    assert refused or removed
                text = "final piece4 piece5 piece6 piece7 final answer"
                full = [words for words in fresh.words(ROOT) if words.endswith(reply["text"])]
                assert [" ".join(one.split()) for one in full] == [text], (way, removed)
                # What is removed when all is done stays away, whatever happens then.
                ends = [text.endswith(reply["text"]) for text in fresh.words(ROOT)]
                await _remove(fresh, fresh.said(ROOT)[ends.index(True)].ts)
                await fresh.restart()
                await fresh.rest()
                assert not [one for one in fresh.words(ROOT) if reply["text"] in one]


async def _remove(world: SlackWorld, ts: str) -> None:
    """Let a person take a message of the agent away."""
    message = world.slack.message(ts)
    message.stream = None
    world.slack.user("U0HUMAN001").delete(message)
    await world.slack.settled()


@judge("S-130")
async def every_edit_says_all(world: SlackWorld, case: Case, _: Any) -> None:
    """Blocks, attachments and text are given with every edit; behind a turn there is no button."""
    _post, reply, expected = steps_of(case)
    edited = False
    for way in WAYS:
        for before in ([], [Delta("final an")], [Say("working"), Tool("idle", {"seconds": 1})]):
            async with world.fresh() as fresh:
                await begin(fresh, case, *way)
                fresh.harness.tell(*before)
                await fresh.at(reply["at_s"])
                rest = reply["text"][8:] if before and before[0] == Delta("final an") else None
                fresh.harness.tell(Answer(reply["text"] if rest is None else rest))
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                await fresh.at(expected["at_s"])
                await fresh.rest()
                updates = fresh.calls(expected["method"])
                edited = edited or bool(updates)
                for call in updates:
                    for name in (*expected["args_have"], "attachments"):
                        assert name in call.args, (way, call)
                    assert call.args["text"].strip()
                for message in fresh.everywhere():
                    kinds = [block["type"] for block in message.blocks or []]
                    assert "actions" not in kinds, (way, message)
                assert reply["text"] in _whole(fresh)
    assert edited
