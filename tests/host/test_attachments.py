"""Images and files that tools give: kept beside the log, downloaded as data, never run here."""

from __future__ import annotations

from threadline import Agent, Content, File, Image, tool
from threadline.harness.scripted import Call, Say, Scripted
from threadline.testing import TestHost

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
PAGE = b"<script>alert(1)</script>"


@tool
def graph() -> Content:
    """Draw."""
    return Content("A graph:", Image(PNG, name="graph.png"), File(PAGE, name="page.html"))


async def test_what_a_tool_shows_is_kept_and_served_as_data() -> None:
    harness = Scripted([Call("graph"), Say("Done.")])
    agent = Agent(name="Painter", instructions="Draw.", harness=harness, tools=[graph])
    async with TestHost(agent) as host:
        session = await host.start_session("go")
        await session.rest()
        data = (await session.event("action.result"))["data"]
        image, page = data["attachments"]
        assert (image["mediaType"], image["size"], image["name"]) == (
            "image/png",
            len(PNG),
            "graph.png",
        )
        assert "iVBOR" not in str(data)
        for kept, content in ((image, PNG), (page, PAGE)):
            answer = await host.get(f"{session.path}/blobs/{kept['blobId']}")
            assert answer.status == 200
            assert answer.body == content
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"] == "attachment"
            assert answer.headers["x-content-type-options"] == "nosniff"
        called = await host.post("/v1/tools/graph", json={"input": {}})
        assert called.json()["isError"] is False
        missing = await host.get(f"{session.path}/blobs/file_00")
        assert missing.status == 404
