"""``threadline slack``: what a person types to set a bot up, and what they get."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from threadline.cli.main import run
from threadline_slack.testing import FakeSlack

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "slack-helper")
URL = "https://agents.example.com/helper"


@dataclass(frozen=True)
class Done:
    """A command that was run in this process, which spares the imports."""

    returncode: int
    stdout: str
    stderr: str


Typed = Callable[..., Done]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Run ``threadline slack …``, with nothing of Slack in the environment but what is given."""
    for name in [name for name in os.environ if "SLACK_" in name]:
        monkeypatch.delenv(name)

    def type_(*arguments: str, **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = run(["slack", *arguments])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return type_


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two bots."""
    folder = tmp_path / "helper"
    (folder / "agent" / "channels").mkdir(parents=True)
    (folder / "agent" / "instructions.md").write_text("Help.")
    source = "from threadline_slack import SlackChannel\n\nchannel = SlackChannel({})\n"
    for name, options in (("slack", ""), ("triage", 'prefix="TRIAGE_", follow_ups=False')):
        (folder / "agent" / "channels" / f"{name}.py").write_text(source.format(options))
    return folder


def test_help(cli: Cli) -> None:
    assert "  slack: " in cli("--help").stdout
    done = cli("slack", "--help")
    assert done.returncode == 0
    assert all(f"  {name}: " in done.stdout for name in ("manifest", "doctor", "demo"))


@pytest.mark.parametrize("command", ["manifest", "doctor", "demo"])
def test_each_command_has_help(cli: Cli, command: str) -> None:
    done = cli("slack", command, "--help")
    assert done.stdout.startswith(f"Usage: threadline slack {command}")


# manifest


def test_a_manifest_for_socket_mode(typed: Typed) -> None:
    done = typed("manifest", EXAMPLE)
    assert done.returncode == 0
    made = json.loads(done.stdout)
    assert made["display_information"]["name"] == "Launch helper"
    assert made["features"]["bot_user"]["display_name"] == "launch-helper"
    assert made["settings"]["socket_mode_enabled"] is True
    assert "https://api.slack.com/apps" in done.stderr


def test_a_manifest_for_http(typed: Typed) -> None:
    made = json.loads(typed("manifest", EXAMPLE, "--url", URL, "--org").stdout)
    settings = made["settings"]
    assert settings["socket_mode_enabled"] is False
    assert settings["org_deploy_enabled"] is True
    endpoint = f"{URL}/v1/channels/slack/events"
    assert settings["event_subscriptions"]["request_url"] == endpoint


def test_the_environment_chooses_how_events_come(typed: Typed) -> None:
    done = typed("manifest", EXAMPLE, SLACK_SIGNING_SECRET="hush")
    assert done.returncode == 2
    assert "Give --url" in done.stderr
    both = {"SLACK_SIGNING_SECRET": "hush", "SLACK_APP_TOKEN": "xapp-hush"}
    done = typed("manifest", EXAMPLE, **both)
    assert json.loads(done.stdout)["settings"]["socket_mode_enabled"] is True
    assert "hush" not in done.stdout + done.stderr
    done = typed("manifest", EXAMPLE, "--url", URL, **both)
    assert json.loads(done.stdout)["settings"]["socket_mode_enabled"] is False


def test_a_manifest_for_many_workspaces(typed: Typed) -> None:
    many = {"SLACK_CLIENT_ID": "1.2"}
    assert typed("manifest", EXAMPLE, **many).returncode == 2
    made = json.loads(typed("manifest", EXAMPLE, "--url", URL, **many).stdout)
    back = f"{URL}/v1/channels/slack/oauth_redirect"
    assert made["oauth_config"]["redirect_urls"] == [back]
    assert made["settings"]["socket_mode_enabled"] is False
    by_socket = many | {"SLACK_APP_TOKEN": "xapp-1"}
    made = json.loads(typed("manifest", EXAMPLE, "--url", URL, **by_socket).stdout)
    assert made["oauth_config"]["redirect_urls"] == [back]
    assert made["settings"]["socket_mode_enabled"] is True


def test_yaml_says_the_same(typed: Typed) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    shown = typed("manifest", EXAMPLE, "--yaml").stdout
    assert yaml.safe_load(shown) == json.loads(typed("manifest", EXAMPLE).stdout)


def test_several_bots(typed: Typed, project: Path) -> None:
    done = typed("manifest", str(project))
    assert done.returncode == 2
    assert "--channel: slack, triage" in done.stderr
    made = json.loads(typed("manifest", str(project), "--channel", "triage").stdout)
    events = made["settings"]["event_subscriptions"]["bot_events"]
    assert events == ["app_mention", "message.im"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("manifest {oncall}", "no Slack channel"),
        ("manifest {example} --channel other", "no Slack channel 'other'"),
        ("manifest {example} --url http://agents.example.com", "https://"),
        ("manifest {example} --transport http", "Give --url"),
        ("manifest {example} --transport socket --url https://a.example", "leave --url out"),
        ("doctor {oncall}", "no Slack channel"),
    ],
)
def test_what_cannot_be_is_said_so(typed: Typed, oncall: str, line: str, said: str) -> None:
    done = typed(*line.format(oncall=oncall, example=EXAMPLE).split())
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


# doctor


async def test_a_doctor_that_finds_nothing(typed: Typed) -> None:
    async with FakeSlack() as slack:
        tokens = {
            "SLACK_BOT_TOKEN": slack.app.bot_token,
            "SLACK_APP_TOKEN": slack.app.app_token,
            "SLACK_API_URL": slack.api_url,
        }
        done = await asyncio.to_thread(typed, "doctor", EXAMPLE, **tokens)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ok       bot token: It is the bot @agent" in done.stdout
        assert "problem" not in done.stdout
        assert slack.app.bot_token not in done.stdout + done.stderr
        prefixed = {f"TRIAGE_{name}": value for name, value in tokens.items()}
        found = json.loads(
            (await asyncio.to_thread(typed, "doctor", EXAMPLE, "--json", **prefixed)).stdout
        )
        assert found["ok"] is False


async def test_a_second_bot_has_its_own_variables(typed: Typed, project: Path) -> None:
    async with FakeSlack() as slack:
        tokens = {
            "TRIAGE_SLACK_BOT_TOKEN": slack.app.bot_token,
            "TRIAGE_SLACK_APP_TOKEN": slack.app.app_token,
            "TRIAGE_SLACK_API_URL": slack.api_url,
        }
        options = ("doctor", str(project), "--channel", "triage", "--json")
        done = await asyncio.to_thread(typed, *options, **tokens)
        assert done.returncode == 0, done.stdout
        assert json.loads(done.stdout)["ok"] is True


async def test_a_doctor_that_finds_something(typed: Typed) -> None:
    async with FakeSlack() as slack:
        slack.app.install.scopes.discard("chat:write")
        tokens = {"SLACK_BOT_TOKEN": slack.app.bot_token, "SLACK_API_URL": slack.api_url}
        secret = {"SLACK_SIGNING_SECRET": slack.app.signing_secret}
        done = await asyncio.to_thread(typed, "doctor", EXAMPLE, "--json", **tokens, **secret)
        assert done.returncode == 1
        found = json.loads(done.stdout)
        (problem,) = [check for check in found["checks"] if check["state"] == "problem"]
        assert problem["said"] == "Missing: chat:write."
        assert "install the app again" in problem["fix"]
        words = await asyncio.to_thread(typed, "doctor", EXAMPLE, **tokens, **secret)
        assert "problem  scopes: Missing: chat:write.\n         Put what" in words.stdout


def test_a_doctor_without_variables(typed: Typed) -> None:
    done = typed("doctor", EXAMPLE)
    assert done.returncode == 1
    assert "SLACK_BOT_TOKEN is not set" in done.stdout
