"""Incident desk, on a real model when one is named, else on the offline demo."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from threadline import Agent
from threadline.harness.pydantic_ai import PydanticAI

if TYPE_CHECKING:
    from pydantic_ai.models import Model


def offline() -> Model:
    """Return the model that needs no key and no network."""
    # Imported late: the project loads without the model library, which takes a second.
    from lib.demo_model import demo_model

    return demo_model


agent = Agent(
    name="Incident desk",
    description="Keeps one conversation an incident and says what changed.",
    harness=PydanticAI(os.environ.get("THREADLINE_MODEL") or offline),
)
