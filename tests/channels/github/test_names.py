"""A conversation keeps its name, whatever its repository is called."""

from __future__ import annotations

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
    assert await Seen().has(kept, "pr:a/b#1", "issue_comment/1")
    assert not await Seen().has(kept, "pr:a/b#1", "issue_comment/2")


async def test_the_newest_three_hundred_are_kept(kept: Any) -> None:
    seen = Seen()
    for number in range(400):
        await seen.first(kept, "pr:a/b#1", f"issue_comment/{number}", f"d{number}")
    assert len(kept.values["seen/pr:a/b#1"]) == 300
    assert await seen.first(kept, "pr:a/b#1", "issue_comment/100", "new") == "d100"
    assert await seen.first(kept, "pr:a/b#1", "issue_comment/99", "new") == "new"


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
