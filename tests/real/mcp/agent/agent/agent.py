"""An agent whose tools are those that the official conformance suite calls."""

from __future__ import annotations

import base64
from typing import Any

from pydantic import BaseModel

from threadline import Agent, tool
from threadline.errors import ToolFailed
from threadline.harness.scripted import Scripted

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WAV = base64.b64encode(b"RIFF$\x00\x00\x00WAVE").decode()


@tool
async def test_simple_text() -> str:
    """Say a text."""
    return "This is a simple text response for testing."


@tool
async def test_image_content() -> Any:
    """Show an image."""
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


@tool
async def test_audio_content() -> Any:
    """Play a sound."""
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}


def quoted(uri: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


@tool
async def test_embedded_resource() -> Any:
    """Quote a resource."""
    text = "This is an embedded resource content."
    return {"content": [quoted("test://embedded-resource", "text/plain", text)]}


@tool
async def test_multiple_content_types() -> Any:
    """Show several kinds."""
    return {
        "content": [
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            quoted("test://mixed-content-resource", "application/json", '{"test": "data"}'),
        ]
    }


@tool
async def test_error_handling() -> None:
    """Fail."""
    raise ToolFailed("This tool intentionally returns an error for testing")


class address(BaseModel):  # noqa: N801 - the suite looks for this name
    """Where somebody lives."""

    street: str | None = None
    city: str | None = None


@tool
async def json_schema_2020_12_tool(
    name: str | None = None,
    address: address | None = None,
) -> str:
    """Take an object of another schema."""
    return f"{name} lives in {address.city if address else 'no city'}"


async def script(turn: Any) -> str:
    """Say what was said."""
    return f"You said: {turn.prompt.text}"


agent = Agent(
    name="Conformance",
    description="Repeats what it hears.",
    harness=Scripted(script),
    tools=[
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        json_schema_2020_12_tool,
    ],
)
