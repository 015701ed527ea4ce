"""The agent's own tools, each as a tool of its own, without a model in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from threadline.channel.context import Context
from threadline.harness.base import Attachment, ToolInfo, ToolResult
from threadline_mcp.surface import Offer, Outcome, Part, as_text

if TYPE_CHECKING:
    from threadline_mcp.exchange import Exchange

__all__ = ["Direct", "failed", "own_tools"]

_BUILT_IN = "threadline"
_ENVELOPE = {"content", "structuredContent"}
_PARTS = ("audio", "file", "image", "resource", "resource_link", "text")


def own_tools(ctx: Context) -> list[ToolInfo]:
    """Return the project's tools that run in the host, without those that every agent has."""
    mine = (tool for tool in ctx.tools() if tool.source != _BUILT_IN)
    return [tool for tool in mine if tool.execution == "server"]


class Direct:
    """Calls of tools that are bound to no session."""

    def offers(self, ctx: Context) -> list[Offer]:
        """Return the agent's tools."""
        return [_offer(tool) for tool in own_tools(ctx)]

    async def call(self, exchange: Exchange, name: str, arguments: Any) -> Outcome:
        """Call one of them."""
        schema = next(t.output_schema for t in own_tools(exchange.ctx) if t.name == name)
        result = await exchange.ctx.call_tool(name, arguments)
        if result.is_error:
            return failed(result)
        value, content = _shown(result.output, result.attachments)
        if content and value is None:
            return Outcome(content=content)
        if not isinstance(value, dict) or (schema and not _is_object(schema)):
            value = {"result": value}
        shown: list[Part] = [as_text(result.output), *result.attachments]
        return Outcome(value, content or shown)


def failed(result: ToolResult) -> Outcome:
    """Return the error of a tool; its output is a sentence."""
    content: list[Part] = [as_text(result.output), *result.attachments]
    return Outcome(content=content, code=result.code or "tool_failed")


def _shown(output: Any, attachments: Sequence[Attachment]) -> tuple[Any, list[Part]]:
    """Return the value for programs, and what an envelope shows in its order.

    An output has the shape of an envelope only where a tool returned one: its files are beside it.
    """
    if not isinstance(output, dict) or not {"content"} <= output.keys() <= _ENVELOPE:
        return output, []
    files = iter(attachments)
    parts: list[Part] = []
    for part in output["content"]:
        if not isinstance(part, dict) or part.get("type") not in _PARTS:
            return output, []
        match part["type"]:
            case "text":
                parts.append(str(part.get("text")))
            case "resource" | "resource_link":
                parts.append(part)
            case _:
                parts.append(next(files, as_text(part)))
    return output.get("structuredContent"), [*parts, *files]


def _offer(tool: ToolInfo) -> Offer:
    reads = tool.effect == "read"
    return Offer(
        tool.name,
        tool.description,
        tool.input_schema,
        _object_schema(tool.output_schema),
        reads=reads,
        destroys=not reads,
        repeatable=reads or tool.idempotent,
    )


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _object_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the schema of an object, as the protocol has it: ``{result}`` holds what is none."""
    if schema is None or _is_object(schema):
        return schema
    definitions = schema.get("$defs")
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return wrapped if definitions is None else {**wrapped, "$defs": definitions}
