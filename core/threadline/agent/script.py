"""What a tool's script in a workspace does when it is run: by the host, or by hand."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from threadline.agent.calls import run_tool
from threadline.agent.context import ToolContext, ToolSession
from threadline.agent.tools import Tool
from threadline.clock import SystemClock
from threadline.errors import ToolFailed
from threadline.ids import new_id
from threadline.principal import Principal

__all__ = ["main"]

_CALL = "THREADLINE_CALL"


class _NoValues:
    """Stands where the host keeps values."""

    async def get(self, key: str) -> Any:
        """Refuse."""
        raise _only_in_host("ctx.kv")

    async def put(self, key: str, value: Any) -> None:
        """Refuse."""
        raise _only_in_host("ctx.kv")

    async def delete(self, key: str) -> bool:
        """Refuse."""
        raise _only_in_host("ctx.kv")


def _only_in_host(what: str) -> ToolFailed:
    return ToolFailed(
        f'{what} is the host\'s, and this tool runs in the workspace: leave out execution="agent", '
        "or keep files instead."
    )


def main(name: str, launcher: str) -> int:
    """Run the tool with the JSON of the first argument, or of standard input; return the code.

    The output is printed as JSON; for an error that is ``{error, message}``, and the code is 1.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    place = Path(launcher).resolve().parents[1]
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        answer, code = _run(name, place)
    json.dump(answer, out)
    out.write("\n")
    out.flush()
    return code


def _run(name: str, place: Path) -> tuple[Any, int]:
    text = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        return {"error": "invalid_input", "message": f"The input is not JSON: {error}."}, 1
    ctx = _context(name, place)
    result = asyncio.run(run_tool(_load(name, place), value, ctx, clock=SystemClock()))
    if result.is_error:
        return {"error": result.code, "message": str(result.output)}, 1
    return result.output, 0


def _load(name: str, place: Path) -> Tool:
    """Import the tool's file as the project does, with ``agent/`` first on the path."""
    folder = place / "agent"
    sys.path.insert(0, str(folder))
    for file in sorted((folder / "tools").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"tools.{file.stem}", file)
        if spec is None or spec.loader is None or not _may_hold(file, name):
            continue
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        for value in vars(module).values():
            if isinstance(value, Tool) and value.execution == "agent":
                named = value if value.named else value.renamed(file.stem)
                if named.name == name:
                    return named.in_host()
    raise SystemExit(f"There is no script tool {name!r} in {folder}.")


def _may_hold(file: Path, name: str) -> bool:
    return file.stem == name or name in file.read_text("utf-8", "replace")


def _context(name: str, place: Path) -> ToolContext:
    """What the call is: the session's file says it, and the host may only make that stricter."""
    facts = _json(_text(place / "session.json"))
    call = _json(os.environ.get(_CALL, "{}"))
    if call and call.get("sessionId") != facts.get("sessionId"):
        # Sessions that share a folder share the file; the host says whose call this is.
        facts = {}
    times = [datetime.fromisoformat(t) for t in (facts.get("asOf"), call.get("asOf")) if t]
    session_id = call.get("sessionId") or facts.get("sessionId")
    dry_run = bool(facts.get("dryRun") or call.get("dryRun"))
    as_of = min(times) if times else None
    purpose = call.get("purpose") or facts.get("purpose")
    session = None
    if session_id:
        channel = str(facts.get("channel") or "")
        session = ToolSession(
            session_id, channel, purpose=facts.get("purpose"), dry_run=dry_run, as_of=as_of
        )
    return ToolContext(
        call_id=str(call.get("callId") or new_id("call")),
        tool_name=name,
        principal=Principal("agent", "workspace"),
        clock=SystemClock(),
        kv=_NoValues(),
        session=session,
        workspace=place.parent,
        dry_run=dry_run,
        as_of=as_of,
        purpose=purpose,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise SystemExit(
            f"{path} cannot be read, so it is not known what may run: {error}."
        ) from None


def _json(text: str) -> Mapping[str, Any]:
    value = json.loads(text)
    return value if isinstance(value, Mapping) else {}
