"""What a workspace is made of: teams, people, apps, channels, messages, files and views."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "ALL_SCOPES",
    "AgentThread",
    "App",
    "Channel",
    "Guest",
    "Install",
    "Json",
    "Kind",
    "Message",
    "StoredFile",
    "Stream",
    "Team",
    "User",
    "View",
]

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["channel", "group", "im", "mpim"]
Guest: TypeAlias = Literal["multi", "single"]

ALL_SCOPES = frozenset(
    {
        "app_mentions:read",
        "assistant:write",
        "channels:history",
        "channels:join",
        "channels:read",
        "chat:write",
        "chat:write.customize",
        "commands",
        "emoji:read",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "im:read",
        "im:write",
        "mpim:history",
        "mpim:read",
        "mpim:write",
        "reactions:read",
        "reactions:write",
        "team:read",
        "usergroups:read",
        "users:read",
        "users:read.email",
    }
)
"""What an app is given unless a test says otherwise; ``chat:write.public`` is not among them."""


@dataclass(slots=True, eq=False)
class Team:
    """A workspace; ``enterprise`` is the organisation it belongs to, if any."""

    id: str
    name: str
    domain: str
    enterprise: str | None = None


@dataclass(slots=True, eq=False)
class User:
    """A person or a bot user of one team; ``guest`` is how much of it a guest sees."""

    id: str
    team: str
    name: str
    real_name: str
    email: str | None = None
    guest: Guest | None = None
    bot_id: str | None = None
    app: str | None = None
    deleted: bool = False


@dataclass(slots=True, eq=False)
class App:
    """An app as its settings page has it.

    ``request_url`` takes events, and interactivity too unless ``interactivity_url`` is set; with
    ``socket_mode`` all of it goes over the app's sockets instead. ``events`` are the subscriptions,
    such as ``message.channels``; None stands for all. ``commands`` None takes every command.
    ``is_agent``: it is declared an agent, so that it may have agent sessions.
    """

    id: str
    name: str
    signing_secret: str
    app_token: str
    client_id: str
    client_secret: str
    verification_token: str = "legacy-verification-token"
    request_url: str | None = None
    interactivity_url: str | None = None
    socket_mode: bool = False
    events: set[str] | None = None
    commands: set[str] | None = None
    is_agent: bool = True
    installs: list[Install] = field(default_factory=list)

    @property
    def install(self) -> Install:
        """The first installation."""
        if not self.installs:
            raise LookupError(f"The app {self.id} is installed nowhere; call slack.install(app).")
        return self.installs[0]

    @property
    def bot_token(self) -> str:
        """The bot token of the first installation."""
        return self.install.token

    @property
    def bot_user(self) -> str:
        """The bot user's id of the first installation."""
        return self.install.bot_user

    @property
    def bot_id(self) -> str:
        """The bot's id of the first installation."""
        return self.install.bot_id


@dataclass(slots=True, eq=False)
class Install:
    """An app in one team, or with ``team`` None in a whole organisation."""

    app: App
    team: str | None
    enterprise: str | None
    bot_user: str
    bot_id: str
    token: str
    scopes: set[str]
    installer: str
    revoked: bool = False
    refresh_token: str | None = None


@dataclass(slots=True, eq=False)
class Stream:
    """A message that is, or was, streaming; ``opened`` is in the clock's monotonic seconds.

    ``state``: in_progress, completed, stopped (by a person) or errored (it lived too long).
    ``mode`` is what it was opened with, ``text`` or ``chunks``; None before there was any content.
    """

    opened: float
    state: Literal["in_progress", "completed", "stopped", "errored"] = "in_progress"
    mode: Literal["text", "chunks"] | None = None
    tasks: dict[str, Json] = field(default_factory=dict)
    plan: str | None = None
    recipient: tuple[str | None, str | None] = (None, None)


@dataclass(slots=True, eq=False)
class Message:
    """A message; ``user`` is missing in classic bot messages, ``bot_id`` in people's.

    ``only_for`` is who sees it, for an ephemeral one. ``root`` is the thread it is a reply in.
    """

    channel: str
    ts: str
    team: str
    text: str
    user: str | None = None
    bot_id: str | None = None
    app: str | None = None
    username: str | None = None
    icons: Json | None = None
    subtype: str | None = None
    root: str | None = None
    blocks: list[Json] | None = None
    attachments: list[Json] | None = None
    metadata: Json | None = None
    files: list[StoredFile] = field(default_factory=list)
    client_msg_id: str | None = None
    edited: Json | None = None
    reactions: dict[str, list[str]] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)
    stream: Stream | None = None
    only_for: str | None = None
    deleted: bool = False
    extra: Json = field(default_factory=dict)

    @property
    def thread_ts(self) -> str | None:
        """The thread it belongs to, as its root or as a reply; None for a message without one."""
        if self.root is not None:
            return self.root
        return self.ts if self.replies else None

    @property
    def streaming(self) -> bool:
        """Whether it takes more of a stream."""
        return self.stream is not None and self.stream.state == "in_progress"


@dataclass(slots=True, eq=False)
class AgentThread:
    """What apps have said of one thread: status line, title, prompts and the agent's session.

    ``session`` is the session's status, None before there is one; times are monotonic seconds.
    """

    channel: str
    ts: str
    app: str
    status: str = ""
    status_set: float = 0.0
    loading_messages: list[str] = field(default_factory=list)
    title: str | None = None
    prompts: list[Json] = field(default_factory=list)
    session: str | None = None
    session_set: float = 0.0
    initiator: str | None = None


@dataclass(slots=True, eq=False)
class Channel:
    """A conversation of any kind; ``teams`` are those that share it.

    ``posts`` has what is there now, by ts; ``ephemeral`` what only one person sees.
    """

    id: str
    kind: Kind
    name: str
    teams: list[str]
    creator: str
    created: int
    members: dict[str, None] = field(default_factory=dict)
    external: bool = False
    archived: bool = False
    posts: dict[str, Message] = field(default_factory=dict)
    deleted: list[Message] = field(default_factory=list)
    ephemeral: list[Message] = field(default_factory=list)
    threads: dict[tuple[str, str], AgentThread] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether only members know of it."""
        return self.kind != "channel"


@dataclass(slots=True, eq=False)
class StoredFile:
    """A file; ``content`` None until it has been uploaded.

    ``access`` ``check_file_info`` is what Slack Connect says instead of the file's details.
    """

    id: str
    team: str
    name: str
    title: str
    user: str
    size: int
    created: int
    mimetype: str = "application/octet-stream"
    content: bytes | None = None
    channels: list[str] = field(default_factory=list)
    access: str = "visible"
    deleted: bool = False


@dataclass(slots=True, eq=False)
class View:
    """A modal or a home tab as the app gave it; ``open`` until it is submitted or closed."""

    id: str
    team: str
    app: str
    bot_id: str
    user: str
    body: Json
    hash: str
    root: str
    previous: str | None = None
    open: bool = True
    errors: dict[str, str] = field(default_factory=dict)
