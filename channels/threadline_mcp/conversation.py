"""The agent as somebody to ask: ``ask``, ``check`` and, where it has tools, ``call_tool``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, StrictBool, StrictStr

from threadline.channel.context import Context, Delivery, RouteContext, Session, closing
from threadline.channel.tokens import TokenFormat, matching
from threadline.errors import StaleToken
from threadline_mcp.direct import failed, own_tools
from threadline_mcp.progress import follow, last_end, reply_of
from threadline_mcp.surface import Arguments, Offer, Outcome, Result, as_text, parsed, schema_of

if TYPE_CHECKING:
    from threadline.principal import Principal
    from threadline.session.core import Fate
    from threadline_mcp.exchange import Exchange

__all__ = ["TOKENS", "Conversation"]

DEFAULT_WAIT = 30.0
LONGEST_WAIT = 300.0

TOKENS: TokenFormat = matching("mcp:[A-Za-z0-9_-]{22}", example="mcp:WmFuemliYXIgaXMgYmln01")
"""Stable, so that a client that lost an answer can still go on; sessions belong to their owner."""

Status = Literal["running", "parked", "finished", "failed", "cancelled", "interrupted"]

# How a turn ended, as the answers say it.
_ENDS: dict[str, Status] = {
    "completed": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "cleared": "cancelled",
    "interrupted": "interrupted",
}


class Ask(Arguments):
    """The arguments of ``ask``."""

    message: StrictStr = Field(description="What to say to the agent.")
    continuation_token: StrictStr | None = Field(
        default=None, description="Of an earlier answer, to go on with that conversation."
    )
    wait_seconds: float = Field(
        default=DEFAULT_WAIT,
        ge=0,
        le=LONGEST_WAIT,
        description="How long to wait for the reply before the answer says 'running'.",
    )
    delivery_id: StrictStr | None = Field(
        default=None, description="An id of your own: the same message sent again counts once."
    )


class Check(Arguments):
    """The arguments of ``check``."""

    session_id: StrictStr = Field(description="The sessionId that ask answered with.")


class CallTool(Arguments):
    """The arguments of ``call_tool``."""

    name: StrictStr = Field(description="The tool's name.")
    input: dict[str, Any] | None = Field(default=None, description="The tool's input.")
    session_id: StrictStr | None = Field(
        default=None, description="Run it in this session and its workspace, while it rests."
    )
    dry_run: StrictBool = Field(default=False, description="Run a read, and only pretend a write.")
    as_of: StrictStr | None = Field(
        default=None, description="An ISO 8601 instant with a timezone: run as of that time."
    )


class Failure(Result):
    """Why a turn has no reply."""

    code: str
    message: str


class Told(Result):
    """The result of ``ask`` and of ``check``."""

    session_id: str
    continuation_token: str | None = Field(
        default=None, description="Give it to ask, to go on with this conversation."
    )
    status: Status
    reply: str | None = Field(default=None, description="What the agent answered.")
    error: Failure | None = Field(default=None, description="Why there is no reply.")


class Called(Result):
    """The result of ``call_tool``."""

    call_id: str
    tool_name: str
    result: Any
    dry_run: bool = False


class Conversation:
    """Conversations with the agent; each belongs to the principal who began it."""

    def offers(self, ctx: Context) -> list[Offer]:
        """Return ask and check, and call_tool when the agent has tools of its own."""
        offers = [_ask_offer(ctx), _CHECK]
        names = [tool.name for tool in own_tools(ctx)]
        return [*offers, _call_offer(names)] if names else offers

    async def call(self, exchange: Exchange, name: str, arguments: Any) -> Outcome:
        """Call one of them."""
        match name:
            case "ask":
                return await _ask(exchange, parsed(Ask, arguments))
            case "check":
                return await _check(exchange.ctx, parsed(Check, arguments))
            case _:
                return await _call_tool(exchange.ctx, parsed(CallTool, arguments))


def _ask_offer(ctx: Context) -> Offer:
    about = f" {ctx.description}" if ctx.description else ""
    return Offer(
        "ask",
        f"Send a message to the agent {ctx.agent} and wait for its reply.{about}\n\n"
        "Without continuationToken it begins a new conversation; with the one of an earlier answer "
        "it goes on, and interrupts what the agent still does there. When status is 'running' the "
        "agent works on: call check with the sessionId later. 'parked' waits for a person to "
        "approve a step.",
        schema_of(Ask),
        schema_of(Told),
        destroys=any(tool.effect == "write" for tool in ctx.tools()),
    )


_CHECK = Offer(
    "check",
    "Tell how a conversation stands: its status, the newest reply if there is one, and the "
    "continuationToken to go on with.",
    schema_of(Check),
    schema_of(Told),
    reads=True,
    repeatable=True,
    open_world=False,
)


def _call_offer(names: list[str]) -> Offer:
    return Offer(
        "call_tool",
        "Run one of the agent's own tools directly, without asking the agent. An error says what "
        f"is wrong with the input. Tools: {', '.join(names)}.",
        schema_of(CallTool),
        schema_of(Called),
        destroys=True,
    )


async def _ask(exchange: Exchange, asked: Ask) -> Outcome:
    ctx, token, start = exchange.ctx, asked.continuation_token, 0
    if token is None:
        token = _new_token(ctx.principal, asked.delivery_id)
    else:
        TOKENS.check(token)
        session = ctx.session(token, action="send")
        if session is None:
            raise StaleToken("The continuationToken names no conversation. Leave it out to begin.")
        start = await session.next_index()
    delivery = await ctx.send(
        asked.message, continuation_token=token, delivery_id=asked.delivery_id
    )
    told = Told(session_id=delivery.session_id, continuation_token=token, status="running")
    fate = await _waited(exchange, delivery, start, asked.wait_seconds)
    if fate is None or fate.status is None or fate.status == "interrupted":
        # Not over: a turn that a restart interrupts goes on, and check will know.
        session = ctx.session(delivery.session_id)
        told.status = _going(session.status) if session is not None else "running"
        return told.outcome()
    return _ended(told, fate.status, fate.result, fate.error).outcome()


def _going(status: str) -> Status:
    return "parked" if status == "parked" else "running"


def _ended(told: Told, status: str, result: Any, error: Any) -> Told:
    told.status = _ENDS.get(status, "failed")
    if told.status == "finished":
        told.reply = reply_of(result)
    else:
        code = str((error or {}).get("code") or status)
        message = str((error or {}).get("message") or "The turn has no reply.")
        told.error = Failure(code=code, message=message)
    return told


def _new_token(principal: Principal, delivery_id: str | None) -> str:
    """Return a new conversation's name; a message sent again names the same one."""
    if delivery_id is None:
        return f"mcp:{secrets.token_urlsafe(16)}"
    named = hashlib.sha256(f"{principal.key}\0{delivery_id}".encode(errors="surrogatepass"))
    return f"mcp:{urlsafe_b64encode(named.digest()).decode()[:22]}"


async def _waited(
    exchange: Exchange, delivery: Delivery, start: int, seconds: float
) -> Fate | None:
    """Wait for the end of the turn, and tell of its progress; None when it is not known yet.

    The message is stored: whatever becomes of the wait, the turn runs.
    """
    session = exchange.ctx.session(delivery.session_id)
    settled = asyncio.ensure_future(delivery.settled())
    ending = asyncio.ensure_future(exchange.ctx.shutting_down())
    try:
        async with _telling(exchange, session, start):
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait({settled, ending}, timeout=seconds, return_when=first)
        return await settled if settled.done() else None
    finally:
        settled.cancel()
        ending.cancel()
        await asyncio.wait({settled, ending})


@contextlib.asynccontextmanager
async def _telling(exchange: Exchange, session: Session | None, start: int) -> AsyncIterator[None]:
    """Tell the caller of a session's progress meanwhile, if it asked for that."""
    if exchange.message.progress_token is None or session is None:
        yield
        return

    async def tell() -> None:
        async with closing(session.follow(start)) as chunks:
            async for sentence in follow(chunks):
                await exchange.progress(sentence)

    task = asyncio.ensure_future(tell())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            exchange.ctx.log.warning("mcp.progress_failed", error=repr(error), exc_info=error)


async def _check(ctx: RouteContext, asked: Check) -> Outcome:
    session = await ctx.reach(asked.session_id)
    status = session.status
    mine = session.record.channel == ctx.channel
    told = Told(
        session_id=session.id,
        continuation_token=session.continuation_token if mine else None,
        status=_going(status),
    )
    end = await last_end(session) if status not in ("running", "queued", "parked") else None
    if end is None:
        return told.outcome()
    how = "completed" if end.type == "turn.completed" else str(end.data.get("status"))
    return _ended(told, how, end.data.get("result"), end.data).outcome()


async def _call_tool(ctx: RouteContext, asked: CallTool) -> Outcome:
    session_id = None
    if asked.session_id is not None:
        session_id = (await ctx.reach(asked.session_id, action="send")).id
    result = await ctx.call_tool(
        asked.name,
        asked.input,
        session_id=session_id,
        dry_run=asked.dry_run,
        as_of=asked.as_of,
    )
    if result.is_error:
        return failed(result)
    called = Called(
        call_id=result.call_id,
        tool_name=result.tool_name,
        result=result.output,
        dry_run=result.dry_run,
    )
    value = called.model_dump(by_alias=True)
    return Outcome(value, [as_text(value), *result.attachments])
