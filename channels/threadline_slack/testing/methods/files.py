"""files.getUploadURLExternal, completeUploadExternal and info."""

from __future__ import annotations

from threadline_slack.testing.activity import CannotReply
from threadline_slack.testing.model import Json, StoredFile
from threadline_slack.testing.refusal import Refusal, invalid
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import file_json

__all__: list[str] = []


@method("files.getUploadURLExternal", "files:write", tier=4)
def get_upload_url(ask: Ask) -> Json:
    """Give an address to send a file to."""
    size = ask.number("length", 0)
    if size <= 0:
        raise Refusal("missing_argument")
    author = ask.bot()
    file, url = ask.desk.uploads.expect(
        ask.need("filename"), size, user=ask.install.bot_user, team=author.team
    )
    return {"upload_url": url, "file_id": file.id}


@method("files.completeUploadExternal", "files:write", tier=4)
def complete_upload(ask: Ask) -> Json:
    """Share files that have arrived; without a channel they stay unshared."""
    given = ask.value("files")
    if not isinstance(given, list) or not given:
        raise invalid("missing required field: files")
    files = [_arrived(ask, one) for one in given]
    targets = [ask.text("channel_id"), *ask.text("channels").split(",")]
    for target in dict.fromkeys(one for one in targets if one):
        _share(ask, target, files)
    return {"files": [file_json(ask.state, file) for file in files]}


def _arrived(ask: Ask, one: Json) -> StoredFile:
    file = ask.state.files.get(str(one.get("id")))
    if file is None or file.content is None:
        raise Refusal("file_not_found")
    file.title = one.get("title") or file.title
    return file


def _share(ask: Ask, target: str, files: list[StoredFile]) -> None:
    try:
        channel = ask.state.channel(target)
    except LookupError:
        raise Refusal("channel_not_found") from None
    if ask.install.bot_user not in channel.members:
        raise Refusal("not_in_channel" if not channel.private else "channel_not_found")
    try:
        ask.desk.activity.post(
            channel,
            ask.bot(),
            ask.text("initial_comment"),
            thread_ts=ask.maybe("thread_ts"),
            files=files,
        )
    except CannotReply:
        raise Refusal("invalid_channel") from None


@method("files.info", "files:read", tier=4)
def info(ask: Ask) -> Json:
    """Return all of a file that is in a conversation of the app, or its own."""
    file = ask.state.files.get(ask.need("file"))
    if file is None:
        raise Refusal("file_not_found")
    if file.deleted:
        raise Refusal("file_deleted")
    shared = any(
        ask.install.bot_user in ask.state.channels[channel].members for channel in file.channels
    )
    if not shared and file.user != ask.install.bot_user:
        raise Refusal("file_not_found")
    return {"file": file_json(ask.state, file, full=True)}
