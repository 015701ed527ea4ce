"""A fake of an outside service: a web server on a free port, open within ``async with``."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aiohttp import web

from threadline.testing.serving import end, listen

if TYPE_CHECKING:
    import socket

__all__ = ["FakeService"]

_BODY = 64 * 1024 * 1024


class FakeService(abc.ABC):
    """Listens on 127.0.0.1 between ``start`` and ``close``, on a free port unless one is given.

    It keeps its port when it is started again.
    """

    __test__ = False

    def __init__(self, port: int) -> None:
        self._port = port
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None

    @abc.abstractmethod
    def _routes(self) -> Iterable[web.AbstractRouteDef]:
        """Return what it serves."""

    @abc.abstractmethod
    async def _opened(self, url: str) -> None:
        """Go on with starting, once it listens there."""

    @abc.abstractmethod
    async def _closing(self) -> None:
        """Give up what is on its way, before it stops listening."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Listen."""
        if self._runner is not None:
            raise RuntimeError(f"This {type(self).__name__} runs already.")
        application = web.Application(client_max_size=_BODY)
        application.add_routes(self._routes())
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        self._listening = await listen(self._runner, self._port)
        self._port = self._runner.addresses[0][1]
        await self._opened(f"http://127.0.0.1:{self._port}")

    async def close(self) -> None:
        """Stop listening; what is on its way is given up, gates are opened."""
        if self._runner is None:
            return
        await self._closing()
        runner, self._runner = self._runner, None
        await end(runner, self._listening)
