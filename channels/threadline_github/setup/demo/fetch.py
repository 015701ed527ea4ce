"""A fetch by git over HTTP, answered by git's own program.

https://git-scm.com/docs/git-http-backend
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["answer", "password"]


async def answer(repository: Path, request: web.Request) -> web.Response:
    """Answer git's request for a bare repository, whose address ends in ``.git``."""
    from aiohttp import web

    body = await request.read()
    env = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROJECT_ROOT": str(repository.parent),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": request.content_type,
        "PATH": os.environ.get("PATH", os.defpath),
        "PATH_INFO": f"/{repository.name}{request.path.partition('.git')[2]}",
        "QUERY_STRING": request.query_string,
        "REQUEST_METHOD": request.method,
    }
    process = await asyncio.create_subprocess_exec(
        "git", "http-backend", env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    said, _ = await process.communicate(body)
    head, _, content = said.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(re.split(r":\s*", line, maxsplit=1) for line in lines if ":" in line)
    status = int(headers.pop("Status", "200").split()[0])
    return web.Response(status=status, headers=headers, body=content)


def password(header: str) -> str:
    """Return the password of Basic authentication; empty when there is none."""
    kind, _, value = header.partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
