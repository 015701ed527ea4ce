"""``threadline run``: one turn, and its result as JSON."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from threadline.cli import exits, options, output
from threadline.cli.exits import UsageError
from threadline.cli.render import progress, waiting
from threadline.cli.target import Target
from threadline.cli.trajectory import print_summary, trajectory
from threadline.cli.turn import Awaited
from threadline.errors import ThreadlineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from threadline.cli.client import Client, Line, Sent
    from threadline.cli.place import Place

__all__ = ["run", "workspace_files"]

STOP_SECONDS = 10.0


def run(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    message: Annotated[
        str, Parameter(name=["--message", "-m"], help="What to say; - reads it from stdin.")
    ],
    url: options.Url = None,
    text: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the reply only.")
    ] = False,
    session: Annotated[str | None, Parameter(help="The session to continue.")] = None,
    token: Annotated[str | None, Parameter(help="That session's newest token.")] = None,
    workspace_file: Annotated[
        list[str] | None,
        Parameter(help="PATH=FILE: put a file into the workspace; may be repeated.", negative=""),
    ] = None,
    dry_run: options.DryRun = False,
    as_of: options.AsOf = None,
    timeout: Annotated[float, Parameter(help="Stop the turn after this many seconds.")] = 900.0,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
) -> int:
    """Run one turn and print {sessionId, status, reply, toolCalls, usage}.

    It talks to the host that runs on the project's state root, or else runs the turn itself.
    """
    if (session is None) != (token is None):
        raise UsageError("--session and --token go together.")
    if session is not None and (dry_run or as_of is not None):
        raise UsageError("--dry-run and --as-of belong to a session: leave --session out.")
    if timeout <= 0:
        raise UsageError("--timeout is more than 0 seconds.")
    said = options.known(sys.stdin.read() if message == "-" else message, "The message")
    turn = _Turn(
        Target(project, url, bearer_token, state_root),
        said,
        session=session,
        token=token,
        files=workspace_files(workspace_file or []),
        dry_run=dry_run,
        as_of=as_of,
        seconds=timeout,
    )
    with output.kept_clean():
        summary = asyncio.run(turn.run())
    print_summary(summary, text=text)
    if summary["status"] == "completed":
        return exits.OK
    error = summary.get("error") or {}
    said = ": ".join(str(error[key]) for key in ("code", "message") if error.get(key))
    output.complain(f"The turn {summary['status']}{': ' if said else ''}{said}")
    return exits.FAILED


class _Turn:
    """One message, from its sending to the end of its turn."""

    def __init__(
        self,
        target: Target,
        message: str,
        *,
        session: str | None,
        token: str | None,
        files: dict[str, Any],
        dry_run: bool,
        as_of: str | None,
        seconds: float,
    ) -> None:
        self.target = target
        self.message = message
        self.session = session
        self.token = token
        self.files = files or None
        self.dry_run = dry_run
        self.as_of = as_of
        self.seconds = seconds

    async def run(self) -> dict[str, Any]:
        """Return the turn's trajectory; its trace is kept in the state root."""
        async with self.target.connect(announced=True) as client:
            start, sent = await self._sent(client)
            lines: list[Line] = []
            awaited = Awaited(sent.delivery_id)
            try:
                async with asyncio.timeout(self.seconds):
                    await self._follow(client, sent, start, awaited, lines)
            except TimeoutError:
                await self._give_up(client, sent)
                raise TurnTimeoutError(
                    f"The turn did not end within {self.seconds:g} s and was stopped. Give a "
                    f"longer --timeout. The session is {sent.session_id}."
                ) from None
            except asyncio.CancelledError:
                await self._give_up(client, sent)
                raise
        own = [line for line in lines if awaited.owns(line.event)]
        self._keep(self.target.place(), sent.session_id, own)
        return trajectory(line.event for line in own) | {"status": awaited.status or "running"}

    async def _sent(self, client: Client) -> tuple[int, Sent]:
        sending = asyncio.ensure_future(self._send(client))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            # It may be accepted already: what the answer names is stopped, too.
            with contextlib.suppress(Exception):
                _, sent = await asyncio.wait_for(sending, STOP_SECONDS)
                await self._give_up(client, sent)
            raise

    async def _send(self, client: Client) -> tuple[int, Sent]:
        if self.session is None or self.token is None:
            sent = await client.start(
                self.message,
                workspace_files=self.files,
                dry_run=self.dry_run,
                as_of=self.as_of,
            )
            return 0, sent
        start = await client.next_index(self.session)
        sent = await client.follow_up(
            self.session, self.token, self.message, workspace_files=self.files
        )
        return start, sent

    async def _follow(
        self, client: Client, sent: Sent, start: int, awaited: Awaited, lines: list[Line]
    ) -> None:
        shows = sys.stderr.isatty()
        async with contextlib.aclosing(client.stream(sent.session_id, start)) as stream:
            async for line in stream:
                lines.append(line)
                if line.event["type"] == "action.approval_requested":
                    self._say_what_waits(sent.session_id, line.event["data"])
                elif shows:
                    for piece in progress(line.event):
                        output.note(output.paint(piece.text, piece.style, sys.stderr))
                if not awaited.see(line.event):
                    return

    def _say_what_waits(self, session_id: str, data: Mapping[str, Any]) -> None:
        """The turn goes on when somebody has decided: say who has to do what."""
        place = f"--url {self.target.url}" if self.target.url else str(self.target.project)
        command = f"threadline session approve {session_id} {data['callId']} {place}"
        output.note(f"{waiting(data)}. To decide:\n  {command}\n  (or: session deny)")

    async def _give_up(self, client: Client, sent: Sent) -> None:
        """Nobody waits for the answer any more: it must not go on and cost."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.stop(sent.session_id), STOP_SECONDS)

    def _keep(self, place: Place | None, session_id: str, lines: Sequence[Line]) -> None:
        """Write the trace; another host's state is not ours to write."""
        if place is None or not place.used:
            return
        from threadline.store.embedded import EmbeddedStore

        path = EmbeddedStore(place.state).trace(session_id)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.writelines(line.raw for line in lines)


class TurnTimeoutError(ThreadlineError):
    """The turn took longer than its caller would wait."""

    code = "turn_timeout"


def workspace_files(pairs: Sequence[str]) -> dict[str, Any]:
    """Return ``workspaceFiles`` of ``PATH=FILE`` pairs; what is no text goes as base64.

    Raises UsageError.
    """
    files: dict[str, Any] = {}
    for pair in pairs:
        path, separator, file = pair.partition("=")
        if not separator or not path or not file:
            raise UsageError(f"--workspace-file is PATH=FILE, not {pair!r}.")
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
        try:
            files[path] = data.decode()
        except UnicodeDecodeError:
            files[path] = {"base64": base64.b64encode(data).decode()}
    return files
