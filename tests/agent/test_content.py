"""Content envelopes: ours, those of the Model Context Protocol, and what only looks like one."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.agent.conftest import Journal, Run

import threadline
from threadline import Content, File, Image
from threadline.agent import content
from threadline.agent.tools import tool
from threadline.harness.base import Attachment

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
PNG64 = base64.b64encode(PNG).decode()
SHOWN = {"type": "image", "mediaType": "image/png", "size": 16}
TEXT = {"type": "text", "text": "all is well"}


async def returned(run: Run, value: Any, hint: Any = Any, **options: Any) -> Any:
    """Return the result of a tool that returns a value."""

    async def look() -> Any:
        return value

    look.__annotations__ = {"return": hint}
    return await run(tool(**options)(look))


class TestOurs:
    async def test_an_image_alone(self, run: Run) -> None:
        result = await returned(run, Image(PNG))
        assert result.output == {"content": [SHOWN]}
        assert result.attachments == [Attachment(PNG, "image/png")]
        assert not result.is_error

    @pytest.mark.parametrize("make", [list, tuple])
    async def test_a_list_with_an_image_in_it(self, run: Run, make: Any) -> None:
        result = await returned(run, make(["before", Image(PNG, name="a.png"), {"n": 1}]))
        assert result.output == {
            "content": [
                {"type": "text", "text": "before"},
                {**SHOWN, "name": "a.png"},
                {"type": "text", "text": '{"n": 1}'},
            ]
        }
        assert [item.name for item in result.attachments] == ["a.png"]

    async def test_content_in_order(self, run: Run) -> None:
        result = await returned(
            run, Content("one", Image(PNG), "two", File(b"a,b", name="t.csv"), structured={"n": 1})
        )
        shown = [part["type"] for part in result.output["content"]]
        assert shown == ["text", "image", "text", "file"]
        assert result.output["structuredContent"] == {"n": 1}
        assert [item.media_type for item in result.attachments] == ["image/png", "text/csv"]
        json.dumps(result.output)

    @pytest.mark.parametrize(
        ("value", "output"),
        [
            (Content("a", "b"), "a\nb"),
            (Content(), ""),
            (Content(structured=[1]), [1]),
            (Content('{"n": 1}', structured={"n": 1}), {"n": 1}),
            (
                Content("Done.", structured={"n": 1}),
                {
                    "content": [{"type": "text", "text": "Done."}],
                    "structuredContent": {"n": 1},
                },
            ),
            (Content(structured={"n": float("nan"), "p": Path("/a")}), {"n": None, "p": "/a"}),
            (Content("\ud800"), "\ufffd"),
        ],
    )
    async def test_texts_and_a_structured_value(self, run: Run, value: Any, output: Any) -> None:
        result = await returned(run, value)
        assert (result.output, list(result.attachments)) == (output, [])

    @pytest.mark.parametrize(
        ("value", "sentence"),
        [
            (Content("no such page", is_error=True), "no such page"),
            (Content("a", Image(PNG), "b", is_error=True), "a\nb"),
            (Content(is_error=True, structured={"n": 1}), '{"n": 1}'),
            (Content(is_error=True), 'Tool "look" says that it failed.'),
            (Content("x" * 10_000, is_error=True), "x" * 4000 + "…"),
        ],
    )
    async def test_an_error(self, run: Run, value: Any, sentence: str) -> None:
        result = await returned(run, value)
        assert (result.is_error, result.code, result.output) == (True, "tool_error", sentence)

    def test_other_parts_are_refused(self) -> None:
        with pytest.raises(TypeError, match="holds a dict"):
            Content({"n": 1})  # type: ignore[arg-type]

    @pytest.mark.parametrize("hint", [Content, Image, File, list[str | Image], Image | None])
    async def test_they_can_be_annotated(self, run: Run, hint: Any) -> None:
        assert (await returned(run, Image(PNG), hint)).attachments
        assert tool(_annotated(hint)).output_schema is None


def _annotated(hint: Any) -> Any:
    def look() -> Any: ...

    look.__annotations__ = {"return": hint}
    return look


class TestBytes:
    @pytest.mark.parametrize(
        ("data", "media_type"),
        [
            (PNG, "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
            (bytearray(PNG), "image/png"),
            (memoryview(PNG), "image/png"),
        ],
    )
    def test_what_kind_of_image_it_is(self, data: Any, media_type: str) -> None:
        assert Image(data).media_type == media_type
        assert Image(data).data == bytes(data)

    def test_what_kind_of_file_it_is(self) -> None:
        assert File(b"%PDF-1.7").media_type == "application/pdf"
        assert File(b"x", name="a.csv").media_type == "text/csv"
        assert File(b"x").media_type == "application/octet-stream"
        assert File(b"x", media_type="text/x").media_type == "text/x"

    def test_the_bytes_win_over_the_name(self) -> None:
        assert Image(PNG, name="a.jpg").media_type == "image/png"

    def test_an_image_that_is_none(self) -> None:
        with pytest.raises(ValueError, match="give Image"):
            Image(b"what?")
        with pytest.raises(ValueError, match="use File"):
            Image(b"%PDF-1.7")
        assert Image(b"what?", media_type="image/x").media_type == "image/x"

    @pytest.mark.parametrize("kind", [str, Path])
    def test_a_path(self, tmp_path: Path, kind: Any) -> None:
        path = tmp_path / "report.txt"
        path.write_text("hi")
        made = File(kind(path))
        assert made.attachment == Attachment(b"hi", "text/plain", "report.txt")
        assert File(path, name="other.md").name == "other.md"
        with pytest.raises(FileNotFoundError):
            File(kind(tmp_path / "none"))

    def test_a_picture_in_memory(self) -> None:
        class Picture:
            format = None

            def save(self, fp: Any, format: str | None = None) -> None:  # noqa: A002
                assert format == "PNG"
                fp.write(PNG)

        class Figure:
            def savefig(self, fp: Any, format: str) -> None:  # noqa: A002
                assert format == "png"
                fp.write(PNG)

        assert Image(Picture()).data == PNG
        assert Image(Figure()).data == PNG  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not a int"):
            Image(5)  # type: ignore[arg-type]

    def test_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(content, "MAX_ATTACHMENT", 5_000_000)
        path = tmp_path / "big.bin"
        with path.open("wb") as file:
            file.truncate(6_100_000)
        message = r"big\.bin has 6\.1 MB; an attachment has at most 5 MB"
        with pytest.raises(ValueError, match=message):
            File(path)
        with pytest.raises(ValueError, match=r"File has 6\.1 MB"):
            File(path.read_bytes())

    def test_it_is_shown_without_its_bytes(self) -> None:
        assert repr(Image(PNG, name="a.png")) == "<Image a.png image/png 16 bytes>"


class Result(BaseModel):
    """As the package of the Model Context Protocol has it."""

    meta: dict[str, Any] | None = Field(default=None, alias="_meta")
    content: list[dict[str, Any]]
    structuredContent: dict[str, Any] | None = None  # noqa: N815
    isError: bool = False  # noqa: N815


class TestProtocol:
    @pytest.mark.parametrize(
        ("value", "output"),
        [
            ({"content": [TEXT]}, "all is well"),
            ({"content": [TEXT, TEXT], "isError": False}, "all is well\nall is well"),
            ({"content": (TEXT,), "_meta": {"a": 1}}, "all is well"),
            ({"content": [], "isError": False}, ""),
            ({"content": [], "structuredContent": {"n": 1}}, {"n": 1}),
            ({"content": [TEXT], "structuredContent": None}, "all is well"),
            (Result(content=[TEXT]), "all is well"),
            (Result(content=[], structuredContent={"n": 1}), {"n": 1}),
        ],
    )
    async def test_texts(self, run: Run, value: Any, output: Any) -> None:
        result = await returned(run, value)
        assert (result.output, result.is_error) == (output, False)

    @pytest.mark.parametrize("data", [PNG64, PNG])
    @pytest.mark.parametrize("more", [{"mimeType": "image/png"}, {}])
    async def test_an_image(self, run: Run, data: Any, more: Any) -> None:
        part = {"type": "image", "data": data, **more}
        result = await returned(run, {"content": [TEXT, part]})
        assert result.output == {"content": [TEXT, SHOWN]}
        assert result.attachments == [Attachment(PNG, "image/png")]
        assert PNG64 not in json.dumps(result.output)

    async def test_audio_and_resources(self, run: Run) -> None:
        blob = {"uri": "file:///a/b.bin?x", "blob": PNG64, "mimeType": "application/x-b"}
        parts = [
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": blob},
            {"type": "resource", "resource": {"uri": "a:b", "text": "quoted"}},
            {"type": "resource_link", "uri": "a:b", "name": "b", "mimeType": "text/plain"},
        ]
        result = await returned(run, {"content": parts})
        assert result.output["content"] == [
            {"type": "audio", "mediaType": "audio/wav", "size": 3},
            {"type": "file", "mediaType": "application/x-b", "size": 16, "name": "b.bin"},
            {"type": "resource", "uri": "a:b", "text": "quoted"},
            {"type": "resource_link", "uri": "a:b", "name": "b", "mediaType": "text/plain"},
        ]
        assert [item.name for item in result.attachments] == [None, "b.bin"]

    @pytest.mark.parametrize(
        ("value", "sentence"),
        [
            ({"content": [TEXT], "isError": True}, "all is well"),
            ({"content": [], "isError": True}, 'Tool "look" says that it failed.'),
            (Result(content=[TEXT], isError=True), "all is well"),
        ],
    )
    async def test_an_error(self, run: Run, value: Any, sentence: str) -> None:
        result = await returned(run, value, retries=3)
        assert (result.is_error, result.code, result.output) == (True, "tool_error", sentence)

    @pytest.mark.parametrize(
        "value",
        [
            {"content": "text"},
            {"content": None},
            {"content": []},
            {"content": {"type": "text", "text": "a"}},
            {"content": ["text"]},
            {"content": [{"text": "a"}]},
            {"content": [{"type": "text"}]},
            {"content": [{"type": "text", "text": 5}]},
            {"content": [{"type": "paragraph", "text": "a"}]},
            {"content": [TEXT, {"type": "table"}]},
            {"content": [TEXT], "title": "A page"},
            {"content": [{"type": "image", "url": "https://example.com/a.png"}]},
            {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]},
            {"content": [{"type": "resource_link", "name": "b"}]},
            {"type": "text", "text": "a"},
            [TEXT],
            {"isError": True},
        ],
    )
    async def test_what_merely_looks_like_one_stays_as_it_is(self, run: Run, value: Any) -> None:
        result = await returned(run, value)
        assert (result.output, result.is_error) == (value, False)

    @pytest.mark.parametrize(
        ("part", "reason"),
        [
            ({"type": "image", "data": "no base64!"}, "the data of its image is not base64"),
            ({"type": "audio", "data": "é"}, "the data of its audio is not base64"),
            ({"type": "image", "data": "A" * 8_000_001}, "its image has 6.0 MB"),
            (
                {"type": "resource", "resource": {"uri": "a:/b.bin", "blob": "A" * 8_000_000}},
                "b.bin has 6.0 MB; an attachment has at most 5 MB",
            ),
        ],
    )
    async def test_one_that_cannot_be_used(
        self,
        run: Run,
        journal: Journal,
        monkeypatch: pytest.MonkeyPatch,
        part: Any,
        reason: str,
    ) -> None:
        monkeypatch.setattr(content, "MAX_ATTACHMENT", 5_000_000)
        result = await returned(run, {"content": [part]}, effect="write")
        assert (result.code, list(result.attachments)) == ("invalid_output", [])
        assert result.output.startswith('Tool "look" ran, but its result cannot be used: ')
        assert reason in result.output
        assert journal.events == ["tool_output_invalid"]

    async def test_a_result_has_a_limit_too(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(content, "MAX_ATTACHMENTS", 3_000_000)
        result = await returned(run, [File(bytes(1_600_000)), File(bytes(1_600_000))])
        assert result.code == "invalid_output"
        assert "its attachments have 3.2 MB; a result has at most 3 MB" in result.output


class Status(BaseModel):
    is_up: bool = Field(alias="isUp")


class TestSchema:
    @pytest.mark.parametrize(
        "value",
        [
            Content("Up.", structured=Status(isUp=True)),
            Content("Up.", structured={"isUp": "yes", "more": 1}),
            {"content": [{"type": "text", "text": "Up."}], "structuredContent": {"isUp": 1}},
        ],
    )
    async def test_the_structured_value_is_what_is_declared(self, run: Run, value: Any) -> None:
        result = await returned(run, value, Status)
        assert result.output["structuredContent"] == {"isUp": True}

    @pytest.mark.parametrize(
        "value",
        [Content("Up."), Content(structured={}), {"content": [TEXT]}, Image(PNG), [Image(PNG)]],
    )
    async def test_or_it_is_a_mismatch(self, run: Run, value: Any) -> None:
        assert (await returned(run, value, Status)).code == "invalid_output"

    async def test_an_error_need_not_be(self, run: Run) -> None:
        result = await returned(run, Content("Down.", is_error=True), Status)
        assert (result.code, result.output) == ("tool_error", "Down.")

    @pytest.mark.parametrize("hint", [dict[str, Any], dict])
    async def test_a_mapping_is_a_mapping(self, run: Run, hint: Any) -> None:
        assert (await returned(run, {"content": [TEXT]}, hint)).output == "all is well"


def test_the_names_are_public() -> None:
    assert {"Content", "File", "Image"} <= set(threadline.__all__)
