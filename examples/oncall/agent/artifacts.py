"""What the helper leaves behind for people to fetch."""

from __future__ import annotations

from pydantic import BaseModel

from threadline import Artifacts, Kind


class IncidentReport(BaseModel):
    """The facts of a report, for lists and searches; the text is the artifact's content."""

    service: str
    state: str
    suspect: str | None = None


artifacts = Artifacts(
    kinds={"incident_report": Kind("What happened to one service, so far.", IncidentReport)}
)
