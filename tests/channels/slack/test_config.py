"""What the environment says of a bot, and what it says wrong."""

from __future__ import annotations

import base64

import pytest

from threadline.errors import ProjectError
from threadline_slack.config import API_URL, Config, OAuth

KEY, OLD = (base64.urlsafe_b64encode(byte * 32).decode() for byte in (b"k", b"o"))
MANY = {
    "SLACK_CLIENT_ID": "1.2",
    "SLACK_CLIENT_SECRET": "secret-of-the-client",
    "SLACK_ENCRYPTION_KEY": KEY,
    "SLACK_SIGNING_SECRET": "s",
}


def problems(environ: dict[str, str], prefix: str = "") -> list[str]:
    with pytest.raises(ProjectError) as caught:
        Config.read(environ, prefix)
    return caught.value.problems


def test_a_bot_token_is_one_workspace() -> None:
    read = Config.read({"SLACK_BOT_TOKEN": " xoxb-1 ", "SLACK_SIGNING_SECRET": "s"})
    assert read == Config("xoxb-1", None, "s", API_URL)
    assert read.oauth is None


def test_a_client_is_many_workspaces() -> None:
    read = Config.read(MANY)
    assert read.bot_token is None
    assert read.oauth == OAuth("1.2", "secret-of-the-client", (KEY,))


def test_a_second_bot_has_a_prefix() -> None:
    read = Config.read({f"TRIAGE_{name}": value for name, value in MANY.items()}, "TRIAGE_")
    assert read.oauth is not None
    assert read.oauth.prefix == "TRIAGE_"
    assert "TRIAGE_SLACK_BOT_TOKEN" in problems(MANY, "TRIAGE_")[0]
    assert "TRIAGE_SLACK_CLIENT_ID" in problems(MANY, "TRIAGE_")[0]


@pytest.mark.parametrize("between", [",", " ", ", ", "\n"])
def test_there_may_be_several_keys(between: str) -> None:
    read = Config.read(MANY | {"SLACK_ENCRYPTION_KEY": f"{KEY}{between}{OLD}"})
    assert read.oauth is not None
    assert read.oauth.keys == (KEY, OLD)


def test_installations_may_be_elsewhere() -> None:
    read = Config.read(MANY | {"SLACK_INSTALLATIONS": "postgresql://u:password@h/d"})
    assert read.oauth is not None
    assert read.oauth.installations == "postgresql://u:password@h/d"


def test_nothing_secret_is_shown() -> None:
    shown = repr(Config.read(MANY | {"SLACK_INSTALLATIONS": "postgresql://u:password@h/d"}))
    assert not [one for one in (KEY, "secret-of", "password") if one in shown]


@pytest.mark.parametrize("also", ["SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET"])
def test_one_workspace_or_many(also: str) -> None:
    (said,) = problems({"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_SIGNING_SECRET": "s", also: "x"})
    assert "SLACK_BOT_TOKEN" in said
    assert also in said
    assert "Unset" in said


@pytest.mark.parametrize("missing", ["SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET"])
def test_a_client_is_both(missing: str) -> None:
    (said,) = problems({name: value for name, value in MANY.items() if name != missing})
    assert said.startswith(f"{missing} is not set.")


@pytest.mark.parametrize("key", ["", " , ", "short", "ä" * 44, KEY[:-1], KEY + "=", f"{KEY},x"])
def test_a_key_is_needed_and_the_command_that_makes_one_is_named(key: str) -> None:
    (said,) = problems(MANY | {"SLACK_ENCRYPTION_KEY": key})
    assert said.startswith("SLACK_ENCRYPTION_KEY")
    assert "Fernet.generate_key()" in said


def test_the_command_makes_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    (said,) = problems(MANY | {"SLACK_ENCRYPTION_KEY": ""})
    exec(said.partition('"')[2].rpartition('"')[0])
    made = capsys.readouterr().out.strip()
    assert Config.read(MANY | {"SLACK_ENCRYPTION_KEY": made}).oauth is not None


def test_events_have_to_come_somehow() -> None:
    without = {name: value for name, value in MANY.items() if name != "SLACK_SIGNING_SECRET"}
    (said,) = problems(without)
    assert "SLACK_APP_TOKEN" in said
    assert Config.read(without | {"SLACK_APP_TOKEN": "xapp-1"}).oauth is not None
    assert "xapp-" in problems(without | {"SLACK_APP_TOKEN": "xoxb-1"})[0]


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = problems({"SLACK_BOT_TOKEN": "xapp-1", "SLACK_API_URL": "slack"})
    assert len(said) == 3
