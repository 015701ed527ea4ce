"""The line format: whatever is written can be read, and whatever is read is whole."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline import ndjson

ANY_TEXT = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cs"]),
        st.sampled_from("\u2028\u2029\x85\x0b\x0c\x1c\r\n\x00\ufeff\U0001f600"),
    ),
    max_size=30,
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)
LINE = b'{"type":"x","index":%d}\n'


def readable(text: str) -> str:
    """Return what a reader gets of a text: lone surrogates are replaced."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


@given(ANY_TEXT)
def test_text_comes_back_as_it_was(text: str) -> None:
    line = ndjson.encode({"type": "x", "index": 0, "data": text})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert orjson.loads(line)["data"] == readable(text)
    (found,) = ndjson.scan(line)
    assert found is not None
    assert found.raw == line


@given(ANY_JSON)
def test_whatever_is_encoded_is_one_strict_line(value: Any) -> None:
    line = ndjson.encode({"type": "x", "index": 0, "data": value})

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    json.loads(line.decode(), parse_constant=refuse)
    assert len(line.decode().splitlines()) == 1
    assert ndjson.parse(line) is not None


class Mute:
    def __str__(self) -> str:
        raise ValueError("no")


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def circular() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value, value]
    return value


@pytest.mark.parametrize(
    "value",
    [Mute(), {"k": Mute()}, nested(150), nested(300), nested(5000), circular(), {1, 2}, 2**200],
    ids=["mute", "mute inside", "150", "300", "5000", "circle", "set", "big"],
)
def test_what_json_cannot_say_is_made_sayable(value: Any) -> None:
    line = ndjson.encode({"type": "x", "index": 0, "data": value})
    assert ndjson.parse(line) is not None


def test_what_json_can_say_is_not_changed_by_its_neighbours() -> None:
    event = {"type": "x", "index": 0, "data": ["\ud800", 1.5, True, None, 3, {"a": (1, 2)}]}
    assert orjson.loads(ndjson.encode(event))["data"] == [
        "\ufffd",
        1.5,
        True,
        None,
        3,
        {"a": [1, 2]},
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 10,
        b"nonsense",
        b"[]",
        b"{}",
        b'{"type":"x"}',
        b'{"type":1,"index":0}',
        b'{"type":"x","index":"0"}',
        b'{"type":"x","index":true}',
        b'{"type":"x","index":1.0}',
        b'{"type":"x","index":0,"data":NaN}',
        b'{"type":"x","index":0',
        b'\xff{"type":"x","index":0}',
    ],
)
def test_what_is_no_event_is_damage(raw: bytes) -> None:
    assert ndjson.parse(raw) is None
    assert list(ndjson.scan(raw + b"\n")) == [None]


def test_scan_leaves_out_a_torn_tail() -> None:
    lines = list(ndjson.scan(LINE % 0 + LINE % 1 + b'{"type":"x","ind', offset=100))
    assert [line.offset for line in lines if line is not None] == [100, 100 + len(LINE % 0)]


# Logs with and without damage

DAMAGE = st.sampled_from([b"\x00" * 9, b"garbage", b"", b'{"type":"x"}', b"\x00" * 5000])
CHUNK = st.tuples(st.integers(0, 3), st.integers(0, 300), st.booleans(), DAMAGE)


def log_of(chunks: list[tuple[int, int, bool, bytes]]) -> bytes:
    """Return a log whose indices rise, with lines of any length, gaps and damaged lines."""
    data, index = b"", -1
    for step, size, damaged, damage in chunks:
        if damaged:
            data += damage + b"\n"
        else:
            index += 1 + step
            data += ndjson.encode({"type": "x", "index": index, "data": "y" * size})
    return data


LOGS = st.lists(CHUNK, max_size=40).map(log_of)


@given(LOGS, st.integers(0, 170), st.sampled_from([1, 16, 64, 4096]))
def test_bisect_finds_what_a_linear_scan_finds(data: bytes, index: int, window: int) -> None:
    expected = next(
        (
            line.offset
            for line in ndjson.scan(data)
            if line is not None and line.event["index"] >= index
        ),
        len(data),
    )
    read = lambda offset, length: data[offset : offset + length]  # noqa: E731
    assert ndjson.bisect(read, len(data), index, window=window) == expected


def test_bisect_reads_little_of_a_big_log() -> None:
    data = b"".join(LINE % n for n in range(50_000))
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    offset = ndjson.bisect(read, len(data), 45_678)
    assert data[offset:].startswith(LINE % 45_678)
    assert sum(reads) < 200_000


def test_bisect_steps_over_long_lines_without_reading_them_piece_by_piece() -> None:
    long = ndjson.encode({"type": "x", "index": 1, "data": "y" * 4_000_000})
    data = LINE % 0 + long + LINE % 2
    reads = 0

    def read(offset: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        return data[offset : offset + length]

    assert ndjson.bisect(read, len(data), 2) == len(LINE % 0 + long)
    assert reads < 200


def test_first_index_is_that_of_the_first_good_line() -> None:
    assert ndjson.first_index(b"\x00\n" + LINE % 7 + LINE % 8) == 7
    assert ndjson.first_index(b"") is None


@given(LOGS, st.sampled_from([b"", b'{"type":"x","index":999}', b'{"type":"x","in', b"\x00\x00"]))
def test_repair_keeps_every_good_line_and_is_idempotent(data: bytes, tail: bytes) -> None:
    kept = [line.raw for line in ndjson.scan(data) if line is not None]
    whole = tail if ndjson.parse(tail) is not None else b""
    fixed = ndjson.repair(data + tail)
    assert fixed.good == b"".join(kept) + (whole + b"\n" if whole else b"")
    assert fixed.torn == len(tail) - len(whole)
    again = ndjson.repair(fixed.good)
    assert again.clean
    assert again.good == fixed.good


@given(LOGS)
def test_repair_names_each_damaged_place(data: bytes) -> None:
    fixed = ndjson.repair(data)
    left = bytearray(data)
    for offset, length in reversed(fixed.damaged):
        assert ndjson.parse(bytes(left[offset : offset + length - 1])) is None
        del left[offset : offset + length]
    assert bytes(left) == fixed.good


def test_repair_takes_out_an_index_that_does_not_rise() -> None:
    fixed = ndjson.repair(LINE % 0 + LINE % 1 + LINE % 1 + LINE % 0 + LINE % 2)
    assert fixed.good == LINE % 0 + LINE % 1 + LINE % 2
    assert len(fixed.damaged) == 2
    assert not fixed.clean


@pytest.mark.parametrize("power", [63, 64, 70, 1022, 1023, 1024, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_is_one_that_readers_with_doubles_can_read(power: int, sign: int) -> None:
    event = ndjson.parse(ndjson.encode({"type": "x", "index": 0, "n": [sign * 2**power]}))
    assert event is not None
    assert event["n"] == [float(sign * 2**power) if power < 1023 else None]
