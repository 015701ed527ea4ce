from __future__ import annotations

from threadline import tool


@tool(effect="write", approval=True, dry_run={"restarted": None})
async def restart(service: str) -> dict[str, str]:
    """Restart a service, when a person approves."""
    return {"restarted": service}
