"""The GitHub of a demo: its repository in git, the gateway, and what the terminal says."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from threadline.errors import Unavailable
from threadline.host.serve import hanging_up
from threadline.project import load_project
from threadline.testing import github_signature
from threadline_github.inbound.webhook import is_signed
from threadline_github.setup.demo import story
from threadline_github.setup.demo.fake import Fake
from threadline_github.setup.demo.gateway import Gateway, entry
from threadline_github.setup.demo.origin import Origin
from threadline_github.setup.demo.positions import by_line, by_position, positions
from threadline_github.setup.demo.run import (
    NAMES,
    do,
    ended,
    point,
    run,
    slug_of,
    told,
    typed,
)
from threadline_github.setup.demo.seed import MEMBER, SECRET, seed, token_of
from threadline_github.setup.demo.servers import Local
from threadline_github.setup.demo.watch import Post, news, posts
from threadline_github.workspace.diff import parse

DIFF = """\
diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
@@ -20,2 +20,3 @@ def f():
 twenty
+more
 end
diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+first
"""
EXAMPLE = Path(__file__).parents[3] / "examples" / "pr-reviewer"
TOKEN = "ghs_good"
APP_HEAD = "f" * 40

# Lines and positions


@pytest.mark.parametrize(
    ("spot", "position"),
    [
        (("a.py", "RIGHT", 1), 1),
        (("a.py", "LEFT", 1), 1),
        (("a.py", "LEFT", 2), 2),
        (("a.py", "RIGHT", 2), 3),
        (("a.py", "RIGHT", 3), 4),
        (("a.py", "RIGHT", 21), 7),
        (("new.py", "RIGHT", 1), 1),
        (("a.py", "RIGHT", 10), None),
        (("new.py", "LEFT", 1), None),
    ],
)
def test_a_position_counts_lines_of_the_diff(
    spot: tuple[str, str, int], position: int | None
) -> None:
    assert positions(DIFF).get(spot) == position


def test_a_review_gets_positions_or_is_refused() -> None:
    known = positions(DIFF)
    comment = {"path": "a.py", "line": 2, "body": "why?"}
    assert by_position([comment], known) == [{"path": "a.py", "body": "why?", "position": 3}]
    assert by_position([{**comment, "side": "LEFT"}], known) == [
        {"path": "a.py", "body": "why?", "position": 2}
    ]
    assert by_position([comment, {**comment, "line": 10}], known) is None


def test_a_comment_gets_its_line_back() -> None:
    known = positions(DIFF)
    shown = by_line({"path": "a.py", "position": 7, "line": None}, known)
    assert (shown["line"], shown["side"]) == (21, "RIGHT")
    gone = {"path": "a.py", "position": 99, "line": None}
    assert by_line(gone, known) == gone
    assert by_line({"line": 5}, known) == {"line": 5}


def test_files_are_listed_as_github_does() -> None:
    changed, new = (entry(file) for file in parse(DIFF))
    assert (changed["filename"], changed["status"]) == ("a.py", "modified")
    assert (changed["additions"], changed["deletions"], changed["changes"]) == (2, 1, 3)
    assert changed["patch"].startswith("@@ -1,3 +1,3 @@")
    assert (new["status"], new["patch"].strip()) == ("added", "@@ -0,0 +1,1 @@\n+first")


# The repository


async def test_the_repository_has_real_commits(tmp_path: Path) -> None:
    origin = Origin(tmp_path)
    await origin.start()
    await origin.commit("main", story.BASE, "Begin")
    first = await origin.commit("coupons", story.CHANGE, "Change")
    diff = await origin.diff("main", first)
    assert [file.path for file in parse(diff)] == ["shop/checkout.py", "shop/coupons.py"]
    second = await origin.commit("coupons", story.FIX, "Fix")
    assert await origin.head("coupons") == second != first
    assert await origin.head("nothing") is None


async def test_a_server_that_calls_a_commit_otherwise_is_no_use(tmp_path: Path) -> None:
    origin = Origin(tmp_path)
    await origin.start()
    await origin.commit("main", {"a": "b\n"}, "Begin")

    async def call(method: str, path: str, data: Any) -> Any:
        return {"sha": "0" * 40}

    with pytest.raises(RuntimeError, match="The server calls"):
        await origin.publish("main", call)


async def test_git_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="git is missing"):
        await Origin(tmp_path).start()
    fake = Fake("pr-reviewer")
    try:
        with pytest.raises(Unavailable, match="git is missing"):
            await fake.start("http://127.0.0.1:1/", {})
    finally:
        await fake.close()


async def test_the_same_files_again_are_another_commit(tmp_path: Path) -> None:
    origin = Origin(tmp_path)
    await origin.start()
    await origin.commit("main", story.BASE, "Begin")
    first = await origin.commit("coupons", story.FIX, "Fix")
    assert await origin.commit("coupons", story.FIX, "Fix") != first


# The gateway


@dataclass
class Upstream:
    """A server that has one pull request and one issue, and says what it was sent."""

    pull: dict[str, Any]
    got: list[tuple[str, str, Any]] = field(default_factory=list)
    hooked: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        path = request.path
        self.got.append((request.method, request.raw_path, json.loads(body) if body else None))
        if path.endswith("/access_tokens"):
            return web.json_response({"token": TOKEN}, status=201)
        if path.endswith("/annotations"):
            return web.json_response({"total_count": 1, "check_annotations": [{"path": "a.py"}]})
        if path.endswith("/issues/1"):
            return web.json_response({"message": "Not Found"}, status=404)
        if path.endswith("/pulls"):
            return web.json_response([self.pull])
        if path.endswith(("/pulls/1", "/pulls/1/files")):
            return web.json_response(self.pull)
        if path.endswith("/comments"):
            return web.json_response([{"path": "a.py", "position": 2, "line": None}])
        return web.json_response({"path": path}, headers={"X-Seen": "yes"})

    async def hook(self, request: web.Request) -> web.Response:
        self.hooked.append((dict(request.headers), await request.read()))
        return web.Response(status=202)


@dataclass
class Front:
    """A gateway before that server, and a repository behind it."""

    gateway: Gateway
    upstream: Upstream
    origin: Origin
    http: aiohttp.ClientSession
    head: str

    async def get(self, path: str, accept: str = "application/json") -> Any:
        headers = {"Accept": accept}
        async with self.http.get(f"{self.gateway.url}{path}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json() if accept == "application/json" else await answer.text()


@asynccontextmanager
async def fronted(tmp_path: Path) -> AsyncIterator[Front]:
    origin = Origin(tmp_path)
    await origin.start()
    await origin.commit("main", {"a.py": "one\n"}, "Begin")
    head = await origin.commit("change", {"a.py": "one\ntwo\n"}, "Change")
    upstream = Upstream(
        {
            "number": 1,
            "state": "open",
            "title": "Change",
            "url": "http://x/repos/acme/shop/pulls/1",
            "head": {"ref": "change", "sha": APP_HEAD},
            "base": {"ref": "main"},
        }
    )
    application = web.Application()
    application.router.add_route("POST", "/hook", upstream.hook)
    application.router.add_route("*", "/{path:.*}", upstream.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gateway = Gateway(origin, secret=SECRET, reader="reader")
    await gateway.start()
    gateway.upstream = f"http://127.0.0.1:{runner.addresses[0][1]}"
    gateway.hooks.target = f"{gateway.upstream}/hook"
    try:
        async with aiohttp.ClientSession() as http:
            yield Front(gateway, upstream, origin, http, head)
    finally:
        await gateway.close()
        await runner.cleanup()


async def test_what_it_does_not_know_passes(tmp_path: Path) -> None:
    async with (
        fronted(tmp_path) as front,
        front.http.post(f"{front.gateway.url}/repos/a%2Fb/x?y=1", json={"z": 1}) as answer,
    ):
        assert (answer.status, answer.headers["X-Seen"]) == (200, "yes")
        assert front.upstream.got == [("POST", "/repos/a%2Fb/x?y=1", {"z": 1})]


async def test_a_pull_request_is_at_its_branch(tmp_path: Path) -> None:
    async with fronted(tmp_path) as front:
        pull = await front.get("/repos/acme/shop/pulls/1")
        assert (pull["head"]["sha"], pull["changed_files"], pull["additions"]) == (front.head, 1, 1)
        (listed,) = await front.get("/repos/acme/shop/pulls?state=open")
        assert listed["head"]["sha"] == front.head
        diff = await front.get("/repos/acme/shop/pulls/1", "application/vnd.github.diff")
        assert "+two" in diff
        (file,) = await front.get("/repos/acme/shop/pulls/1/files")
        assert (file["filename"], file["additions"]) == ("a.py", 1)
        assert await front.get("/repos/acme/shop/pulls/1/files?page=2") == []
        issue = await front.get("/repos/acme/shop/issues/1")
        assert issue["pull_request"] == {"url": front.upstream.pull["url"]}


@pytest.mark.parametrize(("line", "status"), [(2, 200), (9, 422)])
async def test_lines_of_a_review(tmp_path: Path, line: int, status: int) -> None:
    review = {"event": "COMMENT", "comments": [{"path": "a.py", "line": line, "body": "why?"}]}
    async with fronted(tmp_path) as front:
        address = f"{front.gateway.url}/repos/acme/shop/pulls/1/reviews"
        async with front.http.post(address, json=review) as answer:
            assert answer.status == status
        posted = [body for method, _, body in front.upstream.got if method == "POST"]
        sent = [{"path": "a.py", "body": "why?", "position": 2}]
        assert posted == ([{"event": "COMMENT", "comments": sent}] if status == 200 else [])
        (comment,) = await front.get("/repos/acme/shop/pulls/1/comments")
        assert comment["line"] == 2


async def test_what_the_server_has_elsewhere(tmp_path: Path) -> None:
    async with fronted(tmp_path) as front:
        pulls = f"{front.gateway.url}/repos/acme/shop/pulls"
        async with front.http.post(f"{pulls}/1/comments/7/replies", json={"body": "so"}) as answer:
            assert answer.status == 200
        sent = {"body": "so", "in_reply_to_id": 7}
        assert front.upstream.got == [("POST", "/repos/acme/shop/pulls/1/comments", sent)]
        assert (await front.get("/app/hook/config"))["url"] == front.gateway.hooks.target
        listed = await front.get("/repos/acme/shop/check-runs/1/annotations?per_page=100")
        assert listed == [{"path": "a.py"}]
        path = f"/repos/acme/shop/compare/main...{front.head}"
        assert "+two" in await front.get(path, "application/vnd.github.diff")
        assert await front.get(path) == {"path": path}


async def test_a_webhook_passes_as_it_is_when_it_is_whole(tmp_path: Path) -> None:
    body = json.dumps({"repository": {"full_name": "acme/shop"}, "ref": "x"}).encode()
    headers = {
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": "17",
        "X-Hub-Signature-256": github_signature(SECRET, body),
    }
    async with fronted(tmp_path) as front:
        address = f"{front.gateway.url}/_hook"
        async with front.http.post(address, data=body, headers=headers) as answer:
            assert answer.status == 202
        ((sent, got),) = front.upstream.hooked
        assert (got, sent["X-GitHub-Delivery"], sent["X-GitHub-Event"]) == (body, "17", "push")
        assert sent["X-Hub-Signature-256"] == headers["X-Hub-Signature-256"]
        async with front.http.post(address, data=body, headers=headers) as answer:
            assert answer.status == 202
        again, _ = front.upstream.hooked[1]
        assert again["X-GitHub-Delivery"] != "17"
        headers["X-Hub-Signature-256"] = github_signature("another", body)
        async with front.http.post(address, data=body, headers=headers) as answer:
            assert answer.status == 401
        assert len(front.upstream.hooked) == 2


async def test_a_webhook_gets_what_it_lacks(tmp_path: Path) -> None:
    async with fronted(tmp_path) as front:
        repository = {"full_name": "acme/shop"}
        for payload in (
            {"repository": repository, "issue": {"number": 1}},
            {"repository": repository, "pull_request": front.upstream.pull},
        ):
            body = json.dumps(payload).encode()
            signature = github_signature(SECRET, body)
            headers = {"X-GitHub-Event": "e", "X-GitHub-Delivery": "1"}
            headers["X-Hub-Signature-256"] = signature
            await (
                await front.http.post(f"{front.gateway.url}/_hook", data=body, headers=headers)
            ).read()
        for sent, got in front.upstream.hooked:
            assert is_signed(SECRET, got, sent["X-Hub-Signature-256"])
        comment, pull = (json.loads(got) for _, got in front.upstream.hooked)
        assert comment["issue"]["pull_request"] == {"url": front.upstream.pull["url"]}
        assert pull["pull_request"]["head"]["sha"] == front.head


async def test_what_was_sent_is_listed(tmp_path: Path) -> None:
    async with fronted(tmp_path) as front:
        await front.gateway.send("pull_request", {"action": "synchronize"})
        front.gateway.hooks.target = "http://127.0.0.1:1/"
        assert await front.gateway.send("push", {"repository": {"id": 5}}) == 0
        missed, taken = await front.get("/app/hook/deliveries?per_page=100")
        assert (missed["status_code"], missed["event"], missed["repository_id"]) == (0, "push", 5)
        assert (taken["status_code"], taken["action"]) == (202, "synchronize")
        whole = await front.get(f"/app/hook/deliveries/{missed['id']}")
        assert whole["request"]["payload"] == {"repository": {"id": 5}}
        assert whole["request"]["headers"]["X-GitHub-Delivery"] == missed["guid"]


async def test_git_fetches_with_a_token_that_was_given_out(tmp_path: Path) -> None:
    async with fronted(tmp_path) as front:

        async def listed(token: str) -> tuple[int, str]:
            basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            process = await asyncio.create_subprocess_exec(
                "git",
                "-c",
                f"http.extraHeader=Authorization: Basic {basic}",
                "fetch",
                "-q",
                f"{front.gateway.url}/acme/shop.git",
                "refs/pull/1/head:refs/heads/got",
                cwd=tmp_path / "mirror.git",
                env=os.environ | {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull},
                stderr=asyncio.subprocess.PIPE,
            )
            _, said = await process.communicate()
            return process.returncode or 0, said.decode()

        mirror = Origin(tmp_path)
        mirror.bare = tmp_path / "mirror.git"
        await asyncio.to_thread(mirror.bare.mkdir)
        await (
            await asyncio.create_subprocess_exec("git", "init", "-q", "--bare", cwd=mirror.bare)
        ).wait()
        assert (await listed(TOKEN))[0] != 0
        grant = f"{front.gateway.url}/app/installations/1/access_tokens"
        async with front.http.post(grant) as answer:
            assert answer.status == 201
        assert (await listed("ghs_bad"))[0] != 0
        assert await listed(TOKEN) == (0, "")
        assert await mirror.head("got") == front.head


# Who and what there is


def test_whoever_comes_with_an_unknown_token_is_nobody() -> None:
    made = seed("pr-reviewer", "PR reviewer", "key", "http://x/hook")
    assert made["github"]["users"][0]["login"] == "nobody"
    assert made["tokens"][token_of(MEMBER)]["login"] == MEMBER
    (app,) = made["github"]["apps"]
    assert (app["slug"], app["webhook_url"]) == ("pr-reviewer", "http://x/hook")
    assert app["installations"][0]["permissions"]["checks"] == "write"


async def test_node_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "index.js"
    program.touch()
    server = Local(program, "pr-reviewer")
    try:
        with pytest.raises(Unavailable, match=r"Node\.js is missing"):
            await server.start("http://127.0.0.1:1/", {})
    finally:
        await server.close()


async def test_a_taken_port_is_said(unused_tcp_port: int) -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    server = Local(Path("index.js"), "pr-reviewer", unused_tcp_port)
    try:
        with pytest.raises(Unavailable, match=f"Port {unused_tcp_port}"):
            await server.start("http://127.0.0.1:1/", {})
    finally:
        await server.close()
        await runner.cleanup()


@pytest.mark.parametrize(("port", "why"), [(99_999, "a port is 0 to 65535"), (0, "There is no")])
async def test_what_cannot_be_served_is_said(tmp_path: Path, port: int, why: str) -> None:
    server = Local(tmp_path / "index.js", "pr-reviewer", port)
    try:
        with pytest.raises(Unavailable, match=why):
            await server.start("http://127.0.0.1:1/", {})
    finally:
        await server.close()


# The terminal

PULL: dict[str, Any] = {
    "number": 7,
    "state": "open",
    "url": "http://x/pulls/7",
    "head": {"sha": "abcdef1" * 5},
}
SHOWN: dict[str, Any] = {
    "/pulls/7": PULL,
    "/issues/7/comments?per_page=100": [
        {
            "id": 1,
            "user": {"login": "pr-reviewer[bot]"},
            "url": "http://x/comments/1",
            "body": "<!-- threadline:p1 -->\nTwo things.\nAnd more.",
        }
    ],
    "/pulls/7/reviews?per_page=100": [
        {
            "id": 2,
            "user": {"login": "pr-reviewer[bot]"},
            "state": "CHANGES_REQUESTED",
            "pull_request_url": "http://x/pulls/7",
            "body": "No.",
        }
    ],
    "/pulls/7/comments?per_page=100": [
        {"id": 3, "user": None, "url": "http://x/r/3", "path": "a.py", "line": 4, "body": "Why?"}
    ],
    f"/commits/{PULL['head']['sha']}/check-runs?filter=all": {
        "check_runs": [
            {
                "id": 4,
                "name": "pr-reviewer",
                "head_sha": PULL["head"]["sha"],
                "status": "in_progress",
                "conclusion": None,
                "url": "http://x/check-runs/4",
                "output": {"title": None},
            }
        ]
    },
}


async def read(path: str) -> Any:
    return SHOWN.get(path)


async def test_all_that_stands_in_a_pull_request_is_found() -> None:
    found = {post.key: post for post in await posts(read, 7)}
    assert list(found) == ["check 4", "comment 1", "review 2", "line 3", "state"]
    assert found["comment 1"].text == "Two things.\nAnd more."
    assert found["review 2"].what == "pr-reviewer[bot] asks for changes"
    assert found["review 2"].address == "http://x/pulls/7/reviews/2"
    assert found["line 3"].what == "somebody at a.py:4"
    assert found["check 4"].what == "Check pr-reviewer on abcdef1: in progress"
    assert found["state"].what == "The pull request is open"
    assert await posts(read, 8) == []


def test_news_are_what_was_not_there_or_was_otherwise() -> None:
    one, two = Post("1", "a", "x", "t"), Post("2", "b", "x")
    edited = Post("1", "a", "x", "u")
    assert news({}, [one, two]) == [one, two]
    assert news({"1": one, "2": two}, [edited, two]) == [edited]


def test_how_the_terminal_tells_it() -> None:
    post = Post("1", "ada", "http://x", "one\ntwo")
    assert told(post, again=False) == "ada:\n  http://x\n  | one\n  | two\n"
    assert told(post, again=True).startswith("ada, edited:\n")


class Open:
    """A server whose pull requests are open, or not."""

    repository = "acme/shop"
    state = "open"

    async def read(self, path: str) -> Any:
        return {"state": self.state}


@pytest.mark.parametrize("line", ["/push", "/close"])
async def test_a_closed_pull_request_stays_as_it_is(line: str) -> None:
    server = Open()
    server.state = "closed"
    assert await do(server, 7, line) == "acme/shop#7 is closed already.\n"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("  ", []),
        ("why?", [("comment", 7, "why?")]),
        ("/push", [("push", 7)]),
        ("/close", [("shut", 7)]),
    ],
)
async def test_what_is_typed_is_done(line: str, done: list[Any]) -> None:
    seen: list[Any] = []

    class Recorder(Open):
        async def push(self, number: int, files: Any, message: str) -> str:
            assert files is story.FIX
            seen.append(("push", number))
            return "0123456789"

        async def comment(self, number: int, text: str) -> None:
            seen.append(("comment", number, text))

        async def shut(self, number: int) -> None:
            seen.append(("shut", number))

    said = await do(Recorder(), 7, line)  # type: ignore[arg-type]
    assert seen == done
    assert ("0123456" in said) == (line == "/push")


async def test_a_closed_standard_input_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert [line async for line in typed()] == []


async def test_a_terminal_that_is_gone_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, keyboard = os.openpty()
    os.write(screen, b"hello\n")
    with os.fdopen(keyboard) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        heard: list[str] = []
        async for line in typed():
            heard.append(line)
            os.close(screen)
    assert heard == ["hello"]


async def test_a_demo_from_its_pull_request_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.setenv(f"GITHUB_{name}", "")
    monkeypatch.setenv("PR_REVIEWER_PACE", "0")
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said: list[str] = []
    told_all = asyncio.Event()

    def say(text: str) -> None:
        said.append(text)
        if "Not ready to merge" in text:
            told_all.set()

    fake = Fake("pr-reviewer")
    running = asyncio.create_task(run(load_project(EXAMPLE), "github", fake, say=say))
    await asyncio.wait_for(told_all.wait(), 60)
    host = re.search(r"are at (\S+)/playground", said[0])
    assert host is not None
    async with aiohttp.ClientSession() as http, http.get(f"{host[1]}/v1/sessions") as answer:
        (session,) = (await answer.json())["sessions"]
    assert session["title"] == "acme/shop#1"
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert list(tmp_path.iterdir()) == []


async def test_a_terminal_that_is_closed_ends_it() -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    try:
        with hanging_up():
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.wait_for(ending.wait(), 10)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_nohup_lets_it_go_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hanging_up():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_an_end_before_the_end_is_said() -> None:
    async def fails() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    async def fail() -> None:
        raise RuntimeError("git push: no room")

    said: list[str] = []
    stopped = asyncio.create_task(asyncio.Event().wait())
    stopped.cancel()
    for task in (asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(0)), stopped):
        await asyncio.wait([task])
        ended(task, said.append)  # type: ignore[arg-type]
    assert said == ["No more is shown: RuntimeError('git push: no room')"]


def test_a_bots_variables_name_one_server() -> None:
    environ = {"GITHUB_TOKEN": "mine", "T_GITHUB_TOKEN": "other", "PATH": "/bin"}
    point(environ, "", {"APP_ID": "1", "API_URL": "http://x"})
    assert environ == {
        "T_GITHUB_TOKEN": "other",
        "PATH": "/bin",
        "GITHUB_APP_ID": "1",
        "GITHUB_API_URL": "http://x",
    }


@pytest.mark.parametrize(
    ("name", "slug"), [("PR reviewer", "pr-reviewer"), ("Ünï  bot!", "n-bot"), ("a_b", "a-b")]
)
def test_an_apps_slug(name: str, slug: str) -> None:
    assert slug_of(name) == slug
