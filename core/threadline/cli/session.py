"""``threadline session``: look at stored sessions, stop and delete them.

A running host is asked; without one the store is opened here, and nothing else: what was left
unfinished stays so.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from threadline.cli import options, output
from threadline.cli.exits import UsageError
from threadline.cli.target import Target
from threadline.cli.trajectory import print_summary, read_events, summary_of_file, trajectory
from threadline.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from threadline.cli.place import Place
    from threadline.store.base import SessionRecord
    from threadline.store.embedded import EmbeddedStore

__all__ = ["app"]

app = App(name="session", help="Look at sessions, stop them, decide what waits, delete them.")

CallId = Annotated[str, Parameter(name="CALL", help="The id of the tool call that waits.")]
Reason = Annotated[str | None, Parameter(help="Why, in a sentence; it is recorded.")]
SessionId = Annotated[str, Parameter(name="ID", help="The session id, ses_…")]


@app.command(name="list")
def list_(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    url: options.Url = None,
    limit: Annotated[int, Parameter(help="How many to show, newest first.")] = 100,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
    json: options.Json = False,
) -> None:
    """List sessions, newest first."""
    if not 1 <= limit <= 1000:
        raise UsageError("--limit is 1 to 1000.")
    sessions = asyncio.run(_list(Target(project, url, bearer_token, state_root), limit))
    if json:
        output.write_json({"sessions": sessions})
    elif not sessions:
        output.note(
            "There are no sessions that are yours. Those of channels are shown by a host under "
            "--dev, and all of them while no host runs."
        )
    else:
        head = ["SESSION", "STATUS", "CHANNEL", "MODE", "CREATED", "TITLE"]
        output.write(output.table(head, [_row(session) for session in sessions]))


@app.command
def get(
    id: Annotated[str | None, Parameter(name="ID", help="The session id, ses_…")] = None,  # noqa: A002
    project: options.ProjectPath = options.HERE,
    /,
    *,
    file: Annotated[
        Path | None, Parameter(help="A saved trace or events.ndjson, in place of a session.")
    ] = None,
    url: options.Url = None,
    text: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the reply only.")
    ] = False,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
) -> None:
    """Print a session's tool calls, reply and token usage as JSON, as run does."""
    if (id is None) == (file is None):
        raise UsageError("Give a session id, or --file and no id.")
    if file is not None:
        summary = summary_of_file(file)
    else:
        target = Target(project, url, bearer_token, state_root)
        summary = trajectory(read_events(asyncio.run(_log(target, str(id)))))
    print_summary(summary, text=text)


@app.command
def stop(
    id: SessionId,  # noqa: A002
    project: options.ProjectPath = options.HERE,
    /,
    *,
    url: options.Url = None,
    clear_pending: Annotated[
        bool, Parameter(negative="", show_default=False, help="Also drop the messages that wait.")
    ] = False,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
    json: options.Json = False,
) -> None:
    """Interrupt a session's turn."""
    target = Target(project, url, bearer_token, state_root)
    stopped = asyncio.run(_stop(target, id, clear_pending))
    if json:
        output.write_json({"ok": True, "sessionId": id, "stopped": stopped})
    else:
        output.write("stopped" if stopped else "nothing was running")


@app.command
def approve(
    id: SessionId,  # noqa: A002
    call: CallId,
    project: options.ProjectPath = options.HERE,
    /,
    *,
    reason: Reason = None,
    url: options.Url = None,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
    json: options.Json = False,
) -> None:
    """Let a tool call run that waits for a person."""
    _decide(Target(project, url, bearer_token, state_root), id, call, "approved", reason, json)


@app.command
def deny(
    id: SessionId,  # noqa: A002
    call: CallId,
    project: options.ProjectPath = options.HERE,
    /,
    *,
    reason: Reason = None,
    url: options.Url = None,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
    json: options.Json = False,
) -> None:
    """Do not let a tool call run that waits for a person; the model reads the reason."""
    _decide(Target(project, url, bearer_token, state_root), id, call, "denied", reason, json)


@app.command
def delete(
    id: SessionId,  # noqa: A002
    project: options.ProjectPath = options.HERE,
    /,
    *,
    url: options.Url = None,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
    json: options.Json = False,
) -> None:
    """Remove a session with its log, history and workspace."""
    asyncio.run(_delete(Target(project, url, bearer_token, state_root), id))
    if json:
        output.write_json({"ok": True, "sessionId": id, "deleted": True})
    else:
        output.write("deleted")


def _decide(
    target: Target,
    session_id: str,
    call_id: str,
    decision: Literal["approved", "denied"],
    reason: str | None,
    json: bool,
) -> None:
    answer = asyncio.run(_decided(target, session_id, call_id, decision, reason))
    if json:
        output.write_json(answer)
    else:
        output.write(decision)


async def _decided(
    target: Target,
    session_id: str,
    call_id: str,
    decision: Literal["approved", "denied"],
    reason: str | None,
) -> dict[str, Any]:
    url = await target.address()
    if url is None:
        raise NotFound(
            "No host runs on this state root, so nothing would go on after a decision.\n"
            "Start one with 'threadline serve', or name it with --url."
        )
    async with target.client(url) as client:
        return await client.decide(session_id, call_id, decision, reason)


async def _list(target: Target, limit: int) -> list[dict[str, Any]]:
    url = await target.address()
    if url is not None:
        async with target.client(url) as client:
            return await client.sessions(limit=limit)
    place = _place(target)
    if not place.used:
        return []
    from threadline.cli.inprocess import opened

    async with opened(place) as store:
        left = set(store.unrested())
        return [_wire(store, record, left) for record in store.sessions(limit=limit)]


async def _log(target: Target, session_id: str) -> bytes:
    url = await target.address()
    if url is not None:
        async with target.client(url) as client:
            return await client.log(session_id)
    from threadline.cli.inprocess import opened

    async with opened(_used(target, session_id)) as store:
        _existing(store, session_id)
        return b"".join([chunk async for chunk in store.read(session_id)])


async def _stop(target: Target, session_id: str, clear_pending: bool) -> bool:
    url = await target.address()
    if url is not None:
        async with target.client(url) as client:
            return await client.stop(session_id, clear_pending=clear_pending)
    from threadline.cli.inprocess import opened, settle_stop

    place = _used(target, session_id)
    async with opened(place) as store:
        _existing(store, session_id)
        if session_id not in store.unrested():
            return False
    return await settle_stop(place, session_id, clear_pending=clear_pending)


async def _delete(target: Target, session_id: str) -> None:
    url = await target.address()
    if url is not None:
        async with target.client(url) as client:
            await client.delete(session_id)
        return
    from threadline.cli.inprocess import opened

    async with opened(_used(target, session_id)) as store:
        _existing(store, session_id)
        await store.delete(session_id)


def _place(target: Target) -> Place:
    place = target.place()
    assert place is not None
    return place


def _used(target: Target, session_id: str) -> Place:
    """Return the place, but never make a state root only to find it empty."""
    place = _place(target)
    if not place.used:
        raise _missing(session_id, place.state)
    return place


def _existing(store: EmbeddedStore, session_id: str) -> None:
    if store.session(session_id) is None:
        raise _missing(session_id, store.root)


def _missing(session_id: str, state: Path) -> NotFound:
    return NotFound(
        f"There is no session {session_id[:80]!r} in {state}.\n"
        "See 'threadline session list', or name the project or --state-root."
    )


def _wire(store: EmbeddedStore, record: SessionRecord, left: set[str]) -> dict[str, Any]:
    """Return what ``GET /v1/sessions`` would; nothing runs, so an open turn was cut short."""
    wire = record.to_wire()
    status = "interrupted" if record.id in left else store.rested_status(record.id) or "waiting"
    shown = ("channel", "mode", "createdAt", "principal", "title", "purpose")
    known = {key: wire[key] for key in shown if key in wire}
    return {"sessionId": record.id, "status": status} | known


def _row(session: Mapping[str, Any]) -> list[str]:
    created = str(session.get("createdAt", ""))[:19].replace("T", " ")
    title = " ".join(str(session.get("title") or "").split())
    plain = [str(session[key]) for key in ("sessionId", "status", "channel", "mode")]
    return [*plain, created, title]
