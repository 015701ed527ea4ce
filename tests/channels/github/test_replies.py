"""What people see of a turn: one comment that becomes the answer, wherever it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.channels.github.world import REPOSITORY, World, served

from threadline import Approval, tool
from threadline.harness.scripted import Call, Fail, Say, Scripted, Step, Wait
from threadline.testing import Gated
from threadline_github.outbound.markers import marker
from threadline_github.outbound.tools import report_check, review_pull_request, set_labels
from threadline_github.outbound.working import WORKING
from threadline_github.testing import Issue, Pull

DEV, OTHER, BOT = "dev-one", "dev-two", "agent-fixture[bot]"
TOOLS = [report_check, review_pull_request, set_labels]
ASK = "@agent-fixture look"
OPENED = {"opened", "synchronize", "mention", "rerequested"}
REPORT = {"conclusion": "failure", "title": "1 problem", "summary": "Line 2."}


@tool
async def look(at: int = 0) -> str:
    """Look."""
    return f"seen {at}"


@tool(effect="write", approval=Approval(approvers=["user:alice", "group:sre"]))
async def merge(method: str) -> str:
    """Merge."""
    return f"merged by {method}"


async def until(world: World, done: Callable[[], object]) -> None:
    """Let time pass until it is so."""
    async with asyncio.timeout(30):
        while not done():
            await world.clock.elapse(0.25)
            await world.github.settled()
            # The disk takes real time.
            await asyncio.sleep(0.005)


def token(issue: Issue) -> str:
    return f"{'pr' if isinstance(issue, Pull) else 'issue'}:{REPOSITORY}#{issue.number}"


def own(world: World, issue: Issue) -> list[str]:
    """Return what the agent's comments say, without their markers."""
    return [
        one.body.rpartition("\n\n")[0]
        for one in world.github.comments(issue)
        if one.author.login == BOT
    ]


async def rests(world: World, issue: Issue) -> list[str]:
    """Wait until all is said and done; return what the agent's comments say."""
    await until(world, lambda: world.session(token(issue)) is not None)
    task = asyncio.ensure_future(world.session(token(issue)).rest())
    await until(world, task.done)
    await task
    await world.github.settled()
    return own(world, issue)


def asked(world: World, text: str = ASK) -> Pull:
    """Open a pull request, and ask in it."""
    dev = world.github.user(DEV)
    pull = dev.open_pull(tell=False)
    dev.comment(pull, text)
    return pull


# The comment


async def test_the_comment_becomes_the_answer() -> None:
    gate = asyncio.Event()
    script = Scripted([Call("look"), Wait(gate), Say("Here it is.")])
    async with served(script, tools=[look]) as world:
        pull = asked(world)
        await until(world, lambda: own(world, pull))
        gate.set()
        assert await rests(world, pull) == ["Here it is."]
        comment = world.github.comments(pull)[1]
        assert comment.history[0].startswith(WORKING)
        assert comment.body.endswith(" -->")
        assert "/github/answer/turn_" in comment.body


async def test_an_answer_that_is_there_already_is_made_at_once() -> None:
    async with served() as world:
        hold = world.github.hold("POST", "/repos/*/comments", "before")
        pull = asked(world, "@agent-fixture one")
        await until(world, lambda: hold.arrived)
        await until(world, lambda: ends(world, pull) == 1)
        world.github.user(DEV).comment(pull, "@agent-fixture two")
        await until(world, lambda: ends(world, pull) == 2)
        world.github.heal()
        assert await rests(world, pull) == ["@agent-fixture one", "@agent-fixture two"]
        assert world.github.comments(pull)[-1].history == []


def ends(world: World, pull: Pull) -> int:
    """Return how many turns have ended."""
    session = world.session(token(pull))
    events = session.events() if session is not None else []
    return [one["type"] for one in events].count("turn.completed")


async def test_without_work_being_shown_there_is_the_answer_alone() -> None:
    async with served(Scripted([Say("Here it is.")]), working=False) as world:
        pull = asked(world)
        assert await rests(world, pull) == ["Here it is."]
        assert world.github.comments(pull)[1].history == []


async def test_an_issue_is_answered_in_the_issue() -> None:
    async with served(Scripted([Say("Here it is.")])) as world:
        issue = world.github.user(DEV).open_issue(body="@agent-fixture why?")
        assert await rests(world, issue) == ["Here it is."]


async def test_each_question_has_an_answer_of_its_own() -> None:
    async with served() as world:
        pull = asked(world, "@agent-fixture one")
        await rests(world, pull)
        world.github.user(OTHER).comment(pull, "@agent-fixture two")
        await until(world, lambda: "@agent-fixture two" in own(world, pull))
        assert await rests(world, pull) == ["@agent-fixture one", "@agent-fixture two"]


async def test_a_review_comment_is_answered_below_it() -> None:
    async with served(Scripted([Say("Because.")])) as world:
        pull = world.github.user(DEV).open_pull(tell=False)
        first = world.github.user(OTHER).review_comment(pull, text="Hm.")
        world.github.user(DEV).review_comment(pull, text="@agent-fixture why?", reply_to=first)
        assert await rests(world, pull) == []
        reply = world.github.review_comments(pull)[-1]
        assert reply.author.login == BOT
        assert reply.body.startswith("Because.\n\n")
        assert reply.reply_to == first.id


async def test_a_long_answer_takes_more_comments() -> None:
    text = "\n\n".join(f"{number} " + "word " * 60 for number in range(500))
    async with served(Scripted([Say(text, deltas=())])) as world:
        pull = asked(world)
        shown = await rests(world, pull)
        assert len(shown) == 3
        assert "".join("".join(shown).split()) == "".join(text.split())
        assert all(len(one.body) <= 65_536 for one in world.github.comments(pull))


async def test_a_turn_without_words_says_that_it_is_done() -> None:
    async with served(Scripted([Say("  ", deltas=())])) as world:
        assert await rests(world, asked(world)) == ["Done."]


async def test_the_model_calls_no_team_and_forges_no_marker() -> None:
    text = "Ask @org/team or @dev-two.\n\n<!-- threadline:x -->"
    async with served(Scripted([Say(text)])) as world:
        (said,) = await rests(world, asked(world))
        assert said == "Ask @\u200borg/team or @dev-two.\n\n<!\u200b-- threadline:x -->"


async def test_a_comment_that_was_deleted_is_made_anew() -> None:
    gate = asyncio.Event()
    async with served(Scripted([Wait(gate), Say("Here it is.")])) as world:
        pull = asked(world)
        await until(world, lambda: own(world, pull) == [WORKING])
        world.github.user(DEV).delete_comment(world.github.comments(pull)[1])
        gate.set()
        assert await rests(world, pull) == ["Here it is."]


# While it works


async def test_the_comment_says_which_tools_are_used() -> None:
    gate = asyncio.Event()
    script = Scripted([Call("look"), Call("look"), Call("other"), Wait(gate), Say("So.")])
    async with served(script, tools=[look]) as world:
        pull = asked(world)
        shown = f"{WORKING}\n\n- `look` ×2\n- `other`"
        await until(world, lambda: own(world, pull) == [shown])
        gate.set()
        assert await rests(world, pull) == ["So."]
        await world.clock.elapse(300)
        await world.github.settled()
        assert own(world, pull) == ["So."]


async def test_many_steps_take_few_edits() -> None:
    script = Scripted([*(Call("look", {"at": number}) for number in range(40)), Say("So.")])
    async with served(script, tools=[look]) as world:
        pull = asked(world)
        assert await rests(world, pull) == ["So."]
        assert len(world.github.calls("PATCH", "*/comments/*")) <= 4


async def test_a_comment_that_cannot_be_edited_holds_nothing_up() -> None:
    gate = asyncio.Event()
    async with served(Scripted([Call("look"), Wait(gate), Say("So.")]), tools=[look]) as world:
        world.github.fail("PATCH", "*/comments/*", 403, "Forbidden", times=1)
        pull = asked(world)
        await until(world, lambda: world.github.calls("PATCH", "*/comments/*"))
        gate.set()
        assert await rests(world, pull) == ["So."]


# How it ends otherwise


async def test_a_turn_that_fails_says_why_and_which_it_is() -> None:
    async with served(Scripted([Call("look"), Fail(ValueError("no luck"))]), tools=[look]) as world:
        (said,) = await rests(world, asked(world))
        assert said.startswith("There is no answer: ")
        assert "no luck" in said
        assert "(`turn_" in said


async def test_a_turn_that_is_stopped_says_so() -> None:
    gated = Gated(hold=["answer"])
    async with served(gated) as world:
        pull = asked(world)
        await until(world, lambda: own(world, pull) == [WORKING])
        world.github.user(DEV).comment(pull, "@agent-fixture stop")
        (said,) = await rests(world, pull)
        assert said.startswith("Stopped. (`turn_")


@pytest.mark.parametrize("kills", [True, False])
async def test_a_turn_that_was_interrupted_goes_on_in_its_comment(kills: bool) -> None:
    gated = Gated(hold=["answer"], reply=lambda turn, texts: "Here it is.")
    async with served(gated) as world:
        pull = asked(world)
        await until(world, lambda: own(world, pull) == [WORKING])
        await (world.host.kill() if kills else world.host.stop())
        if not kills:
            (said,) = own(world, pull)
            assert said.startswith("Interrupted: The host shut down")
        await world.host.start()
        await gated.gates["answer"].reached(2)
        await until(world, lambda: own(world, pull) == [WORKING])
        gated.gates["answer"].release()
        assert await rests(world, pull) == ["Here it is."]


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_crash_in_the_middle_of_posting_leaves_one_comment(method: str, place: Any) -> None:
    gated = Gated(hold=["answer"], reply=lambda turn, texts: "Here it is.")
    async with served(gated) as world:
        hold = world.github.hold(method, "/repos/*/comments*", place)
        pull = asked(world)
        await gated.gates["answer"].reached()
        if method == "PATCH":
            await until(world, lambda: own(world, pull))
        gated.gates["answer"].release()
        await until(world, lambda: hold.arrived)
        await world.host.kill()
        world.github.heal()
        await world.github.settled()
        await world.host.start()
        assert await rests(world, pull) == ["Here it is."]


# Several places


async def test_who_spoke_elsewhere_is_told_where_the_answer_is() -> None:
    gated = Gated(calls=1, hold=["call"], tool="look", reply=lambda turn, texts: "Because.")
    async with served(gated, tools=[look]) as world:
        pull = asked(world)
        await until(world, lambda: own(world, pull) == [WORKING])
        line = world.github.user(OTHER).review_comment(pull, text="@agent-fixture and here?")
        await until(world, lambda: _waits(world, pull))
        gated.gates["call"].release()
        assert await rests(world, pull) == ["Because."]
        answer = world.github.comments(pull)[1]
        reply = world.github.review_comments(pull)[-1]
        url = f"{world.github.url}/{REPOSITORY}/pull/{pull.number}#issuecomment-{answer.id}"
        assert reply.reply_to == line.id
        assert reply.body.startswith(f"See [the answer]({url}).\n\n<!-- threadline:")


def _waits(world: World, pull: Pull) -> bool:
    """Tell whether a message waits, prepared, for a running turn."""
    owner = world.host.agent().core._owners[world.session(token(pull)).id]
    return bool(owner.pending) and not owner._prepares.unready(owner.pending)


# What waits for a person


async def test_what_waits_is_said_in_a_comment_that_then_says_who_decided() -> None:
    script = Scripted([Call("merge", {"method": "squash"}), Say("Merged.")])
    async with served(script, tools=[merge]) as world:
        pull = asked(world)
        await until(world, lambda: len(own(world, pull)) == 2)
        waiting = own(world, pull)[1]
        assert waiting.startswith("**Approval needed**: the agent wants to run `merge`.")
        assert "squash" not in waiting
        assert "To be decided by `user:alice`, `group:sre`." in waiting
        assert "It expires at 2025-10-10 08:5" in waiting
        session = world.session(token(pull))
        assert f"threadline session approve {session.id} " in waiting
        await until(world, lambda: "`merge` needs an approval" in own(world, pull)[0])
        await decide(world, pull)
        assert (await rests(world, pull))[0] == "Merged."
        decided = own(world, pull)[1]
        assert decided.startswith("**Approved** by `Alice`: `merge`")
        assert "squash" not in decided
        assert len(own(world, pull)) == 2


async def decide(world: World, pull: Pull) -> None:
    from threadline import Principal
    from threadline.channel.context import Context

    runtime = world.host.agent().runtimes["github"]
    ctx = Context(runtime, Principal("user", "alice", "Alice"))
    session = world.session(token(pull))
    (call,) = await Context(runtime).approvals(session.id)
    await ctx.resolve_approval(session.id, call.call.call_id, "approved")


# What tools have posted


async def test_a_review_and_labels_are_posted_beside_the_answer() -> None:
    finding = {"path": "src/upload.py", "line": 2, "body": "Why?"}
    script: list[Step] = [
        Call("review_pull_request", {"body": "Look.", "comments": [finding]}),
        Call("set_labels", {"add": ["reviewed"]}),
        Say("I reviewed it."),
    ]
    async with served(Scripted(script), tools=TOOLS) as world:
        pull = asked(world)
        assert await rests(world, pull) == ["I reviewed it."]
        (review,) = pull.reviews
        assert (review.author.login, review.commit, review.state) == (BOT, pull.head, "COMMENTED")
        assert review.body.startswith("Look.\n\n<!-- threadline:")
        (comment,) = world.github.review_comments(pull)
        assert (comment.line, comment.body) == (2, "Why?")
        assert world.github.labels(pull) == ["reviewed"]


async def test_a_result_that_the_log_keeps_apart_is_posted_too() -> None:
    words = "\u6f22" * 49_000
    script: list[Step] = [Call("review_pull_request", {"body": words})]
    script += [Call("report_check", {**REPORT, "summary": words}), Say("So.")]

    async with served(Scripted(script), tools=TOOLS, check="agent", on=OPENED) as world:
        world.host.agent().core.services.blob_threshold = 1_000
        pull = opened(world)
        await rests(world, pull)
        assert pull.reviews[0].body.startswith(words)
        assert [one.summary for one in world.github.checks(pull)] == [words]
        assert [one.conclusion for one in world.github.checks(pull)] == ["failure"]


async def test_a_review_in_an_issue_is_a_comment() -> None:
    finding = {"path": "src/upload.py", "line": 2, "body": "Why?"}
    look_closely = Call("review_pull_request", {"body": "Look.", "comments": [finding]})
    script: list[Step] = [look_closely, Say("So.")]
    async with served(Scripted(script), tools=TOOLS) as world:
        issue = world.github.user(DEV).open_issue(body=ASK)
        shown = await rests(world, issue)
        assert len(shown) == 2
        assert "So." in shown
        (review,) = [one for one in shown if one != "So."]
        assert review.startswith("Look.\n\n")
        assert review.endswith("**`src/upload.py:2`**: Why?")


async def test_a_review_that_is_refused_is_a_comment() -> None:
    script: list[Step] = [Call("review_pull_request", {"body": "Look."}), Say("So.")]
    async with served(Scripted(script), tools=TOOLS) as world:
        world.github.fail("POST", "*/reviews", 403, times=None)
        pull = asked(world)
        shown = await rests(world, pull)
        assert "So." in shown
        (review,) = [one for one in shown if one != "So."]
        assert review.startswith("_GitHub does not take this as a review. GitHubRefused: ")
        assert review.endswith("Look.")
        posts = world.host.agent().store.outbound(world.session(token(pull)).id)
        assert len([one for one in posts if one.failure]) == 1


async def test_what_a_tool_may_not_return_the_model_is_told() -> None:
    script: list[Step] = [Call("review_pull_request", {"body": " "}), Say("So.")]
    async with served(Scripted(script), tools=TOOLS) as world:
        pull = asked(world)
        assert await rests(world, pull) == ["So."]
        assert pull.reviews == []
        events = world.session(token(pull)).events()
        (result,) = [one for one in events if one["type"] == "action.result"]
        assert result["data"]["isError"]
        assert "needs a body or comments" in result["data"]["error"]["message"]


async def test_an_approval_is_of_the_commit_that_the_turn_worked_on() -> None:
    """As case G-19 has it: the push comes while the review waits for a limit."""
    async with served(
        Scripted([Call("review_pull_request", {"event": "APPROVE"}), Say("So.")]),
        tools=TOOLS,
        on={"mention", "synchronize"},
        working=False,
    ) as world:
        pull = asked(world)
        read = pull.head
        hold = world.github.hold("GET", "*/pulls/*", "before", times=1, when=_by_review(world))
        await until(world, lambda: hold.arrived)
        world.github.user(DEV).push(pull)
        hold.release()
        await until(world, lambda: len(own(world, pull)) == 2)
        await rests(world, pull)
        first, second = pull.reviews
        assert (first.state, first.commit) == ("COMMENTED", read)
        assert (second.state, second.commit) == ("APPROVED", pull.head)


def _by_review(world: World) -> Callable[[Any], bool]:
    """Tell whether the tool has run when a call comes."""

    def reviewed(call: Any) -> bool:
        pull = world.github.pull(int(call.path.rpartition("/")[2]))
        session = world.session(token(pull))
        return any(one["type"] == "action.result" for one in session.events())

    return reviewed


# Checks


def opened(world: World) -> Pull:
    return world.github.user(DEV).open_pull()


async def test_a_check_run_tells_how_a_turn_on_code_went() -> None:
    gate = asyncio.Event()
    script: list[Step] = [Wait(gate), Call("report_check", REPORT), Say("So.")]
    async with served(Scripted(script), tools=TOOLS, check="agent", on=OPENED) as world:
        pull = opened(world)
        await until(world, lambda: world.github.checks(pull))
        (check,) = world.github.checks(pull)
        assert (check.name, check.status, check.head_sha) == ("agent", "in_progress", pull.head)
        gate.set()
        await rests(world, pull)
        (check,) = world.github.checks(pull)
        assert (check.conclusion, check.title, check.summary) == ("failure", "1 problem", "Line 2.")


@pytest.mark.parametrize(
    ("end", "conclusion"),
    [(Say("So."), "neutral"), (Fail(ValueError("no luck")), "failure")],
)
async def test_a_turn_that_reports_nothing_completes_its_check(end: Any, conclusion: str) -> None:
    async with served(Scripted([end]), check="agent", on=OPENED) as world:
        pull = opened(world)
        await rests(world, pull)
        (check,) = world.github.checks(pull)
        assert (check.status, check.conclusion) == ("completed", conclusion)


async def test_a_stop_cancels_the_check() -> None:
    gated = Gated(hold=["answer"])
    async with served(gated, check="agent", on=OPENED) as world:
        pull = opened(world)
        await until(world, lambda: world.github.checks(pull))
        world.github.user(DEV).comment(pull, "@agent-fixture stop")
        await rests(world, pull)
        (check,) = world.github.checks(pull)
        assert check.conclusion == "cancelled"


async def test_a_check_goes_on_when_its_turn_does() -> None:
    gated = Gated(hold=["answer"])
    async with served(gated, check="agent", on=OPENED) as world:
        pull = opened(world)
        await until(world, lambda: world.github.checks(pull))
        await world.host.kill()
        gated.gates["answer"].release()
        await world.host.start()
        await rests(world, pull)
        assert [one.conclusion for one in world.github.checks(pull)] == ["neutral"]


async def test_another_run_is_another_check() -> None:
    async with served(Scripted([Say("So.")]), check="agent", on=OPENED) as world:
        pull = opened(world)
        await rests(world, pull)
        world.github.user(DEV).rerun(world.github.checks(pull)[0])
        await until(world, lambda: len(world.github.checks(pull)) == 2)
        await rests(world, pull)
        assert [one.status for one in world.github.checks(pull)] == ["completed", "completed"]


async def test_talk_makes_no_check_but_a_report_does() -> None:
    script = [Call("report_check", REPORT), Call("report_check", {**REPORT, "title": "2 problems"})]
    async with served(Scripted([*script, Say("So.")]), tools=TOOLS, check="agent") as world:
        pull = asked(world)
        await rests(world, pull)
        assert [(one.name, one.title) for one in world.github.checks(pull)] == [
            ("agent", "2 problems")
        ]
    async with served(Scripted([Say("So.")]), check="agent") as world:
        pull = asked(world)
        await rests(world, pull)
        assert world.github.checks(pull) == []


async def test_a_bot_with_a_token_goes_on_without_checks() -> None:
    with capture_logs() as logs:
        async with served(
            Scripted([Call("report_check", REPORT), Say("So.")]),
            tools=TOOLS,
            check="agent",
            personal=True,
            on=OPENED,
        ) as world:
            pull = opened(world)
            await rests(world, pull)
            assert world.github.checks(pull) == []
            answers = [one.body for one in world.github.comments(pull)]
            assert [body.partition("\n")[0] for body in answers] == ["So."]
    assert [one["event"] for one in logs].count("github.no_checks") == 1


async def test_every_answer_wears_its_marker() -> None:
    async with served(Scripted([Say("So.")])) as world:
        pull = asked(world)
        await rests(world, pull)
        (post,) = world.host.agent().store.outbound(world.session(token(pull)).id)
        assert world.github.comments(pull)[1].body == f"So.\n\n{marker(post.post_id)}"
        assert post.ref == f"issues/comments/{world.github.comments(pull)[1].id}"
