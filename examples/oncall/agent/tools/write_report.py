"""Write down what is known of an incident, so that it can be fetched and sent on."""

from __future__ import annotations

from typing import Any

from lib.records import deploys, known, pause, statuses

from threadline import ToolContext, tool


@tool(effect="write", idempotent=True)
async def write_report(service: str, ctx: ToolContext) -> dict[str, Any]:
    """Write the incident report of one service, or write it anew.

    Args:
        service: The service's name, such as "checkout".
    """
    name = known(service)
    await pause(0.5)
    status = statuses()[name]
    recent = [deploy for deploy in deploys() if deploy["service"] == name]
    suspect = recent[0]["version"] if recent and status["state"] != "operational" else None
    title = f"Incident report: {name}"
    artifact = await ctx.artifacts.tag(
        kind="incident_report",
        key=name,
        title=title,
        data={"service": name, "state": status["state"], "suspect": suspect},
        content=_text(title, status, recent),
        content_type="text/markdown",
        filename=f"incident-{name}.md",
    )
    return {"service": name, "artifactId": artifact.id, "title": title}


def _text(title: str, status: dict[str, Any], recent: list[dict[str, Any]]) -> str:
    lines = [
        f"# {title}",
        f"**State:** {status['state']}, since {status['sinceMinutes']} minutes.",
        status["summary"],
        "## Recent deploys",
        *(
            f"- `{deploy['version']}` by {deploy['by']}, {deploy['minutesAgo']} minutes ago: "
            f"{deploy['summary']}"
            for deploy in recent
        ),
    ]
    return "\n\n".join(lines) + "\n"
