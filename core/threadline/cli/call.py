"""``threadline call``: one tool, without a model."""

from __future__ import annotations

import asyncio
import json as jsonlib
import sys
from typing import Annotated, Any

from cyclopts import Parameter

from threadline.cli import exits, options, output
from threadline.cli.exits import UsageError
from threadline.cli.target import Target

__all__ = ["call"]


def call(
    tool: Annotated[str, Parameter(name="TOOL", help="The tool's name; see 'threadline info'.")],
    project: options.ProjectPath = options.HERE,
    /,
    *,
    input: Annotated[  # noqa: A002
        str, Parameter(name=["--input", "-i"], help="The arguments as JSON; - reads stdin.")
    ] = "{}",
    url: options.Url = None,
    session: Annotated[str | None, Parameter(help="The session to run it in.")] = None,
    dry_run: options.DryRun = False,
    as_of: options.AsOf = None,
    purpose: Annotated[
        str | None, Parameter(help='What the call is for, such as "eval"; tools see it.')
    ] = None,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
    json: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Print the whole answer, not the result alone."
        ),
    ] = False,
) -> int:
    """Call a tool without a model turn, and print its result."""
    target = Target(project, url, bearer_token, state_root)
    given = {
        "input": _value(sys.stdin.read() if input == "-" else input),
        "sessionId": session,
        "dryRun": dry_run or None,
        "asOf": as_of,
        "purpose": purpose,
    }
    body = {key: value for key, value in given.items() if key == "input" or value is not None}
    with output.kept_clean():
        answer = asyncio.run(_call(target, tool, body))
    if json:
        output.write_json(answer)
    elif not answer["isError"]:
        result = answer["result"]
        if isinstance(result, str):
            output.write(result)
        else:
            output.write_json(result)
    if not answer["isError"]:
        return exits.OK
    output.complain(f"{tool} failed: {answer['error']}: {answer['message']}")
    return exits.FAILED


def _value(text: str) -> Any:
    try:
        return jsonlib.loads(text)
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}.") from error


async def _call(target: Target, tool: str, body: dict[str, Any]) -> dict[str, Any]:
    url = await target.address()
    if url is not None:
        async with target.client(url) as client:
            return await client.call_tool(tool, body)
    from threadline.cli.inprocess import call_tool

    place = target.place()
    assert place is not None
    return await call_tool(place, tool, body)
