"""``as_of``: times that are given, absolute and past pass; nothing gets round it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypeVar
from zoneinfo import ZoneInfo

import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    PastDatetime,
    PlainValidator,
    RootModel,
    SerializeAsAny,
    Tag,
    WithJsonSchema,
)
from typing_extensions import TypedDict

from threadline.agent.times import time_problems
from threadline.agent.tools import Tool, tool

AS_OF = datetime(2025, 1, 31, 12, tzinfo=UTC)
PAST = "2025-01-31T11:59:59Z"
NOW = "2025-01-31T12:00:00Z"
LATER = "2025-01-31T12:00:00.001Z"
ABSENT = object()

MISSING, RELATIVE, NAIVE, LATE = "given", "absolute", "timezone", "later"


def taking(hint: Any, default: Any = ABSENT, **options: Any) -> Tool:
    """Return a tool with one argument, ``when``."""

    def look(when: Any = default) -> None: ...

    if default is ABSENT:
        look.__defaults__ = None
    look.__annotations__ = {"when": hint}
    return tool(**options)(look)


def problems(declared: Tool, value: Any, as_of: datetime = AS_OF) -> dict[str, str]:
    model = declared.validate(value)
    found = time_problems(model, value, as_of, declared.time_arguments)
    return {problem.path: problem.message for problem in found}


def check(declared: Tool, value: Any, expected: dict[str, str], as_of: datetime = AS_OF) -> None:
    """Check which places are refused, and by which rule."""
    found = problems(declared, value, as_of)
    assert found.keys() == expected.keys()
    for path, rule in expected.items():
        assert rule in found[path]


class Window(BaseModel):
    start: datetime
    end: datetime | None = None
    label: str = "today"


@dataclass
class Span:
    start: datetime
    end: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    made: datetime = field(init=False, default=datetime(2020, 1, 1, tzinfo=UTC))


@pydantic.dataclasses.dataclass
class Strict:
    start: datetime = Field(alias="from", default=datetime(2020, 1, 1, tzinfo=UTC))


class Range(TypedDict):
    start: datetime
    end: NotRequired[datetime]
    label: NotRequired[str]


class Pair(NamedTuple):
    label: str
    start: datetime = datetime(2020, 1, 1, tzinfo=UTC)


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    start: datetime = Field(alias="from", default=datetime(2020, 1, 1, tzinfo=UTC))


class Query(BaseModel):
    text: str = ""


class Filter(BaseModel):
    window: Window | None = None
    text: str = ""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    start: datetime


class Typed(BaseModel):
    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, datetime] = Field(init=False)


class Times(RootModel[list[datetime]]):
    pass


class Instant(RootModel[datetime]):
    pass


class Tree(BaseModel):
    at: datetime | None = None
    children: list[Tree] = []


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    held: T
    more: T | None = None


class Moment(Enum):
    OLD = datetime(2020, 1, 1, tzinfo=UTC)
    NEW = datetime(2030, 1, 1, tzinfo=UTC)


Stamp = NewType("Stamp", datetime)
Hidden = Annotated[datetime, PlainValidator(datetime.fromisoformat), WithJsonSchema({})]
Parsed = Annotated[str, AfterValidator(datetime.fromisoformat)]
Eager = Annotated[
    datetime, BeforeValidator(lambda v: AS_OF + timedelta(1) if v == "tomorrow" else v)
]
Marked = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class TestInstants:
    @pytest.mark.parametrize(
        "hint",
        [
            datetime,
            datetime | None,
            Annotated[datetime, Field(description="d")],
            AwareDatetime,
            Stamp,
            PastDatetime,
            Hidden,
            Parsed,
            datetime | str,
            str | datetime,
            datetime | int,
        ],
    )
    def test_an_instant_up_to_as_of_passes_and_no_later_one(self, hint: Any) -> None:
        check(taking(hint), {"when": PAST}, {})
        check(taking(hint), {"when": NOW}, {})
        check(taking(hint), {"when": LATER}, {"when": LATE})

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2025-01-31T13:00:00+01:00", {}),
            ("2025-01-31T13:00:00.001+01:00", {"when": LATE}),
            ("2025-01-31T11:59:00-00:01", {}),
            ("2025-01-31T11:59:00.001-00:01", {"when": LATE}),
            ("9999-12-31T23:59:59.999999-23:59", {"when": LATE}),
            ("9999-12-31T23:59:59.999999+23:59", {"when": LATE}),
            ("0001-01-01T00:00:00+23:59", {}),
            ("0001-01-01T00:00:00-23:59", {}),
            ("2025-01-31T12:00:00", {"when": NAIVE}),
            ("2020-01-01T00:00:00", {"when": NAIVE}),
            ("2020-01-01", {"when": NAIVE}),
            (1738324800, {}),
            ("1738324800", {}),
            (1738324801, {"when": LATE}),
            (1738324800001, {"when": LATE}),
            (-5, {}),
        ],
    )
    def test_zones_and_numbers(self, text: Any, expected: dict[str, str]) -> None:
        check(taking(datetime), {"when": text}, expected)

    def test_both_sides_of_a_clock_change(self) -> None:
        berlin = ZoneInfo("Europe/Berlin")
        as_of = datetime(2024, 10, 27, 1, 30, tzinfo=UTC)
        parse = Annotated[
            str,
            AfterValidator(
                lambda fold: datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=int(fold))
            ),
        ]
        check(taking(parse), {"when": "0"}, {}, as_of)
        check(taking(parse), {"when": "1"}, {}, as_of)
        check(taking(parse), {"when": "1"}, {"when": LATE}, as_of - timedelta(microseconds=1))
        check(taking(parse), {"when": "0"}, {}, as_of - timedelta(hours=1))

    def test_a_zone_that_has_no_offset_is_none(self) -> None:
        class Nowhere(tzinfo):
            def utcoffset(self, dt: datetime | None) -> None: ...

        parse = Annotated[str, AfterValidator(lambda _: datetime(2020, 1, 1, tzinfo=Nowhere()))]
        check(taking(parse), {"when": "x"}, {"when": NAIVE})

    def test_as_of_in_another_zone(self) -> None:
        as_of = AS_OF.astimezone(timezone(timedelta(hours=-14)))
        check(taking(datetime), {"when": NOW}, {}, as_of)
        check(taking(datetime), {"when": LATER}, {"when": LATE}, as_of)
        check(taking(date), {"when": "2025-01-30"}, {}, as_of)
        check(taking(date), {"when": "2025-01-31"}, {"when": LATE}, as_of)

    def test_a_validator_that_makes_it_later_does_not_help(self) -> None:
        check(taking(Eager), {"when": "tomorrow"}, {"when": LATE})
        check(taking(Eager), {"when": PAST}, {})


class TestDates:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2025-01-30", {}),
            ("2025-01-31", {"when": LATE}),
            ("2025-02-01", {"when": LATE}),
            ("9999-12-31", {"when": LATE}),
            ("0001-01-01", {}),
        ],
    )
    @pytest.mark.parametrize("hint", [date, date | None, list[date] | date])
    def test_a_day_must_be_over(self, hint: Any, text: str, expected: dict[str, str]) -> None:
        check(taking(hint), {"when": text}, expected)

    def test_a_day_is_over_at_midnight(self) -> None:
        midnight = datetime(2025, 1, 31, tzinfo=UTC)
        check(taking(date), {"when": "2025-01-30"}, {}, midnight)
        before = midnight - timedelta(microseconds=1)
        check(taking(date), {"when": "2025-01-30"}, {"when": LATE}, before)


class TestGiven:
    @pytest.mark.parametrize(
        ("hint", "default"),
        [
            (datetime | None, None),
            (datetime, datetime(2020, 1, 1, tzinfo=UTC)),
            (Hidden | None, None),
            (
                Annotated[
                    datetime, Field(default_factory=lambda: datetime(2020, 1, 1, tzinfo=UTC))
                ],
                ABSENT,
            ),
            (Window | None, None),
            (Span | None, None),
            (list[datetime], []),
            (dict[str, Window] | None, None),
            (Filter, Filter()),
            (PastDatetime | None, None),
            (Marked, "now"),
            (Tree | None, None),
        ],
    )
    def test_a_default_is_not_given(self, hint: Any, default: Any) -> None:
        declared = taking(hint, default)
        assert declared.times == ["when"]
        check(declared, {}, {"when": MISSING})

    @pytest.mark.parametrize(
        ("hint", "value", "path"),
        [
            (datetime | None, None, "when"),
            (list[datetime], [], "when"),
            (list[datetime | None], [PAST, None], "when.1"),
            (dict[str, datetime], {}, "when"),
            (dict[str, datetime | None], {"a": None}, "when.a"),
            (set[datetime], [], "when"),
            (Window, {"start": PAST}, "when.end"),
            (Window, {"start": PAST, "end": None}, "when.end"),
            (Filter, {}, "when.window"),
            (Filter, {"window": {"start": PAST}}, "when.window.end"),
            (list[Window], [{"start": PAST, "end": PAST}, {"start": PAST}], "when.1.end"),
            (Span, {"start": PAST}, "when.end"),
            (list[Span], [{"start": PAST}], "when.0.end"),
            (Strict, {}, "when.from"),
            (Range, {"start": PAST}, "when.end"),
            (dict[str, Range], {"a": {"start": PAST}}, "when.a.end"),
            (Pair, ["a"], "when.1"),
            (Pair, {"label": "a"}, "when.1"),
            (Named, {}, "when.from"),
            (Times, [], "when"),
            (Box[datetime], {"held": PAST}, "when.more"),
            (Json[Window], '{"start": "2025-01-01T00:00:00Z"}', "when.end"),
            (Tree, {"at": PAST, "children": [{"children": []}]}, "when.children.0.at"),
        ],
    )
    def test_so_are_none_and_nothing_however_deep(self, hint: Any, value: Any, path: str) -> None:
        assert MISSING in problems(taking(hint), {"when": value})[path]

    @pytest.mark.parametrize(
        ("hint", "value"),
        [
            (Window, {"start": PAST, "end": NOW}),
            (Filter, {"window": {"start": PAST, "end": PAST}}),
            (Span, {"start": PAST, "end": PAST}),
            (Strict, {"from": PAST}),
            (Range, {"start": PAST, "end": PAST}),
            (Range, {"start": PAST, "end": PAST, "label": "now"}),
            (Pair, ["now", PAST]),
            (Pair, {"label": "now", "start": PAST}),
            (Named, {"from": PAST}),
            (Named, {"start": PAST}),
            (Open, {"start": PAST, "label": "now", "more": {"a": ["now"]}}),
            (Times, [PAST, NOW]),
            (Instant, PAST),
            (Box[datetime], {"held": PAST, "more": PAST}),
            (Box[str], {"held": "now"}),
            (tuple[str, datetime], ["now", PAST]),
            (dict[str, datetime], {"now": PAST}),
            (dict[datetime, str], {PAST: "now"}),
            (list[Window | Query], [{"text": "now"}, {"start": PAST, "end": PAST}]),
            (Json[list[datetime]], f'["{PAST}"]'),
            (SerializeAsAny[Window], {"start": PAST, "end": PAST}),
        ],
    )
    def test_what_is_given_passes(self, hint: Any, value: Any) -> None:
        check(taking(hint), {"when": value}, {})

    def test_a_model_without_times_needs_none(self) -> None:
        check(taking(Query | None, None), {}, {})
        check(taking(list[Query]), {"when": []}, {})
        check(taking(timedelta | None, None), {}, {})
        check(taking(time | None, None), {}, {})


class TestNesting:
    @pytest.mark.parametrize(
        ("hint", "value", "path"),
        [
            (Window, {"start": PAST, "end": LATER}, "when.end"),
            (Filter, {"window": {"start": LATER, "end": PAST}}, "when.window.start"),
            (list[datetime], [PAST, LATER], "when.1"),
            (tuple[datetime, ...], [PAST, LATER], "when.1"),
            (frozenset[datetime], [LATER], "when.0"),
            (dict[str, list[datetime]], {"a": [PAST], "b": [LATER]}, "when.b.0"),
            (
                dict[datetime, str],
                {LATER: "x"},
                f"when.{LATER[:-5].replace('T', ' ')}.001000+00:00",
            ),
            (Span, {"start": LATER, "end": PAST}, "when.start"),
            (Range, {"start": PAST, "end": LATER}, "when.end"),
            (Pair, ["x", LATER], "when.1"),
            (Named, {"from": LATER}, "when.from"),
            (Named, {"start": LATER}, "when.from"),
            (Open, {"start": PAST, "child": 1} | {"start": LATER}, "when.start"),
            (Typed, {"anything": LATER}, "when.anything"),
            (Times, [PAST, LATER], "when.1"),
            (Instant, LATER, "when"),
            (Box[datetime], {"held": LATER, "more": PAST}, "when.held"),
            (
                Box[Window],
                {"held": {"start": PAST, "end": PAST}, "more": {"start": LATER, "end": PAST}},
                "when.more.start",
            ),
            (list[Window | Query], [{"start": LATER, "end": PAST}], "when.0.start"),
            (Json[list[datetime]], f'["{LATER}"]', "when.0"),
            (
                Tree,
                {
                    "at": PAST,
                    "children": [{"at": LATER, "children": [{"at": PAST, "children": []}]}],
                },
                "when.children.0.at",
            ),
            (list[Parsed], [PAST, LATER], "when.1"),
            (dict[str, Any], {"a": 1}, None),
        ],
    )
    def test_a_later_time_is_found_however_deep(
        self, hint: Any, value: Any, path: str | None
    ) -> None:
        found = {
            p: m for p, m in problems(taking(hint), {"when": value}).items() if MISSING not in m
        }
        assert found.keys() == ({path} if path else set())
        assert all(LATE in message for message in found.values())

    def test_a_discriminated_union(self) -> None:
        class Since(BaseModel):
            kind: Literal["since"]
            at: datetime

        class All(BaseModel):
            kind: Literal["all"]

        hint = Annotated[Since | All, Field(discriminator="kind")]
        check(taking(hint), {"when": {"kind": "since", "at": PAST}}, {})
        check(taking(hint), {"when": {"kind": "since", "at": LATER}}, {"when.at": LATE})
        check(taking(hint), {"when": {"kind": "all"}}, {})
        called = Annotated[
            Annotated[Since, Tag("s")] | Annotated[All, Tag("a")],
            Discriminator(lambda v: "s" if isinstance(v, dict) and "at" in v else "a"),
        ]
        check(taking(called), {"when": {"kind": "since", "at": LATER}}, {"when.at": LATE})

    def test_alias_choices(self) -> None:
        class Choice(BaseModel):
            start: datetime = Field(
                validation_alias=AliasChoices("from", "since"),
                default=datetime(2020, 1, 1, tzinfo=UTC),
            )

        check(taking(Choice), {"when": {"since": PAST}}, {})
        check(taking(Choice), {"when": {"from": LATER}}, {"when.start": LATE})
        check(taking(Choice), {"when": {}}, {"when.start": MISSING})

    def test_a_default_that_looks_at_the_clock(self) -> None:
        class Recent(BaseModel):
            until: datetime = Field(default_factory=lambda: datetime.now(UTC))

        check(taking(Recent), {"when": {}}, {"when.until": MISSING})
        check(taking(Recent | None, None), {}, {"when": MISSING})

    def test_a_default_that_is_a_member_of_an_enumeration(self) -> None:
        check(taking(Moment, Moment.NEW), {}, {"when": LATE})
        check(taking(Moment, Moment.OLD), {}, {})

    def test_every_problem_is_told(self) -> None:
        value = {"when": [{"start": LATER, "end": "2020-01-01T00:00:00"}, {"start": PAST}]}
        expected = {"when.0.start": LATE, "when.0.end": NAIVE, "when.1.end": MISSING}
        check(taking(list[Window]), value, expected)


class TestDeclared:
    """Arguments that are times because the author says so."""

    @pytest.mark.parametrize(
        "text",
        [
            *("now", "now-1h", "yesterday", "-1h", "", " ", "1h", "P1D", "PT1H", "today"),
            *("2025", "2025-01", "2025-W05", "2025-W05-5", "2025-031", "20250131T120000Z"),
            *("12:00:00Z", "1738324800", "2025-01-31T12:00:00Z ", " 2025-01-31T12:00:00Z"),
            *("2025-01-31T12:00:00Z\n", "2025-01-31T11:59:60Z", "2025-02-30T00:00:00Z"),
            *("2024-12-31T24:00:00Z", "0000-01-01", "2025-01-31T11:00:00+24:00"),
            *("2025-01-31t11:00:00z", "2025-01-31T11:00:00Z/P1D", "2025-01-31T11:00:00Z||+1y"),
            *("٢٠٢٥-٠١-٣١", "2025-01-31T11:00:00 Z", "2025-01-31T11Z"),
        ],
    )
    @pytest.mark.parametrize("hint", [str, str | int, Marked, datetime | str])
    def test_texts_that_are_no_instant(self, hint: Any, text: str) -> None:
        declared = taking(hint, time_arguments=["when"])
        model = declared.validate({"when": text})
        if isinstance(model.argument_when, datetime):  # type: ignore[attr-defined]
            return
        check(declared, {"when": text}, {"when": RELATIVE})

    @pytest.mark.parametrize("hint", [str, Marked, list[str]])
    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            (PAST, None),
            (NOW, None),
            ("2025-01-31 13:00:00+0100", None),
            ("2025-01-30", None),
            ("2025-01-31T11:59Z", None),
            ("2025-01-31T11:59:59.123456789Z", None),
            (LATER, LATE),
            ("2025-01-31", LATE),
            ("9999-12-31T23:59:59-23:59", LATE),
            ("2025-01-31T11:00:00", NAIVE),
            ("2025-01-31 11:00", NAIVE),
        ],
    )
    def test_texts_that_are(self, hint: Any, text: str, rule: str | None) -> None:
        given, path = (text, "when") if hint != list[str] else ([text], "when.0")
        declared = taking(hint, time_arguments=["when"])
        check(declared, {"when": given}, {path: rule} if rule else {})

    @pytest.mark.parametrize(
        ("hint", "value", "rule"),
        [
            (int, 1738324800, None),
            (float, 1738324800.0, None),
            (Decimal, "1738324800", None),
            (int, 0, None),
            (int, -1, None),
            (int, 1738324801, LATE),
            (float, 1738324800.001, LATE),
            (int, 30_000_000_000, "seconds"),  # in milliseconds 1970, to most tools the year 2920
            (int, 10**40, "seconds"),
            (float, float("inf"), "seconds"),
            (float, float("nan"), "seconds"),
            (Decimal, "1e400", "seconds"),
            (bool, True, RELATIVE),
            (timedelta, "PT1H", RELATIVE),
            (timedelta, 3600, RELATIVE),
            (time, "11:00:00", RELATIVE),
            (time, "11:00:00Z", RELATIVE),
            (bytes, PAST, RELATIVE),
            (datetime | timedelta, "PT1H", RELATIVE),
            (Literal["latest"] | datetime, "latest", RELATIVE),
            (Any, {"since": "now"}, RELATIVE),
            (dict[str, str], {"since": "now"}, RELATIVE),
            (Query, {"text": "now"}, RELATIVE),
            (Open, {"start": PAST, "extra": "now"}, RELATIVE),
            (Any, None, MISSING),
            (str | None, None, MISSING),
        ],
    )
    def test_what_stands_for_a_time(self, hint: Any, value: Any, rule: str | None) -> None:
        found = problems(taking(hint, time_arguments=["when"]), {"when": value})
        assert [rule in message for message in found.values()] == ([] if rule is None else [True])

    def test_only_what_is_declared(self) -> None:
        def look(since: str, window: str = "1h", text: str = "now") -> None: ...

        declared = tool(time_arguments=["since"])(look)
        check(declared, {"since": PAST, "window": "2h"}, {})
        assert declared.times == ["since"]

    def test_a_default(self) -> None:
        check(taking(str, "now-1h", time_arguments=["when"]), {}, {"when": MISSING})
        check(taking(str, PAST, time_arguments=["when"]), {}, {"when": MISSING})


MOMENTS = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.timezones() | st.sampled_from([UTC]),
)
HINTS: st.SearchStrategy[tuple[Any, Callable[[str], Any]]] = st.recursive(
    st.sampled_from([datetime, datetime | str, AwareDatetime, Parsed, Hidden]).map(
        lambda hint: (hint, lambda text: text)
    ),
    lambda inner: st.one_of(
        inner.map(lambda got: (list[got[0]], lambda text: [got[1](text)])),
        inner.map(lambda got: (got[0] | None, got[1])),
        inner.map(lambda got: (dict[str, got[0]], lambda text: {"k": got[1](text)})),
        inner.map(lambda got: (tuple[int, got[0]], lambda text: [1, got[1](text)])),
        inner.map(
            lambda got: (Box[got[0]], lambda text: {"held": got[1](text), "more": got[1](text)})
        ),
    ),
    max_leaves=4,
)


@given(moment=MOMENTS, shape=HINTS)
def test_an_instant_passes_exactly_when_it_is_not_later(
    moment: datetime, shape: tuple[Any, Callable[[str], Any]]
) -> None:
    hint, wrap = shape
    text = moment.astimezone(UTC).isoformat()
    found = problems(taking(hint), {"when": wrap(text)})
    assert (not found) == (moment <= AS_OF)
    assert all(LATE in message for message in found.values())


@given(moment=MOMENTS, declared=st.booleans())
def test_a_text_passes_exactly_as_its_instant_does(moment: datetime, declared: bool) -> None:
    whole = moment.replace(tzinfo=timezone(moment.utcoffset() or timedelta()))
    text = whole.isoformat()
    offset = whole.utcoffset() or timedelta()
    if offset.total_seconds() % 60:  # Old local times have offsets with seconds.
        text = whole.astimezone(UTC).isoformat()
    hint = str if declared else datetime
    options = {"time_arguments": ["when"]} if declared else {}
    assert (not problems(taking(hint, **options), {"when": text})) == (whole <= AS_OF)


VALUES = st.recursive(
    st.text() | st.integers() | st.floats() | st.none() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(value=VALUES)
def test_no_value_of_a_declared_argument_passes_unless_each_part_is_a_past_time(
    value: Any,
) -> None:
    found = problems(taking(Any, time_arguments=["when"]), {"when": value})

    def fine(part: Any) -> bool:
        match part:
            case dict():
                return bool(part) and all(map(fine, part.values()))
            case list():
                return bool(part) and all(map(fine, part))
            case bool() | None:
                return False
            case int() | float():
                return part <= AS_OF.timestamp()
            case _:
                return False  # No text that is drawn here is an instant.

    if not found:
        assert fine(value)
