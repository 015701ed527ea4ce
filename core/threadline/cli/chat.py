"""``threadline chat``: talk to an agent in the terminal, also while it works."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

from cyclopts import Parameter

from threadline.cli import exits, options
from threadline.cli.exits import UsageError
from threadline.cli.target import Target

__all__ = ["chat"]


def chat(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    url: options.Url = None,
    message: Annotated[
        str | None, Parameter(name=["--message", "-m"], help="What to say first.")
    ] = None,
    session: Annotated[str | None, Parameter(help="The session to continue.")] = None,
    token: Annotated[str | None, Parameter(help="That session's newest token.")] = None,
    timeout: Annotated[
        float, Parameter(help="How many seconds to wait for answers after the input ends.")
    ] = 900.0,
    bearer_token: options.BearerToken = None,
    state_root: options.StateRoot = None,
) -> int:
    """Talk to an agent.

    A message that is sent while the agent works is added to its turn; with ! in front it
    interrupts. /help lists the commands. Without a host on the project's state root, one runs here.
    """
    if (session is None) != (token is None):
        raise UsageError("--session and --token go together.")
    from threadline.cli.conversation import Conversation
    from threadline.cli.terminal import open_terminal

    target = Target(project, url, bearer_token, state_root)

    async def main() -> int:
        async with target.connect(announced=True) as client:
            with open_terminal() as terminal:
                conversation = Conversation(client, terminal, seconds=timeout)
                await conversation.begin(message, session, token)
                return await conversation.run()

    code = asyncio.run(main())
    sys.stdout.flush()
    return exits.FAILED if code else exits.OK
