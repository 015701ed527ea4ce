"""Tools that run where the agent runs: scripts in the session's workspace, and a catalog of them.

A workspace gets ``.threadline/tools/NAME`` for each such tool, which takes JSON as its argument or
on standard input and answers with JSON. The host runs it when the model calls the tool, and a model
with a shell may run it too. ``.threadline/session.json`` says what a session is: a dry run, a time
that it runs as of. A script obeys it, whoever has started it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from threadline.errors import ToolFailed, WorkspaceUnavailable
from threadline.session.workspace import CATALOG_BEGIN, CATALOG_END, PRIVATE

if TYPE_CHECKING:
    from threadline.agent.context import ToolContext
    from threadline.agent.tools import Tool
    from threadline.store.base import SessionRecord

__all__ = ["CALL", "Scripts", "run_script"]

CALL = "THREADLINE_CALL"
_LAUNCHER = """#!{python}
import sys

from threadline.agent.script import main

sys.exit(main({name!r}, __file__))
"""
_HEAD = """## Tools in this workspace

Run one as `{private}/tools/NAME 'JSON'`, or with the JSON on standard input. It prints JSON.
"""


@dataclass(frozen=True, slots=True)
class Scripts:
    """An agent's script tools, and the folder ``agent/`` that their files and ``lib/`` are in."""

    tools: Sequence[Tool]
    folder: Path

    def place(self, workspace: Path, session: SessionRecord | None, own: bool) -> None:
        """Put the scripts, what they may know of the session, and the catalog into a workspace.

        A folder that is not the session's ``own`` keeps its notes as they are. Raises
        WorkspaceUnavailable.
        """
        place = workspace / PRIVATE
        try:
            (place / "tools").mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("tools", "lib"):
                _mirror(self.folder / name, place / "agent" / name)
            for tool in self.tools:
                launcher = _LAUNCHER.format(python=sys.executable, name=tool.name)
                _write(place / "tools" / tool.name, launcher.encode(), 0o700)
            _write(place / "session.json", _facts(session), 0o600)
            if not own:
                return
            notes = workspace / "AGENTS.md"
            text = notes.read_text("utf-8", "replace") if notes.is_file() else ""
            _write(notes, with_catalog(text, self.tools).encode(), 0o600)
        except OSError as error:
            raise WorkspaceUnavailable(
                f"The scripts cannot be placed in {workspace}: {error}."
            ) from error


def _mirror(source: Path, target: Path) -> None:
    """Copy the Python files and what lies beside them, as they are now."""
    shutil.rmtree(target, ignore_errors=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(source, target, symlinks=True, ignore=ignored)


def _facts(session: SessionRecord | None) -> bytes:
    if session is None:
        return b"{}\n"
    facts = {
        "sessionId": session.id,
        "channel": session.channel,
        "dryRun": session.dry_run,
        "asOf": session.as_of,
        "purpose": session.purpose,
    }
    return orjson.dumps(facts) + b"\n"


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that may not be there yet, and never through a link."""
    if path.is_symlink():
        path.unlink()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def with_catalog(text: str, tools: Iterable[Tool]) -> str:
    """Return the notes of a workspace with the catalog of its scripts; the rest stays as it is."""
    own = re.sub(
        f"\\n*{re.escape(CATALOG_BEGIN)}.*?{re.escape(CATALOG_END)}\\n*", "\n", text, flags=re.S
    ).strip()
    entries = [_entry(tool) for tool in tools]
    catalog = "\n".join([CATALOG_BEGIN, _HEAD.format(private=PRIVATE), *entries, CATALOG_END])
    return f"{own}\n\n{catalog}\n" if own else f"{catalog}\n"


def _entry(tool: Tool) -> str:
    schema = json.dumps(tool.input_schema, separators=(",", ":"))
    return f"- `{tool.name}` ({tool.effect}): {tool.description}\n  Input: `{schema}`"


async def run_script(tool: Tool, arguments: Any, ctx: ToolContext) -> Any:
    """Run a placed script to its answer; raises ToolFailed with what it says is wrong."""
    if ctx.workspace is None:
        raise ToolFailed("This call has no workspace, and the tool is a script that runs in one.")
    call = {
        "callId": ctx.call_id,
        "sessionId": ctx.session.id if ctx.session is not None else None,
        "dryRun": ctx.dry_run,
        "asOf": ctx.as_of.isoformat() if ctx.as_of is not None else None,
        "purpose": ctx.purpose,
    }
    done = await ctx.run(
        sys.executable,
        str(ctx.workspace / PRIVATE / "tools" / tool.name),
        stdin=orjson.dumps(arguments),
        env={CALL: json.dumps(call)},
        limit=_LIMIT,
    )
    for line in done.stderr.decode("utf-8", "replace").splitlines()[:_MOST_LINES]:
        ctx.log.info("script_said", text=line)
    if done.truncated:
        raise ToolFailed(f"The script printed more than {_LIMIT} bytes. Write them to a file.")
    return _answer(done.stdout, done.returncode)


_LIMIT = 16_000_000
_MOST_LINES = 200


def _answer(printed: bytes, code: int) -> Any:
    try:
        answer = orjson.loads(printed)
    except ValueError:
        raise ToolFailed(f"The script ended with {code}, and printed no JSON.") from None
    if code == 0:
        return answer
    message = answer.get("message") if isinstance(answer, Mapping) else None
    raise ToolFailed(str(message or f"The script ended with {code}."))
