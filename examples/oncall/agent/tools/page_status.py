"""What the status page says."""

from __future__ import annotations

from typing import Any

from lib.records import pause, services, statuses

from threadline import ToolContext, tool


@tool(effect="read", retries=2)
async def page_status(service: str, ctx: ToolContext) -> dict[str, Any]:
    """Return what the status page says about one service.

    Args:
        service: The service's name, such as "checkout".
    """
    await pause(0.8)
    name = service.strip().lower()
    status = statuses().get(name)
    if status is None:
        raise ValueError(f'There is no service "{service}"; there are: {", ".join(services())}.')
    return {"service": name, **status, "checkedAt": ctx.now().isoformat(timespec="seconds")}
