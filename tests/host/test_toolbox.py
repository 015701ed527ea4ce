"""An agent's tools as the session core uses them: what may run, what waits, what a tool is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from threadline import Approval, ApprovalRequest, Principal, ToolContext, tool
from threadline.agent.calls import Catalog
from threadline.agent.schema import Problem
from threadline.agent.tools import Tool
from threadline.harness.base import ToolCall
from threadline.host.toolbox import AgentTools
from threadline.session.turn import CallContext, Gate
from threadline.store.base import AcceptRequest, SessionRecord
from threadline.store.embedded import EmbeddedStore
from threadline.testing.clock import ManualClock

ANN, BOB = Principal("user", "ann"), Principal("user", "bob", attributes={"groups": ["sre"]})
AS_OF = "2025-01-31T12:00:00.000Z"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def session(store: EmbeddedStore) -> SessionRecord:
    """A session that is a dry run as of a time."""
    request = AcceptRequest(
        channel="http",
        principal=ANN,
        owner=ANN,
        may=lambda _: True,
        text="hi",
        admission="preempt",
        at=AS_OF,
        token="tok",
        purpose="eval",
        dry_run=True,
        as_of=AS_OF,
    )
    return (await store.accept(request)).session


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def box(store: EmbeddedStore, clock: ManualClock) -> Callable[..., AgentTools]:
    return lambda *tools: AgentTools(Catalog(tools), store, clock)


Box = Callable[..., AgentTools]


def context(**options: Any) -> CallContext:
    given = {"session_id": None, "turn_id": None, "principal": ANN, "workspace": None}
    return CallContext(**{**given, "direct": False, **options})


def call(name: str, value: Any = None) -> ToolCall:
    return ToolCall("c1", name, value)


def restart(ran: list[Any] | None = None, **options: Any) -> Tool:
    """Return the write tool ``restart``, with an approval unless the options say otherwise."""
    options.setdefault("approval", True)

    @tool(effect="write", **options)
    def restart(service: str, force: bool = False) -> str:
        if ran is not None:
            ran.append(service)
        return "restarted"

    return restart


@tool
def logs(since: datetime, limit: int = 10, until: datetime | None = None) -> list[str]:
    """Read logs."""
    return [since.isoformat()]


class TestContext:
    async def test_a_tool_knows_its_call(self, box: Box, session: SessionRecord) -> None:
        seen: list[ToolContext] = []

        @tool
        def look(ctx: ToolContext) -> str:
            seen.append(ctx)
            return ctx.now().isoformat()

        given = context(
            session_id=session.id, dry_run=True, as_of=AS_OF, purpose="test", approved_by=BOB
        )
        result = await box(look).run(call("look"), given)
        assert result.output == "2025-01-31T12:00:00+00:00"
        (ctx,) = seen
        as_of = datetime(2025, 1, 31, 12, tzinfo=UTC)
        assert (ctx.dry_run, ctx.as_of, ctx.purpose, ctx.approved_by) == (True, as_of, "test", BOB)
        assert ctx.session is not None
        assert (ctx.session.id, ctx.session.dry_run) == (session.id, True)
        assert (ctx.session.as_of, ctx.session.purpose) == (as_of, "eval")

    async def test_the_purpose_is_the_sessions(self, box: Box, session: SessionRecord) -> None:
        declared = tool(name="look")(_purpose)
        result = await box(declared).run(call("look"), context(session_id=session.id))
        assert result.output == "eval"

    async def test_without_a_session_now_is_now(self, box: Box, clock: ManualClock) -> None:
        @tool
        def look(ctx: ToolContext) -> list[Any]:
            return [ctx.now() == clock.now(), ctx.session, ctx.as_of, ctx.dry_run, ctx.purpose]

        result = await box(look).run(call("look"), context())
        assert result.output == [True, None, None, False, None]


def _purpose(ctx: ToolContext) -> str | None:
    return ctx.purpose


class TestRefusal:
    @pytest.mark.parametrize(
        ("asked", "as_of", "code"),
        [
            (call("nothing"), None, "unknown_tool"),
            (call("logs"), None, "invalid_input"),
            (call("logs", {"since": "x"}), None, "invalid_input"),
            (call("logs", {"since": AS_OF}), None, None),
            (call("logs", {"since": AS_OF}), AS_OF, "time_not_allowed"),
            (call("logs", {"since": AS_OF, "until": AS_OF}), AS_OF, None),
        ],
    )
    async def test_says_what_running_would(
        self, box: Box, asked: ToolCall, as_of: str | None, code: str | None
    ) -> None:
        tools = box(logs)
        refused = tools.refusal(asked, context(as_of=as_of))
        assert (refused.code if refused is not None else None) == code
        ran = await tools.run(asked, context(as_of=as_of))
        assert ran.code == code
        if refused is not None:
            assert refused == ran

    async def test_the_sentence_names_argument_rule_and_time(self, box: Box) -> None:
        value = {"since": "2025-01-31T12:00:01Z"}
        result = await box(logs).run(call("logs", value), context(as_of=AS_OF, direct=True))
        assert result.output == (
            'Tool "logs" did not run, because this runs as of 2025-01-31T12:00:00.000Z: since must '
            "not be later; until must be given."
        )
        assert box(logs).problems("logs", value, AS_OF) == [
            Problem("since", "must not be later"),
            Problem("until", "must be given"),
        ]

    async def test_a_validator_that_breaks_is_refused(self, box: Box) -> None:
        def broken(value: str) -> str:
            raise RuntimeError("bug")

        def look(a: str) -> None: ...

        look.__annotations__ = {"a": Annotated[str, AfterValidator(broken)]}
        refused = box(tool(look)).refusal(call("look", {"a": "x"}), context())
        assert refused is not None
        assert refused.code == "tool_failed"


class TestGate:
    @pytest.mark.parametrize(
        ("approval", "gate"),
        [
            (None, None),
            (True, Gate(timedelta(days=1), None)),
            (
                Approval(approvers=["group:sre", ANN], expires=timedelta(hours=1)),
                Gate(timedelta(hours=1), ["group:sre", "user:ann"]),
            ),
            (Approval(when=lambda arguments: arguments["force"]), None),
            (Approval(when=lambda arguments: not arguments["force"]), Gate(timedelta(days=1))),
        ],
    )
    def test_is_what_the_tool_declares(self, box: Box, approval: Any, gate: Gate | None) -> None:
        assert box(restart(approval=approval)).gate(call("restart", {"service": "a"})) == gate

    def test_nothing_waits_for_a_tool_that_is_not_there(self, box: Box) -> None:
        assert box().gate(call("restart")) is None

    def test_the_condition_sees_what_was_validated(self, box: Box) -> None:
        seen: list[Any] = []

        def when(arguments: dict[str, Any]) -> bool:
            seen.append(arguments)
            return False

        @tool(approval=Approval(when=when))
        def look(since: datetime, ctx: ToolContext, limit: int = 3) -> None: ...

        assert box(look).gate(call("look", {"since": AS_OF})) is None
        assert seen == [{"since": datetime(2025, 1, 31, 12, tzinfo=UTC), "limit": 3}]

    @pytest.mark.parametrize(
        "when",
        [
            lambda arguments: 1 / 0,
            lambda arguments: exit(1),
            lambda arguments: None,
            lambda arguments: 0,
            lambda arguments: "",
            lambda: False,
        ],
    )
    def test_a_condition_that_does_not_say_no_means_yes(
        self, box: Box, when: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        tools = box(restart(approval=Approval(when=when)))
        assert tools.gate(call("restart", {"service": "a"})) is not None
        assert "approval_when" in caplog.text

    def test_nor_does_one_that_would_have_to_be_awaited(self, box: Box) -> None:
        async def when(arguments: dict[str, Any]) -> bool:
            return False

        approval = Approval(when=when)  # type: ignore[arg-type]
        assert box(restart(approval=approval)).gate(call("restart", {"service": "a"})) is not None

    def test_an_input_that_is_not_valid_does_not_open_it(self, box: Box) -> None:
        tools = box(restart(approval=Approval(when=lambda arguments: False)))
        assert tools.gate(call("restart", {})) is not None


class TestUnapproved:
    """Whatever the core does, a call that has to wait runs only when it was approved."""

    async def test_it_does_not_run(self, box: Box) -> None:
        ran: list[Any] = []
        asked = call("restart", {"service": "a"})
        result = await box(restart(ran)).run(asked, context())
        assert (result.code, ran) == ("approval_required", [])
        assert not (await box(restart(ran)).run(asked, context(approved_by=BOB))).is_error
        assert ran == ["a"]

    async def test_a_person_needs_none(self, box: Box) -> None:
        ran: list[Any] = []
        await box(restart(ran)).run(call("restart", {"service": "a"}), context(direct=True))
        assert ran == ["a"]

    async def test_nor_does_a_dry_run(self, box: Box) -> None:
        ran: list[Any] = []
        result = await box(restart(ran)).run(
            call("restart", {"service": "a"}), context(dry_run=True)
        )
        assert (result.code, result.dry_run, ran) == (None, True, [])

    async def test_a_read_that_waits_waits_in_a_dry_run_too(self, box: Box) -> None:
        secret = tool(approval=True, name="secret")(lambda: "s3cret")
        result = await box(secret).run(call("secret"), context(dry_run=True))
        assert result.code == "approval_required"

    async def test_what_is_wrong_with_it_comes_first(self, box: Box) -> None:
        result = await box(restart()).run(call("restart", {}), context())
        assert result.code == "invalid_input"


class TestApprovers:
    @pytest.fixture
    def parked(self, session: SessionRecord) -> tuple[ToolCall, SessionRecord]:
        return call("restart", {"service": "a"}), session

    @pytest.mark.parametrize("approval", [None, True, Approval(when=lambda arguments: True)])
    async def test_a_tool_that_names_none(self, box: Box, parked: Any, approval: Any) -> None:
        assert await box(restart(approval=approval)).may_decide(BOB, *parked) is None

    async def test_a_tool_that_is_not_there(self, box: Box, parked: Any) -> None:
        assert await box().may_decide(BOB, *parked) is None

    @pytest.mark.parametrize(
        ("approvers", "ann", "bob"),
        [
            ([], False, False),
            (["user:ann"], True, False),
            ([ANN], True, False),
            (["group:sre"], False, True),
            (["group:sre", "user:ann"], True, True),
            (["user:sre", "group:ann"], False, False),
        ],
    )
    async def test_a_list(
        self, box: Box, parked: Any, approvers: Any, ann: bool, bob: bool
    ) -> None:
        tools = box(restart(approval=Approval(approvers=approvers)))
        assert await tools.may_decide(ANN, *parked) is ann
        assert await tools.may_decide(BOB, *parked) is bob

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_a_function(
        self, box: Box, parked: Any, session: SessionRecord, is_async: bool
    ) -> None:
        seen: list[Any] = []

        def sync(principal: Principal, request: ApprovalRequest) -> bool:
            seen.append((request, threading.current_thread() is threading.main_thread()))
            return principal == BOB

        async def later(principal: Principal, request: ApprovalRequest) -> bool:
            await asyncio.sleep(0)
            return sync(principal, request)

        approval = Approval(approvers=later if is_async else sync)
        tools = box(restart(approval=approval))
        assert await tools.may_decide(ANN, *parked) is False
        assert await tools.may_decide(BOB, *parked) is True
        expected = ApprovalRequest("c1", "restart", {"service": "a"}, session.id, ANN)
        assert seen == [(expected, is_async)] * 2

    @pytest.mark.parametrize(
        "approvers",
        [
            lambda principal, request: 1 / 0,
            lambda principal, request: exit(0),
            lambda principal, request: "yes",
            lambda principal, request: 1,
            lambda principal, request: None,
            lambda: True,
        ],
    )
    async def test_a_function_that_does_not_say_yes_says_no(
        self, box: Box, parked: Any, approvers: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        tools = box(restart(approval=Approval(approvers=approvers)))
        assert await tools.may_decide(BOB, *parked) is False
        assert "approvers_" in caplog.text

    async def test_a_function_that_never_ends_says_no(
        self, box: Box, parked: Any, clock: ManualClock
    ) -> None:
        async def never(principal: Principal, request: ApprovalRequest) -> bool:
            await asyncio.Event().wait()
            return True

        asking = asyncio.create_task(
            box(restart(approval=Approval(approvers=never))).may_decide(BOB, *parked)
        )
        await clock.sleeping()
        await clock.elapse(30)
        assert await asking is False


class TestValidated:
    def test_defaults_are_filled_in(self, box: Box) -> None:
        assert box(restart()).validated(call("restart", {"service": "a"})) == {
            "service": "a",
            "force": False,
        }

    @pytest.mark.parametrize("value", [None, {}, [], "x", {"service": 5}, {"other": 1}])
    def test_what_is_not_valid_stays_as_it_came(self, box: Box, value: Any) -> None:
        assert box(restart()).validated(call("restart", value)) == value
        assert box().validated(call("restart", value)) == value

    def test_whether_times_were_given_stays_visible(self, box: Box) -> None:
        tools = box(logs)
        asked = call("logs", {"since": AS_OF})
        shown = tools.validated(asked)
        assert shown == {"since": AS_OF, "limit": 10}
        refused = tools.refusal(replace(asked, input=shown), context(as_of=AS_OF))
        assert refused is not None
        assert "until must be given" in refused.output

    def test_what_would_not_be_read_back_stays_as_it_came(self, box: Box) -> None:
        class Renamed(BaseModel):
            model_config = ConfigDict(extra="forbid")

            size: int = Field(validation_alias="in", serialization_alias="out")

        def log_in(secret: SecretStr) -> None: ...
        def resize(by: Any) -> None: ...
        def doubled(count: Any) -> None: ...

        log_in.__annotations__ = {"secret": SecretStr}
        resize.__annotations__ = {"by": Renamed}
        doubled.__annotations__ = {"count": Annotated[int, AfterValidator(lambda n: n * 2)]}
        tools = box(tool(log_in), tool(resize), tool(doubled))
        for name, value in (
            ("log_in", {"secret": "s3cret"}),
            ("resize", {"by": {"in": 5}}),
            ("doubled", {"count": 2}),
        ):
            assert tools.validated(call(name, value)) == value


def test_limits_are_the_tools(store: EmbeddedStore, clock: ManualClock) -> None:
    once = tool(max_calls=1, name="once")(lambda: None)
    tools = AgentTools(Catalog([once, tool(name="often")(lambda: None)]), store, clock)
    assert [tools.limit(name) for name in ("once", "often", "nothing")] == [1, None, None]
    assert {info.name: info.approval for info in tools.infos()} == {"once": False, "often": False}
