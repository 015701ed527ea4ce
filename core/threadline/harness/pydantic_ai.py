"""The default harness: any model that Pydantic AI knows.

This module does not import Pydantic AI, so that a project loads fast and validates without it; the
first turn does. See :mod:`threadline.harness._pydantic_ai_run` for how a turn runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from threadline.errors import HarnessFailed
from threadline.harness.base import Capabilities

if TYPE_CHECKING:
    from collections.abc import Callable

    import pydantic_ai
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import UsageLimits

    from threadline.harness._pydantic_ai_run import Run
    from threadline.harness.base import Turn, TurnResult

__all__ = ["PydanticAI"]


class PydanticAI:
    """Runs turns on a Pydantic AI model.

    ``model`` is an id such as ``"anthropic:claude-sonnet-5-5"``; or a Pydantic AI ``Model``, its
    ``TestModel`` and ``FunctionModel`` too; or a function that returns a model, called in a thread
    when the first turn runs, so that a project loads without the library. ``settings`` are the
    model settings. ``usage_limits`` bound one turn; Pydantic AI's default is 50 model requests.
    """

    def __init__(
        self,
        model: Model | str | Callable[[], Model],
        *,
        settings: ModelSettings | None = None,
        usage_limits: UsageLimits | None = None,
        name: str = "pydantic-ai",
    ) -> None:
        self.name = name
        self.capabilities = Capabilities(steers=True, streams=True, resumes=True, parks=True)
        self._model = model
        self._settings = settings
        self._usage_limits = usage_limits
        self._agent: pydantic_ai.Agent[Run, str] | None = None

    @property
    def model(self) -> str | None:
        """The model's id, such as ``"openai:gpt-6-luna"``; None before a function has made it."""
        if isinstance(self._model, str):
            return self._model
        return None if callable(self._model) else self._model.model_id

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn to its end.

        Raises :class:`HarnessFailed` with one of the failure codes ``model_not_configured``,
        ``model_auth``, ``model_rate_limited``, ``model_error``, ``content_filter``,
        ``usage_limit`` and ``history_unreadable``.
        """
        if self._agent is None:
            # Importing a model library takes about a second, which the event loop has not got.
            self._agent = await asyncio.to_thread(self._build)
        from threadline.harness._pydantic_ai_run import Run

        return await Run(turn, self._agent, self._usage_limits).run()

    def _build(self) -> pydantic_ai.Agent[Run, str]:
        try:
            from threadline.harness import _pydantic_ai_run
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pydantic_ai":
                raise
            raise HarnessFailed(
                "Pydantic AI is not installed. Run: pip install 'threadline[pydantic-ai]'",
                code="model_not_configured",
            ) from error
        if callable(self._model):
            self._model = self._model()
        return _pydantic_ai_run.build_agent(self._model, self._settings)
