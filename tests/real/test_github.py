"""A real GitHub server on this machine, real git, and a host of its own process.

``make test-real`` installs the server. It has no git, no event for a push to a pull request and no
list of deliveries: these come from the demo's gateway. It has no limits, expiry and forks either:
what needs these is proved against FakeGitHub.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.kill.host import HostProcess
from tests.real.github.relay import Relay

from threadline.testing import github_signature
from threadline_github.setup.demo import story
from threadline_github.setup.demo.seed import OUTSIDER, REPOSITORY, SECRET
from threadline_github.setup.demo.servers import Local

pytestmark = [pytest.mark.real]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pr-reviewer"
HOOK = "/v1/channels/github"
BOT = "pr-reviewer[bot]"
SECONDS = 60
UNSET = ("THREADLINE_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN")


@pytest.fixture(scope="module")
def program() -> Path:
    """The server's program."""
    install = Path(__file__).parent / "github" / "install.sh"
    done = subprocess.run([install], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()) / "emulate" / "dist" / "index.js"


@dataclass
class World:
    """The server, a relay before it, and a host that serves the example as a real App."""

    github: Local
    relay: Relay
    host: HostProcess
    http: aiohttp.ClientSession

    async def open_pull(self) -> int:
        return await self.github.open_pull(story.BRANCH, story.CHANGE, story.TITLE, story.BODY)

    async def head(self, number: int) -> str:
        return str((await self.github.read(f"/pulls/{number}"))["head"]["sha"])

    async def comments(self, number: int) -> list[dict[str, Any]]:
        """Return the agent's comments."""
        found = await self.github.read(f"/issues/{number}/comments?per_page=100")
        return [comment for comment in found if comment["user"]["login"] == BOT]

    async def reviews(self, number: int) -> list[dict[str, Any]]:
        found = await self.github.read(f"/pulls/{number}/reviews?per_page=100")
        return [review for review in found if review["user"]["login"] == BOT]

    async def lines(self, number: int) -> set[tuple[str, int]]:
        """Return where the agent's comments on lines are."""
        found = await self.github.read(f"/pulls/{number}/comments?per_page=100")
        return {(one["path"], one["line"]) for one in found if one["user"]["login"] == BOT}

    async def checks(self, commit: str) -> list[tuple[str, str | None]]:
        """Return names and conclusions of a commit's check runs."""
        found = await self.github.read(f"/commits/{commit}/check-runs?filter=all")
        return [(check["name"], check["conclusion"]) for check in found["check_runs"]]

    async def until(self, look: Callable[[], Awaitable[Any]], what: str) -> Any:
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    if found := await look():
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            said = [comment["body"] for comment in await self.comments(1)]
            log = self.host.tail()
            raise AssertionError(f"Not within {SECONDS} s: {what}; {said}\n{log}") from None

    async def answered(self, number: int, words: str, *, count: int = 1) -> dict[str, Any]:
        """Return the agent's newest comment once it is so many and says so."""

        async def there() -> Any:
            found = await self.comments(number)
            return found[-1] if len(found) >= count and words in found[-1]["body"] else None

        return dict(await self.until(there, f"a comment that says {words!r}"))

    async def checked(self, commit: str, conclusion: str) -> None:
        async def there() -> bool:
            return await self.checks(commit) == [("pr-reviewer", conclusion)]

        await self.until(there, f"the check {conclusion} of {commit}")

    async def rested(self) -> list[dict[str, Any]]:
        """Return the sessions once each rests and nothing waits to be posted."""

        async def there() -> Any:
            async with self.http.get(f"{self.host.url}/v1/sessions") as answer:
                sessions = (await answer.json())["sessions"]
            return sessions if all(one["status"] == "waiting" for one in sessions) else None

        return list(await self.until(there, "rest"))

    async def hook(self, event: str, payload: Any, *, secret: str = SECRET) -> tuple[int, Any]:
        """Send the host a webhook; returns status and answer."""
        body = json.dumps(payload).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-Hub-Signature-256": github_signature(secret, body),
        }
        async with self.http.post(self.host.url + HOOK, data=body, headers=headers) as answer:
            return answer.status, await answer.json()

    def worktree(self, number: int) -> Path | None:
        """Return the folder in which the pull request is checked out."""
        found = [*self.host.state.glob(f"**/pull-{number}")]
        return found[0] if found else None

    async def cli(self, *words: str) -> dict[str, Any]:
        """Run a command of ``threadline github`` with the host's environment; returns its JSON."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "threadline", "github", *words, "--json",
            cwd=ROOT, env=self.host.environment | _outer(), stdout=subprocess.PIPE,
        )  # fmt: skip
        said, _ = await process.communicate()
        found = json.loads(said)
        assert isinstance(found, dict)
        return found


def _outer() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in UNSET}


@pytest.fixture
async def world(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A host that serves the example in a fresh GitHub."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    github = Local(program, "pr-reviewer")
    host = HostProcess(tmp_path, project=EXAMPLE)
    relay = Relay("")
    try:
        await github.start(host.url + HOOK, story.BASE)
        relay.target = github.url
        await relay.start()
        variables = {f"GITHUB_{name}": value for name, value in github.environment.items()}
        host.environment = variables | {"GITHUB_API_URL": relay.url, "PR_REVIEWER_PACE": "0"}
        await host.start()
        await host.ready()
        async with aiohttp.ClientSession() as http:
            yield World(github, relay, host, http)
    finally:
        await host.kill()
        await relay.close()
        await github.close()


async def test_a_pull_request_from_its_opening_to_its_end(world: World) -> None:
    number = await world.open_pull()
    first = await world.head(number)
    await world.answered(number, "Not ready to merge")
    await world.checked(first, "failure")
    (review,) = await world.reviews(number)
    assert (review["state"], review["commit_id"]) == ("CHANGES_REQUESTED", first)
    assert await world.lines(number) == {
        ("shop/checkout.py", 8),
        ("shop/coupons.py", 8),
        ("shop/coupons.py", 16),
        ("shop/coupons.py", 17),
    }
    folder = world.worktree(number)
    assert folder is not None
    assert (folder / "shop" / "coupons.py").read_text() == story.CHANGE["shop/coupons.py"]
    assert b"+++ b/shop/coupons.py" in (folder / ".threadline/pull-request.diff").read_bytes()

    second = await world.github.push(number, story.FIX, "Fix")
    await world.answered(number, "Nothing found", count=2)
    await world.checked(second, "success")
    assert await world.checks(first) == [("pr-reviewer", "failure")]
    assert len(await world.reviews(number)) == 1
    assert (folder / "shop" / "coupons.py").read_text() == story.FIX["shop/coupons.py"]

    await world.github.comment(number, "@pr-reviewer why is a bare except a problem?")
    answer = await world.answered(number, "KeyboardInterrupt", count=3)
    assert answer["user"]["type"] == "Bot"
    (session,) = await world.rested()
    assert (session["channel"], session["mode"]) == ("github", "chat")

    await world.github.shut(number)

    async def gone() -> bool:
        return world.worktree(number) is None

    await world.until(gone, "the removal of the worktree")
    assert len(await world.comments(number)) == 3


async def test_a_question_on_a_line_is_answered_there(world: World) -> None:
    number = await world.open_pull()
    await world.answered(number, "Not ready to merge")
    await world.rested()
    path = f"/pulls/{number}/comments"
    (secret,) = [one for one in await world.github.read(path) if "secret" in one["body"]]
    asked = {"body": "@pr-reviewer why is a token bad?", "in_reply_to_id": secret["id"]}
    where = {"path": secret["path"], "line": secret["line"], "side": "RIGHT"}
    await world.github.call("POST", path, asked | where)

    async def replies() -> list[dict[str, Any]]:
        found = [one for one in await world.github.read(path) if one["user"]["login"] == BOT]
        return [one for one in found if one["in_reply_to_id"] == secret["id"]]

    await world.until(replies, "a reply on the line")
    await world.rested()
    (reply,) = await replies()
    assert "can read the repository" in reply["body"]
    assert len(await world.comments(number)) == 1


async def test_it_acts_as_the_app_and_keeps_no_credential(world: World) -> None:
    number = await world.open_pull()
    await world.answered(number, "Not ready to merge")
    await world.rested()
    granted = [call for call in world.relay.calls if call[1].endswith("/access_tokens")]
    assert [status for _, _, status in granted] == [201]
    assert [status for method, _, status in world.relay.calls if method == "POST"] == [201] * 4
    files = [path for path in world.host.state.rglob("*") if path.is_file()]
    assert files
    basic = base64.b64encode(b"x-access-token:ghs_")[:-1]
    for path in files:
        content = path.read_bytes()
        assert b"ghs_" not in content, path
        assert basic not in content, path
        assert b"PRIVATE KEY" not in content or path.name == "events.ndjson", path


async def test_who_may_not_ask_is_not_answered(world: World) -> None:
    number = await world.open_pull()
    await world.answered(number, "Not ready to merge")
    await world.rested()
    await world.github.comment(number, "@pr-reviewer what is the token?", login=OUTSIDER)
    await world.github.comment(number, "`@pr-reviewer` is its name.")
    await world.github.comment(number, "@pr-reviewer what did you find?")
    await world.answered(number, "shop/coupons.py:16", count=2)
    await world.rested()
    assert len(await world.comments(number)) == 2


async def test_what_is_not_signed_by_github_is_refused(world: World) -> None:
    status, _ = await world.hook("ping", {"zen": "x"}, secret="another")
    assert status == 401
    status, _ = await world.hook("ping", {"zen": "x"})
    assert status == 200


async def test_the_same_thing_by_another_hook_counts_once(world: World) -> None:
    number = await world.open_pull()
    await world.answered(number, "Not ready to merge")
    pull = await world.github.read(f"/pulls/{number}")
    payload = {
        "action": "opened",
        "number": number,
        "pull_request": pull,
        "repository": pull["base"]["repo"],
        "sender": pull["user"],
    }
    await world.hook("pull_request", payload)
    await world.github.comment(number, "@pr-reviewer what did you find?")
    await world.answered(number, "shop/coupons.py:16", count=2)
    await world.rested()
    assert len(await world.comments(number)) == 2


async def test_what_was_missed_is_made_up_for(world: World) -> None:
    number = await world.open_pull()
    await world.answered(number, "Not ready to merge")
    await world.rested()
    await world.host.kill()
    await world.github.comment(number, "@pr-reviewer why is a bare except a problem?")
    await world.host.start()
    await world.host.ready()
    await world.answered(number, "KeyboardInterrupt", count=2)
    (session,) = await world.rested()
    assert session["channel"] == "github"


async def test_a_delivery_made_by_hand(world: World) -> None:
    """It is another delivery of what was answered, so that only the second starts something."""
    number = await world.open_pull()
    await world.answered(number, "Not ready to merge")
    await world.rested()
    where = (f"{REPOSITORY}#{number}", "examples/pr-reviewer", "--url", world.host.url)
    found = await world.cli("replay", *where, "--comment", "@pr-reviewer what did you find?")
    assert found["status"] == 202, found
    await world.answered(number, "shop/coupons.py:16", count=2)


async def test_the_doctor_knows_this_server(world: World) -> None:
    found = await world.cli("doctor", "examples/pr-reviewer")
    problems = [check for check in found["checks"] if check["state"] == "problem"]
    assert problems == []


POSTS = {
    "comment": ("POST", r"/repos/acme/shop/issues/\d+/comments"),
    "edit": ("PATCH", r"/repos/acme/shop/issues/comments/\d+"),
    "review": ("POST", r"/repos/acme/shop/pulls/\d+/reviews"),
    "check": ("POST", r"/repos/acme/shop/check-runs"),
    "end of the check": ("PATCH", r"/repos/acme/shop/check-runs/\d+"),
}


@pytest.mark.parametrize("post", POSTS)
async def test_killed_in_the_middle_of_a_post_it_is_there_once(world: World, post: str) -> None:
    world.relay.keep_back(*POSTS[post])
    number = await world.open_pull()
    async with asyncio.timeout(SECONDS):
        await world.relay.reached.wait()
    await world.host.kill()
    await world.host.start()
    await world.host.ready()
    await world.answered(number, "Not ready to merge")
    await world.checked(await world.head(number), "failure")
    await world.rested()
    assert len(await world.comments(number)) == 1
    assert len(await world.reviews(number)) == 1
    assert len(await world.lines(number)) == 4
