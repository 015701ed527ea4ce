"""The MCP channel: an agent as a server of the Model Context Protocol."""

from threadline_mcp.channel import McpChannel, McpToolsChannel

__all__ = ["McpChannel", "McpToolsChannel"]
