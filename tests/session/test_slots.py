"""Slots: a cap, lanes that take turns, and places in the queue."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from threadline.session.slots import Slots, Ticket


async def test_without_a_limit_everybody_runs() -> None:
    slots = Slots(None)
    assert all(slots.ask("a").granted for _ in range(100))
    assert slots.free


async def test_a_full_house_makes_others_wait_in_order() -> None:
    slots = Slots(2)
    running = [slots.ask("a"), slots.ask("a")]
    waiting = [slots.ask("a") for _ in range(3)]
    assert [t.granted for t in running + waiting] == [True, True, False, False, False]
    assert [slots.position(t) for t in waiting] == [1, 2, 3]
    assert not slots.free
    slots.give_back(running[0])
    assert [t.granted for t in waiting] == [True, False, False]
    assert slots.position(waiting[1]) == 1
    await waiting[0].wait()


async def test_lanes_take_turns() -> None:
    slots = Slots(1)
    running = slots.ask("x")
    storm = [slots.ask("alerts") for _ in range(4)]
    people = [slots.ask("slack"), slots.ask("http")]
    waiting = [*storm, *people]
    assert [slots.position(t) for t in waiting] == [1, 4, 5, 6, 2, 3]
    order = []
    for _ in range(6):
        slots.give_back(running)
        running = next(t for t in waiting if t.granted and t not in order)
        order.append(running)
    assert order == [storm[0], *people, *storm[1:]]


async def test_whoever_leaves_the_queue_makes_room() -> None:
    slots = Slots(1)
    running = slots.ask("a")
    gone, other = slots.ask("b"), slots.ask("c")
    slots.give_back(gone)
    assert slots.position(other) == 1
    slots.give_back(running)
    assert other.granted
    slots.give_back(other)
    assert slots.free
    assert slots.running == slots.waiting == 0


async def test_a_cancelled_waiter_does_not_take_the_slot_along() -> None:
    slots = Slots(1)
    running, ticket = slots.ask("a"), slots.ask("a")
    waiter = asyncio.ensure_future(ticket.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait([waiter])
    slots.give_back(running)
    assert ticket.granted


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=60),
)
def test_positions_tell_the_order_of_grants(limit: int, moves: list[tuple[str, bool, int]]) -> None:
    async def play() -> None:
        slots = Slots(limit)
        tickets: list[Ticket] = []
        for lane, leaves, which in moves:
            if leaves and tickets:
                slots.give_back(tickets.pop(which % len(tickets)))
            else:
                tickets.append(slots.ask(lane))
            running = [t for t in tickets if t.granted]
            waiting = [t for t in tickets if not t.granted]
            assert slots.running == len(running) <= limit
            assert slots.waiting == len(waiting)
            assert not waiting or len(running) == limit
            positions = sorted(slots.position(t) for t in waiting)
            assert positions == list(range(1, len(waiting) + 1))
        queue = sorted((t for t in tickets if not t.granted), key=slots.position)
        running = [t for t in tickets if t.granted]
        for ticket in queue:
            slots.give_back(running.pop())
            assert ticket.granted
            running.append(ticket)

    asyncio.run(play())
