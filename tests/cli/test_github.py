"""``threadline github``: what a person types to set a bot up and to try it, and what they get."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from threadline.cli.main import run
from threadline.project import load_project
from threadline.testing import TestHost
from threadline_github.setup.manifest import Needs, events, permissions
from threadline_github.testing import DEFAULTS, FakeGitHub

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

URL = "https://agents.example.com/reviewer"
NAME = DEFAULTS["repository"]
AGENT = """from threadline import Agent
from threadline.harness.scripted import Scripted

agent = Agent(name="Reviewer", description="It reads what changed.", harness=Scripted())
"""


@dataclass(frozen=True)
class Done:
    """A command that was run in this process, which spares the imports."""

    returncode: int
    stdout: str
    stderr: str


Typed = Callable[..., Done]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Run ``threadline github …``, with nothing of GitHub in the environment but what is given."""
    for name in [name for name in os.environ if "GITHUB_" in name or "THREADLINE_" in name]:
        monkeypatch.delenv(name)

    def type_(*arguments: str, **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = run(["github", *arguments])
        said = capsys.readouterr()
        # A host that the test serves logs to the same stream.
        out = [line for line in said.out.splitlines(True) if not line.startswith("agent=")]
        return Done(code, "".join(out), said.err)

    return type_


def project(tmp_path: Path, **channels: str) -> Path:
    """Write a project with a channel for each name, with these options."""
    folder = tmp_path / "reviewer"
    (folder / "agent" / "channels").mkdir(parents=True)
    (folder / "agent" / "instructions.md").write_text("Review.")
    (folder / "agent" / "agent.py").write_text(AGENT)
    source = "from threadline_github.channel import GitHubChannel\n\nchannel = GitHubChannel({})\n"
    for name, given in channels.items():
        (folder / "agent" / "channels" / f"{name}.py").write_text(source.format(given))
    return folder


@pytest.fixture
def one(tmp_path: Path) -> str:
    """A project with one bot."""
    return str(project(tmp_path, github="worktree=False"))


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A project with two bots."""
    second = 'prefix="TRIAGE_", on=["opened"], worktree=False'
    return str(project(tmp_path, github="worktree=False", triage=second))


@asynccontextmanager
async def hosted(
    folder: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestHost]:
    """Serve a project's agent, with these variables."""
    with monkeypatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        host = TestHost(load_project(Path(folder)))
        await host.start()
    try:
        yield host
    finally:
        await host.close()


def test_help(cli: Cli) -> None:
    assert "  github: " in cli("--help").stdout
    done = cli("github", "--help")
    assert done.returncode == 0
    assert all(f"  {name}: " in done.stdout for name in ("manifest", "doctor", "replay", "demo"))


@pytest.mark.parametrize("command", ["manifest", "doctor", "replay", "demo"])
def test_each_command_has_help(cli: Cli, command: str) -> None:
    done = cli("github", command, "--help")
    assert done.stdout.startswith(f"Usage: threadline github {command}")


# manifest


def test_a_manifest(typed: Typed, one: str) -> None:
    done = typed("manifest", one, "--url", URL)
    assert done.returncode == 0
    made = json.loads(done.stdout)
    assert (made["name"], made["description"]) == ("Reviewer", "It reads what changed.")
    assert made["hook_attributes"]["url"] == f"{URL}/v1/channels/github"
    assert "https://github.com/settings/apps/new?name=Reviewer" in done.stderr
    assert "GITHUB_APP_PRIVATE_KEY" in done.stderr


def test_a_page_for_an_organisation_of_another_server(typed: Typed, one: str) -> None:
    server = {"GITHUB_API_URL": "https://git.example.com/api/v3"}
    done = typed("manifest", one, "--url", URL, "--org", "octo", "--html", **server)
    at = "https://git.example.com/organizations/octo/settings/apps/new"
    assert done.stdout.startswith("<!doctype html>")
    assert f'<form action="{at}" method="post">' in done.stdout
    assert f"{at}?name=" in done.stderr


def test_several_bots(typed: Typed, two: str) -> None:
    done = typed("manifest", two, "--url", URL)
    assert done.returncode == 2
    assert "--channel: github, triage" in done.stderr
    done = typed("manifest", two, "--url", URL, "--channel", "triage")
    made = json.loads(done.stdout)
    assert made["hook_attributes"]["url"] == f"{URL}/v1/channels/triage"
    assert made["default_events"] == ["pull_request", "repository"]
    assert "TRIAGE_GITHUB_APP_ID" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("manifest {oncall} --url https://a.example", "no GitHub channel"),
        ("manifest {one} --url https://a.example --channel other", "no GitHub channel 'other'"),
        ("manifest {one}", "Give --url"),
        ("manifest {one} --url agents.example.com", "no address"),
        ("doctor {oncall}", "no GitHub channel"),
        ("replay nothing.json {one}", "neither owner/repo#7 nor a file"),
        ("replay payload.json {one} --comment hello", "--comment"),
        ("replay octo/widget#7 {one} --event push", "--event"),
        ("replay octo/widget#7 {one} --url example", "no address"),
    ],
)
def test_what_cannot_be_is_said_so(
    typed: Typed, oncall: str, one: str, line: str, said: str
) -> None:
    arguments = line.format(oncall=oncall, one=one).split()
    if arguments[0] == "replay" and "--url" not in arguments:
        arguments += ["--url", "http://127.0.0.1:1"]
    done = typed(*arguments, GITHUB_WEBHOOK_SECRET="hush")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == ""


# doctor


async def test_a_doctor_that_finds_nothing(typed: Typed, one: str) -> None:
    needs = Needs(name="Reviewer", worktree=False)
    async with FakeGitHub() as github:
        github.app.webhook_url = f"{URL}/v1/channels/github"
        for installation in github.app.installations:
            installation.permissions = permissions(needs)
        github.app.permissions, github.app.events = permissions(needs), set(events(needs))
        done = await asyncio.to_thread(typed, "doctor", one, **github.environ)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"ok       app: It is the App {DEFAULTS['slug']}" in done.stdout
        assert "problem" not in done.stdout
        assert github.app.webhook_secret not in done.stdout + done.stderr


async def test_a_doctor_that_finds_something(typed: Typed, two: str) -> None:
    async with FakeGitHub() as github:
        github.app.permissions = {"metadata": "read"}
        prefixed = {f"TRIAGE_{name}": value for name, value in github.environ.items()}
        options = ("doctor", two, "--channel", "triage", "--json")
        done = await asyncio.to_thread(typed, *options, **prefixed)
        assert done.returncode == 1
        found = json.loads(done.stdout)
        assert found["ok"] is False
        (lacks,) = [check for check in found["checks"] if check["name"] == "permissions"]
        assert lacks["said"] == "The App lacks pull_requests: write."
        words = await asyncio.to_thread(typed, *options[:-1], **prefixed)
        assert "problem  permissions: The App lacks pull_requests: write.\n         Set" in (
            words.stdout
        )


def test_a_doctor_without_variables(typed: Typed, one: str) -> None:
    done = typed("doctor", one)
    assert done.returncode == 1
    assert "GITHUB_WEBHOOK_SECRET is not set" in done.stdout


async def test_a_doctor_asks_the_host(
    typed: Typed, one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeGitHub() as github:
        environ = github.environ
        async with hosted(one, environ, monkeypatch) as host:
            arguments = ("doctor", one, "--json", "--url", host.url)
            for secret, state in ((environ["GITHUB_WEBHOOK_SECRET"], "ok"), ("other", "problem")):
                given = environ | {"GITHUB_WEBHOOK_SECRET": secret}
                done = await asyncio.to_thread(typed, *arguments, **given)
                checks = json.loads(done.stdout)["checks"]
                assert [one["state"] for one in checks if one["name"] == "address"] == [state]


# replay


def test_no_host(typed: Typed, one: str) -> None:
    done = typed("replay", "octo/widget#7", one, GITHUB_WEBHOOK_SECRET="hush")
    assert done.returncode == 3
    assert "threadline serve" in done.stderr
    payload = Path(one) / "payload.json"
    payload.write_text('{"zen": "x"}')
    url = ("--url", "http://127.0.0.1:1")
    done = typed("replay", str(payload), one, *url, GITHUB_WEBHOOK_SECRET="hush")
    assert done.returncode == 3
    assert "No host answers at http://127.0.0.1:1/v1/channels/github" in done.stderr
    done = typed("replay", str(payload), one, *url)
    assert done.returncode == 2
    assert "GITHUB_WEBHOOK_SECRET is not set" in done.stderr


async def test_replays(
    typed: Typed, one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeGitHub() as github:
        pull = github.user(DEFAULTS["person"]).open_pull()
        environ = github.environ
        async with hosted(one, environ, monkeypatch) as host:

            async def replay(*arguments: str, **changes: str) -> Done:
                line = ("replay", *arguments, "--url", host.url)
                return await asyncio.to_thread(typed, *line, **(environ | changes))

            done = await replay(f"{NAME}#{pull.number}", one)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "a turn has started" in done.stdout
            session = done.stdout.split("session ")[1].split(":")[0]
            await host.session(session).rest()

            comment = ("--comment", f"@{DEFAULTS['slug']} why?", "--as", DEFAULTS["person"])
            done = await replay(f"{NAME}#{pull.number}", one, *comment, "--json")
            said = json.loads(done.stdout)
            assert (said["event"], said["status"]) == ("issue_comment", 202)
            assert said["answer"]["deliveries"][0]["sessionId"] == session
            await host.session(session).rest()

            quiet = ("--comment", "nothing", "--as", DEFAULTS["stranger"])
            done = await replay(f"{NAME}#{pull.number}", one, *quiet)
            assert done.returncode == 0
            assert "it starts nothing: a person who may not ask" in done.stdout

            github.app.webhook_url = "http://127.0.0.1:9"
            github.user(DEFAULTS["person"]).open_pull()
            await github.settled()
            delivered = github.deliveries("pull_request", "opened")[-1]
            saved = tmp_path / "delivery.json"
            request = {"headers": dict(delivered.headers), "payload": delivered.payload}
            saved.write_text(json.dumps({"guid": delivered.guid, "request": request}))
            first = await replay(str(saved), one)
            again = await replay(str(saved), one)
            anew = await replay(str(saved), one, "--new-id")
            assert delivered.guid in first.stdout
            assert "it was accepted before" in again.stdout
            assert "it was accepted before" not in anew.stdout

            refused = await replay(str(saved), one, GITHUB_WEBHOOK_SECRET="another")
            assert refused.returncode == 1
            assert "does not take the signature" in refused.stdout
            await host.session(anew.stdout.split("session ")[1].split(":")[0]).rest()
            host.check_laws()
