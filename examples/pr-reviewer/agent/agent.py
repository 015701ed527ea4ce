"""The PR reviewer, on a real model when there is a key for one, else on the offline demo."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from threadline import Agent
from threadline.harness.pydantic_ai import PydanticAI

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.models import Model


def choose_model() -> str | Callable[[], Model]:
    """Return ``THREADLINE_MODEL``, or the model of the first provider that has a key here."""
    if model := os.environ.get("THREADLINE_MODEL"):
        return model
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-5-5"
    if os.environ.get("OPENAI_API_KEY"):
        return "openai:gpt-6-luna"
    return offline


def offline() -> Model:
    """Return the model that needs no key and no network."""
    # Imported late: the project loads without the model library, which takes a second.
    from lib.demo_model import demo_model

    return demo_model


agent = Agent(
    name="PR reviewer",
    description="Reviews pull requests line by line, reports a check, and answers questions.",
    harness=PydanticAI(choose_model()),
)
