"""What tools return, as JSON: any value, and values of a declared type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, PlainSerializer, TypeAdapter, ValidationError
from tests.agent.conftest import Journal, Run

from threadline.agent.output import conforming, to_json
from threadline.agent.tools import tool


@dataclass
class Point:
    x: float


class Wire(BaseModel):
    is_up: bool = Field(alias="isUp")
    raw: bytes = b""
    score: float = 0.0
    note: str = ""


class TestOutput:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, None),
            ("a", "a"),
            ({"a": (1, {2})}, {"a": [1, [2]]}),
            (float("nan"), None),
            ([float("inf"), 1.5], [None, 1.5]),
            (Point(float("nan")), {"x": None}),
            ("\ud800a", "\ufffda"),
            ({"\ud800": 1}, {"\ufffd": 1}),
            (b"text", "text"),
            (b"\xff", "/w=="),
            ([b"\xff", b"text", {b"k": bytearray(b"v")}], ["/w==", "text", {"k": "v"}]),
            (datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z"),
            (Path("/a"), "/a"),
            ({1: 2, None: 3}, {"1": 2, "None": 3}),
            (iter([1, 2]), [1, 2]),
            (ValueError("no"), "no"),
            (2**70, 2**70),
        ],
    )
    def test_becomes_json(self, value: Any, expected: Any) -> None:
        plain = to_json(value)
        assert plain == expected
        assert type(plain) is type(expected)
        json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()

    def test_models_are_dumped_by_alias(self) -> None:
        wire = Wire(isUp=True, score=float("nan"), note="\ud800")
        assert to_json([wire]) == [{"isUp": True, "raw": "", "score": None, "note": "\ufffd"}]

    def test_models_with_bytes_that_are_no_text(self) -> None:
        assert to_json(Wire(isUp=True, raw=b"\xff"))["raw"] == "/w=="

    def test_what_is_nested_too_deeply(self) -> None:
        nested: list[Any] = []
        for _ in range(2000):
            nested = [nested]
        with pytest.raises(ValueError):
            to_json(nested)


class Service(BaseModel):
    name: str
    is_up: bool = Field(alias="isUp")


class TestConforming:
    @pytest.mark.parametrize(
        ("hint", "value", "expected"),
        [
            (Service, Service(name="a", isUp=True), {"name": "a", "isUp": True}),
            (Service, {"name": "a", "isUp": "yes", "more": 1}, {"name": "a", "isUp": True}),
            (list[Service], [{"name": "a", "isUp": 0}], [{"name": "a", "isUp": False}]),
            (dict[str, float], {"a": float("nan"), "b": float("inf")}, {"a": None, "b": None}),
            (str, "\ud800a", "\ufffda"),
            (bytes, b"\xff", "/w=="),
            (Annotated[Decimal, PlainSerializer(float)], Decimal("1.5"), 1.5),
            (datetime, datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z"),
            (int | None, None, None),
        ],
    )
    def test_a_value_gets_the_form_of_its_type(self, hint: Any, value: Any, expected: Any) -> None:
        assert conforming(TypeAdapter(hint), value) == expected

    @pytest.mark.parametrize(
        ("hint", "value"), [(int, "many"), (Service, {"name": "a"}), (str, None), (list[int], 5)]
    )
    def test_another_value_is_refused(self, hint: Any, value: Any) -> None:
        with pytest.raises(ValidationError):
            conforming(TypeAdapter(hint), value)


class TestOutputSchema:
    async def test_the_declared_type_makes_the_result(self, run: Run) -> None:
        @tool
        async def status() -> Service:
            return {"name": "a", "isUp": 1}  # type: ignore[return-value]

        assert (await run(status)).output == {"name": "a", "isUp": True}

    @pytest.mark.parametrize("effect", ["read", "write"])
    async def test_a_mismatch_is_an_error_that_tells_the_author_where(
        self, run: Run, journal: Journal, effect: Any
    ) -> None:
        @tool(effect=effect)
        async def status() -> list[Service]:
            return [{"name": 5, "isUp": "secret"}]  # type: ignore[list-item]

        result = await run(status)
        assert (result.is_error, result.code) == (True, "invalid_output")
        assert result.output == (
            'Tool "status" ran, but its result cannot be used: it is not of the type that the tool '
            "declares."
        )
        assert journal.events == ["tool_output_invalid"]
        detail = journal.fields[0]["detail"]
        assert "0.name: Input should be a valid string" in detail
        assert "0.isUp: " in detail
        assert "secret" not in detail

    async def test_a_mismatch_is_not_tried_again(self, run: Run) -> None:
        runs: list[int] = []

        @tool(retries=3)
        async def count() -> int:
            runs.append(1)
            return "many"  # type: ignore[return-value]

        assert (await run(count)).code == "invalid_output"
        assert runs == [1]

    @pytest.mark.parametrize("hint", [None, Any, object, "Missing"])
    async def test_without_a_type_anything_goes(self, run: Run, hint: Any) -> None:
        async def anything() -> Any:
            return {"a": float("nan")}

        anything.__annotations__ = {"return": hint}
        assert (await run(tool(anything))).output == {"a": None}
