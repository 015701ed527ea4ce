"""A conversation keeps its name, whatever its repository is called."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from threadline_github.inbound.decide import Place
from threadline_github.inbound.names import Names, Repository, Thread
from threadline_github.inbound.seen import Seen
from threadline_github.inbound.stops import asks_to_stop


class Kept:
    """The part of a context that is kept."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.writes = 0
        self.kv = self

    async def get(self, key: str) -> Any:
        return self.values.get(key)

    async def put(self, key: str, value: Any) -> None:
        self.writes += 1
        self.values[key] = value


@pytest.fixture
def kept() -> Any:
    return Kept()


def place(identity: int, name: str, number: int = 7) -> Place:
    return Place(identity, name, "pr", number)


async def test_a_conversation_is_named_after_its_repository_when_it_was_first_seen(
    kept: Any,
) -> None:
    thread = await Names().thread_of(kept, place(1, "octo/widget"), 44)
    assert thread == Thread(Repository(1, "octo/widget", "octo/widget", 44), "pr", 7)
    assert thread.token == "pr:octo/widget#7"
    assert await Names().thread(kept, "pr:octo/widget#7") == thread


async def test_a_rename_splits_nothing(kept: Any) -> None:
    names = Names()
    await names.thread_of(kept, place(1, "octo/widget"), 44)
    thread = await names.thread_of(kept, place(1, "octo/gadget"), None)
    assert thread.token == "pr:octo/widget#7"
    assert thread.repository.name == "octo/gadget"
    assert thread.repository.installation == 44
    assert await Names().thread(kept, "pr:octo/widget#7") == thread


async def test_another_repository_that_takes_the_name_has_conversations_of_its_own(
    kept: Any,
) -> None:
    names = Names()
    await names.thread_of(kept, place(1, "octo/widget"), 44)
    await names.thread_of(kept, place(1, "octo/gadget"), 44)
    other = await names.thread_of(kept, place(2, "octo/widget"), 44)
    assert other.token == "pr:octo/widget~2#7"
    found = await Names().thread(kept, other.token)
    assert found is not None
    assert found.repository.id == 2
    assert found.repository.name == "octo/widget"


async def test_after_a_transfer_the_old_installation_has_no_say(kept: Any) -> None:
    names = Names()
    await names.thread_of(kept, place(1, "octo/widget"), 44)
    before = await names.moved(kept, 1, "other/widget")
    assert before is not None
    assert before.installation == 44
    thread = await names.thread_of(kept, place(1, "other/widget"), None)
    assert (thread.repository.installation, thread.repository.left) == (None, True)
    thread = await names.thread_of(kept, place(1, "octo/widget"), 44)
    assert (thread.repository.name, thread.repository.installation) == ("other/widget", None)
    thread = await names.thread_of(kept, place(1, "other/widget"), 55)
    assert (thread.repository.installation, thread.repository.left) == (55, False)
    assert thread.token == "pr:octo/widget#7"


async def test_a_rename_keeps_the_installation(kept: Any) -> None:
    names = Names()
    await names.thread_of(kept, place(1, "octo/widget"), 44)
    await names.moved(kept, 1, "octo/gadget")
    thread = await names.thread_of(kept, place(1, "octo/gadget"), None)
    assert (thread.repository.installation, thread.repository.left) == (44, False)


def then(identity: int, name: str, minute: int) -> Place:
    return Place(identity, name, "pr", 7, f"2025-10-09T08:{minute:02}:00Z")


async def test_what_comes_late_does_not_bring_the_old_name_back(kept: Any) -> None:
    names = Names()
    await names.thread_of(kept, then(1, "octo/widget", 1), 44)
    await names.moved(kept, 1, "octo/gadget", as_of="2025-10-09T08:05:00Z")
    for known in (names, Names()):
        thread = await known.thread_of(kept, then(1, "octo/widget", 4), 44)
        assert (thread.repository.name, thread.token) == ("octo/gadget", "pr:octo/widget#7")
    await names.moved(kept, 1, "octo/thing", as_of="2025-10-09T08:03:00Z")
    assert (await names.thread_of(kept, then(1, "octo/thong", 6), 44)).repository.name == (
        "octo/thong"
    )


async def test_a_name_belongs_to_one_repository(kept: Any) -> None:
    """That the first one was renamed was never told: it must not be spoken of by that name."""
    await Names().thread_of(kept, then(1, "octo/widget", 1), 44)
    names = Names()
    await names.thread_of(kept, then(2, "octo/widget", 5), 44)
    first = await names.thread(kept, "pr:octo/widget#7")
    assert first is not None
    assert (first.repository.id, first.repository.name) == (1, "")
    assert (await names.thread_of(kept, then(1, "octo/widget", 2), 44)).repository.name == ""
    assert (await names.thread_of(kept, then(1, "octo/gadget", 6), 44)).repository.name == (
        "octo/gadget"
    )


async def test_two_that_are_seen_at_once_share_no_conversation() -> None:
    class Slow(Kept):
        async def get(self, key: str) -> Any:
            await asyncio.sleep(0)
            return await super().get(key)

    kept: Any = Slow()
    names = Names()
    seen = [names.thread_of(kept, place(number, "octo/widget"), 44) for number in (1, 2)]
    assert len({thread.token for thread in await asyncio.gather(*seen)}) == 2


async def test_what_was_never_seen_is_nothing(kept: Any) -> None:
    names = Names()
    assert await names.moved(kept, 1, "octo/widget") is None
    assert await names.thread(kept, "pr:octo/widget#7") is None
    assert await names.thread(kept, "nonsense") is None


async def test_nothing_is_written_again_that_is_known(kept: Any) -> None:
    names = Names()
    await names.thread_of(kept, place(1, "octo/widget"), 44)
    writes = kept.writes
    await names.thread_of(kept, place(1, "octo/widget", 8), 44)
    await names.thread_of(kept, place(1, "octo/widget", 9), None)
    assert kept.writes == writes


# Copies of the same thing


async def test_copies_have_the_id_of_the_first(kept: Any) -> None:
    assert await Seen().first(kept, "pr:a/b#1", "issue_comment/1", "d1") == "d1"
    assert await Seen().first(kept, "pr:a/b#1", "issue_comment/1", "d2") == "d1"
    assert await Seen().first(kept, "pr:a/b#2", "issue_comment/1", "d3") == "d3"


async def test_the_newest_three_hundred_are_kept(kept: Any) -> None:
    seen = Seen()
    for number in range(400):
        await seen.first(kept, "pr:a/b#1", f"issue_comment/{number}", f"d{number}")
    assert len(kept.values["seen/pr:a/b#1"]) == 300
    assert await seen.first(kept, "pr:a/b#1", "issue_comment/100", "new") == "d100"
    assert await seen.first(kept, "pr:a/b#1", "issue_comment/99", "new") == "new"


async def test_copies_that_come_at_once_have_their_work_done_once(kept: Any) -> None:
    seen, done = Seen(), []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("stopped")

    once = [seen.once(kept, "pr:a/b#1", "issue_comment/1", one, work) for one in ("d1", "d2")]
    await asyncio.gather(*once)
    assert done == ["stopped"]


async def test_work_that_failed_is_done_when_it_comes_again(kept: Any) -> None:
    seen, tries = Seen(), []

    async def work() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError

    with pytest.raises(OSError):
        await seen.once(kept, "pr:a/b#1", "issue_comment/1", "d1", work)
    await seen.once(kept, "pr:a/b#1", "issue_comment/1", "d1", work)
    assert len(tries) == 2


# Stops


@pytest.mark.parametrize(
    "text",
    [
        "@agent stop",
        "@Agent[bot], stop!",
        "stop",
        "/stop",
        "@agent cancel this please.",
        "@agent abort\n\n> earlier words",
    ],
)
def test_a_word_that_stops(text: str) -> None:
    assert asks_to_stop(text, "agent[bot]")


@pytest.mark.parametrize(
    "text",
    [
        "@agent stop the deploy of checkout",
        "@agent why does it stop?",
        "@agent `stop`",
        "> stop",
        "@agent",
        "nonstop",
        "",
    ],
)
def test_words_that_do_not(text: str) -> None:
    assert not asks_to_stop(text, "agent[bot]")
