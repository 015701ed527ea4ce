"""Slack outbound: what an answer looks like: whole, within every limit, and harmless."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.slack_world import SlackWorld
from tests.cases.told import Answer, Delta, Say, Tool

from threadline.agent.tools import tool

__all__ = ["MODES", "WAYS", "answered", "begin", "refuse_streams"]

MODES = ("post", "stream", "agent")
WAYS = (("post", True), ("stream", True), ("stream", False), ("agent", True))
"""Each reply mode, and streams on a server that has none."""

ROOT = "1760000000.000100"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*")
_TOO_LONG = ("invalid_blocks", "msg_blocks_too_long", "msg_too_long", "no_text")


def refuse_streams(world: SlackWorld) -> None:
    """Be a Slack that does not know streams."""
    for method in ("chat.startStream", "chat.appendStream", "chat.stopStream"):
        world.slack.fail(method, "unknown_method", times=None)


async def begin(world: SlackWorld, case: Case, mode: str, streams: bool = True) -> None:
    """Post the question, and wait until the turn waits for what it is told."""
    if not streams:
        refuse_streams(world)
    world.harness.waits = True
    await world.start(reply=mode)
    await world.play(steps_of(case)[0])
    await world.until(lambda: world.harness.begun == 1, "a running turn")


async def answered(world: SlackWorld, case: Case, text: str, way: tuple[str, bool]) -> list[str]:
    """Return what the thread shows of an answer, message by message, when all is done."""
    await begin(world, case, *way)
    await world.at(1)
    world.harness.tell(Answer(text))
    await world.until(lambda: world.events("turn.completed"), "the end of the turn")
    await world.rest()
    _within_limits(world)
    assert {one.root for one in world.everywhere()} == {ROOT}
    return world.words(ROOT)


def _within_limits(world: SlackWorld) -> None:
    for call in world.slack.calls():
        assert call.error not in _TOO_LONG, call
        blocks = call.args.get("blocks") or []
        assert len(blocks) <= 50
        texts = [block.get("text") for block in blocks]
        assert sum(len(text) for text in texts if isinstance(text, str)) <= 12_000
        assert all(len(text["text"]) <= 3_000 for text in texts if isinstance(text, dict))
        assert len(call.args.get("text") or "") <= 40_000


@judge("S-101")
async def a_long_answer_arrives_whole(world: SlackWorld, case: Case, _: Any) -> None:
    """In order and in the thread; cut between paragraphs, else lines, else words."""
    (reply,) = steps_of(case)[1:]
    paragraphs = [f"Paragraph {n}: " + f"some words of it {n}. " * 30 for n in range(40)]
    lines = [f"Line {n}: " + f"words {n} " * 8 for n in range(400)]
    for way in WAYS:
        for text in (reply["text"], "\n\n".join(paragraphs), "\n".join(lines)):
            async with world.fresh() as fresh:
                parts = await answered(fresh, case, text, way)
                assert "\n".join(parts).split() == text.split()
                if way[0] == "post":
                    whole = {" ".join(one.split()) for one in (*paragraphs, *lines, text)}
                    glue = "\n\n" if text.startswith("Par") else "\n"
                    pieces = [" ".join(p.split()) for part in parts for p in part.split(glue)]
                    assert set(pieces) <= whole


@judge("S-102")
async def a_cut_fence_is_closed_and_reopened(world: SlackWorld, case: Case, _: Any) -> None:
    """Each part is balanced, with the same fence; every line of code is there once, whole."""
    (reply,) = steps_of(case)[1:]
    code = [f"print('line {n} of the generated report')" for n in range(700)]
    inner = ["```python", *code[:300], "```", *code[300:]]
    texts = {
        reply["text"]: code[:200],
        "\n".join(["Here:", "```python", *code, "```", "Run it."]): code,
        "\n".join(["Here:", "````markdown", *inner, "````", "Run it."]): inner,
    }
    for way in WAYS:
        for text, lines in texts.items():
            async with world.fresh() as fresh:
                parts = await answered(fresh, case, text, way)
                opened = re.search(r"^(`{3,})(\w+)$", text, re.MULTILINE)
                assert opened is not None
                found = [fence for part in parts for fence in _fences(part)]
                assert {fence[:2] for fence in found} == {opened.groups()}
                assert [line for fence in found for line in fence[2]] == lines
                assert parts[0].startswith(text.split("\n")[0])
                assert parts[-1].rstrip().endswith(text.split("\n")[-1])


def _fences(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the fences of a text: marks, language, lines; each has its end."""
    inside: tuple[str, str, list[str]] | None = None
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if inside is None:
            if found is not None:
                inside = found.group(1), found.group(2), []
        elif found and found.group(1).startswith(inside[0]) and not found.group(2):
            yield inside
            inside = None
        else:
            inside[2].append(line)
    assert inside is None, f"an open fence: {text[-200:]}"


@judge("S-103")
async def the_sum_of_markdown_counts(world: SlackWorld, case: Case, _: Any) -> None:
    """Thirteen thousand characters are two messages, neither refused."""
    (reply,) = steps_of(case)[1:]
    for way in WAYS:
        async with world.fresh() as fresh:
            parts = await answered(fresh, case, reply["text"], way)
            assert " ".join(parts).split() == reply["text"].split()
            if way == ("post", True):
                assert len(parts) == 2
            assert len(parts) >= 2


@judge("S-104")
async def a_long_last_edit_loses_nothing(world: SlackWorld, case: Case, _: Any) -> None:
    """No edit is over 4,000 characters; the whole text is shown once, and nothing else."""
    _post, stub, reply = steps_of(case)
    for way in WAYS:
        for before in ((), (Say("thinking hard"), Tool("idle", {"seconds": 5}))):
            async with world.fresh() as fresh:
                fresh.stub(stub)
                await begin(fresh, case, *way)
                fresh.harness.tell(*before)
                await fresh.at(reply["at_s"] + 6)
                fresh.harness.tell(Answer(reply["text"]))
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                await fresh.rest()
                shown = "".join(fresh.words(ROOT))
                assert shown.count("x") == len(reply["text"]), way
                assert "".join(shown.split()).strip("x") in ("", "thinkinghard"), (way, shown)
                assert fresh.slack.status("C0CHAN0001", ROOT) == ""
                for call in fresh.calls("chat.update"):
                    assert len(call.args["text"]) <= 4_000
                    assert call.ok
    for way in WAYS:  # the placeholder holds the beginning of the text
        async with world.fresh() as fresh:
            fresh.stub(stub)
            await begin(fresh, case, *way)
            fresh.harness.tell(Delta("thinking x "))
            await fresh.at(6)
            fresh.harness.tell(Answer(reply["text"]))
            await fresh.until(lambda: fresh.events("turn.completed"), "the end")
            await fresh.rest()
            shown = "".join("".join(fresh.words(ROOT)).split())
            assert shown == "thinkingx" + reply["text"]
            updates = fresh.calls("chat.update")
            assert way != ("stream", False) or updates
            assert all(len(call.args["text"]) <= 4_000 for call in updates)


@judge("S-109")
async def outside_text_calls_nobody(world: SlackWorld, case: Case, _: Any) -> None:
    """Neither broadcasts nor groups nor people are called, unless allowed; no odd links."""
    (reply,) = steps_of(case)[1:]
    quoted = str(reply["text"]).partition(": ")[2]

    @tool
    def read_ticket() -> str:
        """Return what somebody wrote."""
        return quoted

    live = ("<!channel", "<!here", "<!everyone", "<!subteam", "](javascript:", "<javascript:")
    for way in WAYS:
        for allowed in (False, True):
            async with world.fresh() as fresh:
                fresh.agent["tools"] = [read_ticket]
                fresh.options["mentions"] = {"U0HUMAN002"} if allowed else ()
                await begin(fresh, case, *way)
                fresh.harness.tell(Tool("read_ticket"), Say(quoted), Delta(quoted + " "))
                await fresh.at(5)
                fresh.harness.tell(Answer(reply["text"]))
                await fresh.until(lambda: fresh.events("turn.completed"), "the end")
                await fresh.rest()
                sent = [json.dumps(call.args, ensure_ascii=False) for call in fresh.slack.calls()]
                for text in sent:
                    assert not [token for token in live if token in text], text
                    assert allowed or "<@U0HUMAN002" not in text, text
                for call in fresh.slack.calls():
                    assert not call.args.get("link_names")
                    assert call.args.get("parse") in (None, "none")
                shown = "\n".join(fresh.words(ROOT)).replace("\u200b", "")
                assert ("<@U0HUMAN002>" in shown) is allowed
                for word in ("The ticket says:", "channel", "here", "everyone", "click"):
                    assert word in shown


@judge("S-110")
async def tables_fit(world: SlackWorld, case: Case, _: Any) -> None:
    """A message has one table at most, of 100 rows and 20 columns; no cell is lost or split."""
    (reply,) = steps_of(case)[1:]
    wide = "|".join(f" c{n} " for n in range(24))
    wide_table = f"|{wide}|\n|{'---|' * 24}\n|{wide.replace('c', 'v')}|\n"
    code = "| k | v |\n|---|---|\n| `p \\| q` | 2 |\n"
    for way in WAYS:
        for text in (reply["text"], f"{code}\n{reply['text']}\n{wide_table}"):
            async with world.fresh() as fresh:
                parts = await answered(fresh, case, text, way)
                for message in fresh.said(ROOT):
                    _check_tables(message.blocks or [{"type": "markdown", "text": message.text}])
                shown = "\n".join(parts)
                assert len(re.findall(r"\ba \\?\| b\b", shown)) == 1
                assert len(re.findall(r"^text$", shown, re.MULTILINE)) == 1
                for number in range(120):
                    row = rf"^\W*{number}\W+1\W+2\W+3\W+4\W+5\W*$"
                    assert len(re.findall(row, shown, re.MULTILINE)) == 1, (way, number)
                if text != reply["text"]:
                    assert len(re.findall(r"\bp \\?\| q\b", shown)) == 1
                    for number in range(24):
                        assert len(re.findall(rf"\bv{number}\b", shown)) == 1


def _check_tables(blocks: Sequence[Mapping[str, Any]]) -> None:
    """Check the tables of one message, as blocks or in Markdown outside of fences."""
    tables = [block["rows"] for block in blocks if block["type"] == "table"]
    for block in blocks:
        if block["type"] == "markdown":
            tables += _tables(str(block["text"]))
    assert len(tables) <= 1
    for rows in tables:
        assert len(rows) <= 100
        assert all(len(row) <= 20 for row in rows)


def _tables(markdown: str) -> Iterator[list[list[str]]]:
    fence, rows = "", list[list[str]]()
    for line in [*markdown.split("\n"), ""]:
        found = _FENCE.fullmatch(line)
        if found is not None:
            fence = "" if fence else found.group(1)
        if line.lstrip().startswith("|") and not fence:
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            rows += [] if set(line) <= set("|-: ") else [cells]
        elif rows:
            yield rows
            rows = []
