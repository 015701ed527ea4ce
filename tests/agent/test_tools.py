"""Declaring tools: names, schemas, contexts, docstrings and refusals."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from threadline.agent import tools
from threadline.agent.approval import Approval
from threadline.agent.context import ToolContext, ToolLog
from threadline.agent.tools import Tool, tool
from threadline.agent.transient import TransientToolError
from threadline.errors import ThreadlineError
from threadline.principal import LOCAL, Principal
from threadline.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Status(BaseModel):
    service: str
    is_up: bool = Field(alias="isUp")


class Keeper:
    async def get(self, key: str) -> Any:
        return None

    async def put(self, key: str, value: Any) -> None: ...

    async def delete(self, key: str) -> bool:
        return False


def context(**options: Any) -> ToolContext:
    return ToolContext(
        call_id="c1",
        tool_name="t",
        principal=LOCAL,
        clock=ManualClock(),
        kv=Keeper(),
        **options,
    )


class TestDecorator:
    def test_bare(self) -> None:
        @tool
        async def page_status(service: str) -> str:
            """Return the status."""
            return service

        assert isinstance(page_status, Tool)
        assert page_status.name == "page_status"
        assert page_status.description == "Return the status."
        assert page_status.effect == "read"
        assert page_status.retries == 0
        assert page_status.timeout == 60.0
        assert not page_status.idempotent
        assert not page_status.named

    def test_options(self) -> None:
        @tool(effect="write", timeout=5, name="send-mail", description="Send.", idempotent=True)
        def send() -> None:
            """Not for the model."""

        assert (send.name, send.description, send.effect) == ("send-mail", "Send.", "write")
        assert send.timeout == 5.0
        assert send.idempotent
        assert send.named

    def test_reads_may_have_retries(self) -> None:
        assert tool(effect="read", retries=2)(lambda: None).retries == 2

    async def test_a_tool_can_be_called_as_the_function_it_is(self) -> None:
        @tool
        async def double(count: int) -> int:
            return count * 2

        assert await double(4) == 8

    def test_source_is_file_and_line(self) -> None:
        @tool
        def here() -> None: ...

        file, _, line = here.source.rpartition(":")
        assert file == __file__
        with open(__file__) as lines:  # noqa: PTH123
            assert "@tool" in lines.read().splitlines()[int(line) - 1]


class TestRefusals:
    @pytest.mark.parametrize(
        "options",
        [
            {"approval": None},
            {"approval": False},
            {"max_calls": None},
            {"dry_run": None},
            {"time_arguments": ()},
        ],
    )
    def test_asking_for_nothing_is_not_refused(self, options: dict[str, Any]) -> None:
        assert tool(**options)(lambda: None)

    @pytest.mark.parametrize(
        "options",
        [
            {"effect": "delete"},
            {"retries": -1},
            {"retries": True},
            {"retries": 11},
            {"timeout": 0},
            {"timeout": float("inf")},
            {"timeout": "60"},
            {"name": "page status"},
            {"name": "x" * 65},
            {"execution": "moon"},
            {"effect": "write", "retries": 1},
            {"approval": "group:sre"},
            {"approval": 1},
            {"max_calls": 0},
            {"max_calls": True},
            {"max_calls": 2.5},
            {"dry_run": {"sent": False}},
            {"effect": "write", "dry_run": 1, "dry_run_result": 2},
            {"time_arguments": "since"},
            {"time_arguments": [1]},
            {"time_arguments": 5},
        ],
    )
    def test_values_that_cannot_be(self, options: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"tool\("):
            tool(**options)

    @pytest.mark.parametrize(
        ("options", "advice"),
        [
            ({"time_arguments": ["sinc"]}, '"sinc" is no argument of the tool .*: since, text'),
            ({"time_arguments": ["ctx"]}, '"ctx" is no argument'),
            ({"effect": "write", "dry_run": lambda body: body}, "body is no argument"),
            ({"effect": "write", "dry_run": {1: object()}}, "must be a JSON value or a function"),
        ],
    )
    def test_values_that_do_not_fit_the_function(
        self, options: dict[str, Any], advice: str
    ) -> None:
        def send(since: str, text: str, ctx: ToolContext) -> None: ...

        with pytest.raises(ValueError, match=advice):
            tool(**options)(send)

    def test_an_option_that_nobody_knows(self) -> None:
        with pytest.raises(TypeError, match="retrys"):
            tool(retrys=2)


class TestSignature:
    def test_input_schema(self) -> None:
        @tool
        def search(
            query: str,
            limit: Annotated[int, Field(ge=1, description="How many.")] = 10,
            *,
            kind: Literal["a", "b"] | None = None,
        ) -> None: ...

        assert search.input_schema == {
            "type": "object",
            "additionalProperties": False,
            "required": ["query"],
            "properties": {
                "query": {"type": "string"},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "default": 10,
                    "description": "How many.",
                },
                "kind": {
                    "anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}],
                    "default": None,
                },
            },
        }

    def test_no_arguments(self) -> None:
        assert tool(lambda: None).input_schema == {
            "type": "object",
            "additionalProperties": False,
            "properties": {},
        }

    def test_names_that_models_cannot_have(self) -> None:
        @tool
        def odd(schema: str, model_config: str, _x: int, json: str = "j") -> None: ...

        values = {"schema": "s", "model_config": "m", "_x": 1}
        assert odd.arguments(values, context()) == {**values, "json": "j"}
        assert set(odd.input_schema["properties"]) == {"schema", "model_config", "_x", "json"}

    def test_a_field_as_default(self) -> None:
        @tool
        def page(size: int = Field(default=3, le=9, description="Rows.")) -> None: ...

        assert page.arguments({}, context()) == {"size": 3}
        assert page.input_schema["properties"]["size"]["maximum"] == 9

    def test_mutable_defaults_are_not_shared(self) -> None:
        @tool
        def collect(items: list[int] = []) -> None: ...  # noqa: B006

        collect.arguments({}, context())["items"].append(1)
        assert collect.arguments({}, context()) == {"items": []}

    def test_a_default_that_is_no_json(self) -> None:
        marker = object()

        @tool
        def mark(value: Any = marker) -> None: ...

        assert mark.arguments({}, context())["value"] is marker

    def test_arguments_become_the_types_of_the_signature(self) -> None:
        @tool
        def plan(day: date, status: Status, pair: tuple[int, str]) -> None: ...

        given = {"day": "2025-01-31", "status": {"service": "a", "isUp": True}, "pair": ["1", "b"]}
        arguments = plan.arguments(given, context())
        assert arguments["day"] == date(2025, 1, 31)
        assert isinstance(arguments["status"], Status)
        assert arguments["pair"] == (1, "b")

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_the_context_is_known_by_its_annotation(self, place: int) -> None:
        def first(ctx: ToolContext, a: str) -> None: ...
        def last(a: str, run: ToolContext) -> None: ...
        def keyword(a: str, *, ctx: ToolContext | None = None) -> None: ...

        functions: list[Callable[..., None]] = [first, last, keyword]
        declared = tool(functions[place])
        ctx = context()
        assert list(declared.input_schema["properties"]) == ["a"]
        arguments = declared.arguments({"a": "x"}, ctx)
        assert ctx in arguments.values()
        assert len(arguments) == 2

    def test_the_context_may_be_imported_for_type_checking_only(self) -> None:
        scope: dict[str, Any] = {}
        exec("from __future__ import annotations\ndef f(a: int, c: ToolContext): ...", scope)
        assert tool(scope["f"]).context_parameter == "c"

    def test_annotations_that_are_no_strings(self) -> None:
        def f(a: int, c: ToolContext) -> int:
            return a

        f.__annotations__ = {"a": int, "c": ToolContext, "return": int}
        assert tool(f).context_parameter == "c"
        assert tool(f).output_schema == {"type": "integer"}

    def test_output_schema(self) -> None:
        @dataclass
        class Point:
            x: int

        def model() -> Status: ...  # type: ignore[empty-body]
        def nothing() -> None: ...
        def anything() -> Any: ...
        def unknown() -> Missing: ...  # type: ignore[name-defined]  # noqa: F821
        def local() -> Point: ...  # type: ignore[empty-body]

        schema = tool(model).output_schema
        assert schema is not None
        assert set(schema["properties"]) == {"service", "isUp"}
        for function in (nothing, anything, unknown, local):
            assert tool(function).output_schema is None

    @pytest.mark.parametrize(
        ("source", "advice"),
        [
            ("def f(*args: int): ...", "name each argument"),
            ("def f(**options: int): ...", "name each argument"),
            ("def f(a: int, /): ...", "positional-only"),
            ("def f(a): ...", "annotate argument a"),
            ("def f(a: 'Missing'): ...", "Missing"),
            ("def f(a: ToolContext, b: ToolContext): ...", "two contexts"),
            ("class C: ...\ndef f(a: int, b: C): ...", "argument b has the type C"),
            ("import typing\ndef f(a: typing.Callable[[], int]): ...", "argument a"),
            ("def f(a: int):\n yield a", "returns its one result"),
            ("async def f(a: int):\n yield a", "returns its one result"),
            ("class f:\n def __call__(self, a: int): ...", "takes a function"),
        ],
    )
    def test_signatures_that_no_call_fits(self, source: str, advice: str) -> None:
        scope: dict[str, Any] = {"ToolContext": ToolContext, "__name__": "made"}
        exec(source, scope)
        with pytest.raises(TypeError, match=advice):
            tool(scope["f"])


class TestDocstring:
    def test_a_google_section_describes_the_arguments(self) -> None:
        @tool
        def find(query: str, limit: int = 3, plain: bool = False) -> None:
            """Find pages.

            Newest first.

            Args:
                query (str): What to look for: words
                    of any kind.
                limit: At most so many.

            Returns:
                The pages.
            """

        properties = find.input_schema["properties"]
        assert find.description == "Find pages.\n\nNewest first.\n\nReturns:\n    The pages."
        assert properties["query"]["description"] == "What to look for: words of any kind."
        assert properties["limit"]["description"] == "At most so many."
        assert "description" not in properties["plain"]

    def test_param_fields_describe_the_arguments(self) -> None:
        @tool
        def find(query: str, limit: int = 3) -> None:
            """Find pages.

            :param str query: What to
                look for.
            :param limit: At most so many.
            """

        properties = find.input_schema["properties"]
        assert find.description == "Find pages."
        assert properties["query"]["description"] == "What to look for."
        assert properties["limit"]["description"] == "At most so many."

    def test_what_the_annotation_says_wins(self) -> None:
        @tool
        def find(query: Annotated[str, Field(description="Words.")]) -> None:
            """Find.

            Args:
                query: Something.
            """

        assert find.input_schema["properties"]["query"]["description"] == "Words."

    def test_no_docstring(self) -> None:
        assert tool(lambda: None).description == ""


class TestTool:
    def test_info(self) -> None:
        @tool(effect="write")
        def send(text: str) -> None:
            """Send a text."""

        info = send.info()
        assert (info.name, info.description, info.effect) == ("send", "Send a text.", "write")
        assert info.input_schema == send.input_schema
        assert (info.approval, info.idempotent, info.source) == (False, False, send.source)

    def test_info_says_what_waits_for_approval_and_what_is_returned(self) -> None:
        @tool(effect="write", approval=True, idempotent=True)
        def send() -> int:
            return 1

        assert send.info().approval
        assert send.info().idempotent
        assert send.info().output_schema == {"type": "integer"}

    def test_wire(self) -> None:
        @tool(retries=1, timeout=5)
        def up(service: str) -> bool:
            """Tell whether it is up."""
            return bool(service)

        assert up.to_wire() == {"name": "up", "source": up.source}
        assert up.to_wire(detail=True) == {
            "name": "up",
            "description": "Tell whether it is up.",
            "inputSchema": up.input_schema,
            "outputSchema": {"type": "boolean"},
            "effect": "read",
            "execution": "server",
            "dryRun": "runs",
            "timeArguments": [],
            "timeoutSeconds": 5.0,
            "retries": 1,
            "idempotent": False,
            "source": up.source,
        }

    def test_wire_of_every_option(self) -> None:
        approval = Approval(approvers=["group:sre", Principal("user", "ann")])

        @tool(effect="write", approval=approval, max_calls=3, time_arguments=["until"])
        def restart(since: datetime, until: str, name: str) -> None: ...

        wire = restart.to_wire(detail=True)
        assert wire["approval"] == {
            "approvers": ["group:sre", "user:ann"],
            "expiresSeconds": 86400.0,
        }
        assert (wire["maxCalls"], wire["dryRun"]) == (3, "stubbed")
        assert wire["timeArguments"] == ["since", "until"]
        json.dumps(wire)

    @pytest.mark.parametrize("approvers", [None, lambda principal, request: True])
    def test_approvers_that_are_no_list_are_not_on_the_wire(self, approvers: Any) -> None:
        declared = tool(approval=Approval(approvers=approvers, expires=timedelta(minutes=1)))
        assert declared(lambda: None).to_wire(detail=True)["approval"] == {"expiresSeconds": 60.0}

    def test_no_output_schema_on_the_wire_without_one(self) -> None:
        assert "outputSchema" not in tool(lambda: None).to_wire(detail=True)

    def test_renamed(self) -> None:
        original = tool(lambda: None)
        other = original.renamed("other", "agent/tools/other.py:1")
        assert (other.name, other.source) == ("other", "agent/tools/other.py:1")
        assert original.renamed("third").source == original.source


class TestContext:
    def test_now_comes_from_the_clock(self) -> None:
        ctx = context()
        before: datetime = ctx.now()
        ctx.clock.advance(60)  # type: ignore[attr-defined]
        assert (ctx.now() - before).total_seconds() == 60

    def test_now_is_the_time_that_the_call_runs_as_of(self) -> None:
        as_of = datetime(2025, 1, 31, tzinfo=UTC)
        assert context(as_of=as_of).now() == as_of

    def test_an_unbound_call_has_no_session(self) -> None:
        ctx = context()
        assert ctx.session is None
        assert ctx.workspace is None
        assert not ctx.direct
        assert not ctx.dry_run
        assert (ctx.as_of, ctx.purpose, ctx.approved_by) == (None, None, None)

    @pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
    def test_the_log_takes_fields(self, level: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "threadline.tools")
        write: Callable[..., None] = getattr(ToolLog(tool="t"), level)
        write("checked 100%", service="a b")
        assert caplog.messages == ["checked 100% tool='t' service='a b'"]
        assert caplog.records[0].levelname == level.upper()


def test_a_transient_error_is_in_the_tree_of_errors() -> None:
    error = TransientToolError("busy", retry_after=2)
    assert isinstance(error, ThreadlineError)
    assert error.retry_after == 2


def test_public_names_are_sorted() -> None:
    assert tools.__all__ == sorted(tools.__all__)


def test_importing_is_light() -> None:
    script = (
        "import sys, threadline.agent.tools, threadline.agent.calls, threadline.agent.config\n"
        "print([m for m in ('aiohttp', 'structlog', 'cyclopts') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
