"""assistant.threads.* and agents.sessions.*.

A call of the former also moves the agent's session, as Slack's bridge between the two does. A
session's ``processing`` ends by itself after an hour, a status line after two minutes.
"""

from __future__ import annotations

from threadline_slack.testing.events import EVENT_SCOPES
from threadline_slack.testing.model import AgentThread, Channel, Json
from threadline_slack.testing.refusal import Refusal, invalid
from threadline_slack.testing.state import State
from threadline_slack.testing.table import Ask, method

__all__ = [
    "STATUSES",
    "STOP_EVENT",
    "begin_session",
    "session_of",
    "set_session",
    "status_of",
]

STATUSES = ("active", "processing", "suspended", "closed")
STOP_EVENT = "agent_session_stopped"

_STATUS_SECONDS = 120.0
_SESSION_SECONDS = 3600.0
_TITLE = 200
_MESSAGES = 10
_MESSAGE = 50
_UNHEARD = "missing_agent_session_stopped_event_subscription"


def status_of(state: State, said: AgentThread) -> str:
    """Return the status line that a thread shows now."""
    return said.status if state.clock.monotonic() - said.status_set < _STATUS_SECONDS else ""


def session_of(state: State, said: AgentThread) -> str | None:
    """Return the status of the agent's session now; None when there is none."""
    expired = state.clock.monotonic() - said.session_set >= _SESSION_SECONDS
    return "active" if said.session == "processing" and expired else said.session


def begin_session(ask: Ask, channel: Channel, ts: str) -> None:
    """Let a stream begin a session, if the app is an agent and there is none."""
    if not ask.install.app.is_agent:
        return
    said = ask.state.agent_thread(channel, ts, ask.install.app.id)
    if session_of(ask.state, said) is None:
        said.session, said.session_set = "processing", ask.state.clock.monotonic()


def set_session(ask: Ask, channel: Channel, ts: str, status: str) -> None:
    """Move the agent's session of a thread, if it has one."""
    said = channel.threads.get((ts, ask.install.app.id))
    if said is not None and said.session is not None:
        said.session, said.session_set = status, ask.state.clock.monotonic()


def _thread(ask: Ask, error: str = "invalid_thread_ts") -> tuple[Channel, AgentThread]:
    """Return the thread that ``channel_id`` and ``thread_ts`` name; raises :class:`Refusal`."""
    channel = ask.channel("channel_id")
    ts = ask.need("thread_ts")
    if ts not in channel.posts:
        raise Refusal(error)
    root = channel.posts[ts].root or ts
    return channel, ask.state.agent_thread(channel, root, ask.install.app.id)


@method("assistant.threads.setStatus", "chat:write", "assistant:write", tier=5)
def set_status(ask: Ask) -> Json:
    """Set the status line of a thread; an empty one clears it."""
    _, said = _thread(ask)
    messages = ask.value("loading_messages") or []
    if len(messages) > _MESSAGES or any(len(str(one)) > _MESSAGE for one in messages):
        raise invalid("no more than 10 items of 50 characters [json-pointer:/loading_messages]")
    if "status" not in ask.args:
        raise invalid("missing required field: status")
    now = ask.state.clock.monotonic()
    said.status, said.status_set, said.loading_messages = ask.text("status"), now, list(messages)
    if ask.install.app.is_agent:
        said.session, said.session_set = "processing" if said.status else "active", now
    return {}


@method("assistant.threads.setTitle", "assistant:write", tier=4)
def set_title(ask: Ask) -> Json:
    """Set the title of a thread."""
    _, said = _thread(ask)
    said.title = ask.need("title")
    return {}


@method("assistant.threads.setSuggestedPrompts", "assistant:write", tier=4)
def set_suggested_prompts(ask: Ask) -> Json:
    """Offer prompts in a thread, or at the top of the app's messages."""
    channel = ask.channel("channel_id")
    prompts = ask.value("prompts")
    if not isinstance(prompts, list) or not prompts:
        raise invalid("missing required field: prompts")
    if not all(
        isinstance(one, dict) and one.get("title") and one.get("message") for one in prompts
    ):
        raise invalid("must have a title and a message [json-pointer:/prompts]")
    ts = ask.text("thread_ts")
    if ts and ts not in channel.posts:
        raise Refusal("invalid_thread_ts")
    if not ts and not ask.install.app.is_agent:
        raise Refusal("not_agent_app")
    ask.state.agent_thread(channel, ts, ask.install.app.id).prompts = prompts
    return {}


@method("agents.sessions.setStatus", "chat:write", tier=3)
def set_session_status(ask: Ask) -> Json:
    """Set the status of a session, which is made if there is none."""
    app = ask.install.app
    channel = ask.channel("channel_id")
    if not app.is_agent or ask.install.bot_user not in channel.members:
        raise Refusal("not_authorized")
    status = ask.need("status")
    if status not in STATUSES:
        raise Refusal("invalid_status")
    if not ask.text("thread_ts"):
        raise Refusal("thread_ts_required")
    initiator = ask.maybe("initiator_user_id")
    if initiator is not None and initiator not in channel.members:
        raise Refusal("user_not_found")
    _, said = _thread(ask, "channel_not_found")
    if said.session is None:
        said.title = ask.text("title")[:_TITLE] or said.title
        said.initiator = initiator
    said.session, said.session_set = status, ask.state.clock.monotonic()
    body: Json = {"status": status, "agent_status": status, "title": said.title or ""}
    heard = app.events is None or STOP_EVENT in app.events
    if not heard or EVENT_SCOPES[STOP_EVENT] not in ask.install.scopes:
        body |= {"warning": _UNHEARD, "response_metadata": {"warnings": [_UNHEARD]}}
    return body


@method("agents.sessions.rename", "chat:write", tier=3)
def rename_session(ask: Ask) -> Json:
    """Give a session another title."""
    channel = ask.channel("channel_id")
    if not ask.text("thread_ts"):
        raise Refusal("thread_ts_required")
    title = ask.need("title")
    if len(title) > _TITLE:
        raise invalid("must be less than 201 characters [json-pointer:/title]")
    said = channel.threads.get((ask.text("thread_ts"), ask.install.app.id))
    if said is None or said.session is None:
        raise Refusal("session_not_found")
    said.title = title
    return {"title": title}
