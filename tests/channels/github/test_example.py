"""examples/pr-reviewer does in a pull request what its README says."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from threadline.project import load_project
from threadline.testing import TestHost
from threadline_github.setup.demo import story
from threadline_github.setup.demo.fake import Fake
from threadline_github.setup.demo.run import play
from threadline_github.setup.demo.seed import MEMBER, REPOSITORY
from threadline_github.testing import FakeGitHub, Pull

HOOK = "/v1/channels/github"
EXAMPLE = Path(__file__).parents[3] / "examples" / "pr-reviewer"
UNSET = ("THREADLINE_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY")
DIFF = """\
diff --git a/shop/pay.py b/shop/pay.py
index 1..2 100644
--- a/shop/pay.py
+++ b/shop/pay.py
@@ -10,3 +10,9 @@ def pay():
     one
-    print("old")
+    API_KEY = "sk-live-12345678"
+    token = os.environ["TOKEN"]
+    try:
+        two()
+    except:
+        print("no")  # TODO: log
+    key = "sort_key"
     three
"""


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What imports a module of the example's ``lib``, and forgets it afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE / "agent"))
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_lib(name)}
    yield lambda name: importlib.import_module(f"lib.{name}")
    for name in [name for name in sys.modules if _is_lib(name)]:
        del sys.modules[name]
    sys.modules.update(before)


def _is_lib(name: str) -> bool:
    return name == "lib" or name.startswith("lib.")


# The patterns


def found(lib: Any, diff: str) -> list[tuple[str, str, int]]:
    return [(one.rule, one.path, one.line) for one in lib("scan").scan(diff)]


def test_patterns_look_at_added_lines(lib: Any) -> None:
    assert found(lib, DIFF) == [
        ("secret", "shop/pay.py", 11),
        ("bare-except", "shop/pay.py", 15),
        ("print", "shop/pay.py", 16),
        ("todo", "shop/pay.py", 16),
    ]
    assert [one.level for one in lib("scan").scan(DIFF)][:2] == ["failure", "warning"]


def added(path: str, text: str) -> str:
    return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"


@pytest.mark.parametrize(
    ("path", "text", "rules"),
    [
        ("a.py", 'password = "correct horse"', []),
        ("a.py", "password = 'hunter2hunter2'", ["secret"]),
        ("a.yaml", 'stripe_secret: "abcdefghi"', ["secret"]),
        ("a.js", 'headers["auth_key"] = "x"', []),
        ("a.txt", "AKIAABCDEFGHIJKLMNOP", ["secret"]),
        ("a.txt", "-----BEGIN RSA PRIVATE KEY-----", ["secret"]),
        ("a.py", "    except ValueError:", []),
        ("a.js", "except:", []),
        ("a.js", 'print("x")', []),
        ("a.py", "blueprint(x)", []),
        ("a.go", "// FIXME later", ["todo"]),
        ("a.py", "TODOS = 1", []),
    ],
)
def test_a_pattern(lib: Any, path: str, text: str, rules: list[str]) -> None:
    assert [rule for rule, _, _ in found(lib, added(path, text))] == rules


def test_a_finding_keeps_its_id_while_its_line_is_the_same(lib: Any) -> None:
    scan = lib("scan").scan
    before = [one.id for one in scan(DIFF)]
    moved = [one.id for one in scan(DIFF.replace("+10,9", "+40,9"))]
    assert (before, len(set(before))) == (moved, 4)
    assert scan(added("a.py", "# TODO one"))[0].id != scan(added("a.py", "# TODO two"))[0].id


def test_no_secret_is_repeated(lib: Any) -> None:
    assert "sk-live" not in str(lib("scan").scan(DIFF))


@pytest.mark.parametrize("path", ["../outside", "/etc/hostname", ".git/config", "nothing"])
def test_only_files_of_the_checkout_are_read(lib: Any, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").write_text("x")
    inside = tmp_path / "inside"
    (inside / ".git").mkdir(parents=True)
    (inside / ".git" / "config").write_text("x")
    (inside / "a.py").write_text("here")
    text_of = lib("workspace").text_of
    assert text_of(inside, "a.py") == "here"
    with pytest.raises(ValueError, match="checkout"):
        text_of(inside, path)


# The offline model


@pytest.mark.parametrize(
    ("text", "review", "question"),
    [
        ("Pull request #1 was opened by ada. Its head is 12ab.", True, ""),
        ("Pull request #1 has new commits. Its head is now 12ab.", True, ""),
        ("Pull request #1 is ready for review. Its head is 12ab.", True, ""),
        ("ada asks you to review Pull request #1.", True, ""),
        ("ada asks for another run of the check 'pr-reviewer' on 12ab.", True, ""),
        (
            "The check 'ci' on 12ab ended in failure.",
            False,
            "The check 'ci' on 12ab ended in failure.",
        ),
        ("Pull request #1 was closed by ada.", False, "Pull request #1 was closed by ada."),
        ("@pr-reviewer review this again", True, ""),
        ("/review", True, ""),
        ("why is it bad?", False, "why is it bad?"),
        (
            "[Pull request #1 of a/b: It is open.]\n\n<diff>\n\n+x\n\n</diff>\n\nwhy?\n\nWhat?",
            False,
            "why?\n\nWhat?",
        ),
        ("Pull request #1 was opened by ada. Its head is 1.\n\nAnd why?", True, "And why?"),
        (
            "<comment by='x'>\nPull request #1 was opened by x.\n</comment>\n\nwhy?",
            False,
            "why?",
        ),
    ],
)
def test_what_a_prompt_asks_for(lib: Any, text: str, review: bool, question: str) -> None:
    wish = lib("demo_model").wish(text)
    assert (wish.review, wish.question) == (review, question)


# The project


def test_it_loads_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    project = load_project(EXAMPLE)
    assert list(project.warnings) == []
    assert {tool.name for tool in project.tools} == {
        "read_file",
        "report_check",
        "review_pull_request",
        "scan_diff",
    }
    assert list(project.channels) == ["github"]


# In a pull request


@dataclass
class World:
    """A GitHub with the example in it, and a repository in git."""

    server: Fake
    host: TestHost

    @property
    def github(self) -> FakeGitHub:
        return self.server.github

    async def opened(self) -> Pull:
        number = await self.server.open_pull(story.BRANCH, story.CHANGE, story.TITLE, story.BODY)
        return self.github.pull(number, REPOSITORY)

    async def says(self, pull: Pull, words: str, count: int = 1) -> str:
        """Return the newest comment of the agent once there are so many, and it says so."""

        def there() -> list[str]:
            found = self.github.comments(pull)
            return [one.body for one in found if one.author.login == "pr-reviewer[bot]"]

        def newest() -> bool:
            return len(there()) >= count and words in there()[-1]

        await self.github.until(newest)
        await self.rested()
        return there()[-1]

    async def rested(self) -> list[Any]:
        records = self.host.agent().store.sessions(None, limit=9)
        sessions = [self.host.session(record.id) for record in records]
        for session in sessions:
            await session.rest()
        return sessions

    def checks(self, pull: Pull) -> list[tuple[str, str | None]]:
        """Return names and conclusions of the checks of the head."""
        return [
            (check.name, check.conclusion)
            for check in self.github.checks(pull)
            if check.head_sha == pull.head
        ]


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch, pace: str = "0") -> AsyncIterator[World]:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PR_REVIEWER_PACE", pace)
    server = Fake("pr-reviewer")
    try:
        await server.start("", story.BASE)
        for name, value in server.environment.items():
            monkeypatch.setenv(f"GITHUB_{name}", value)
        async with TestHost(load_project(EXAMPLE), channel_id="github") as host:
            server.github.app.webhook_url = host.url + HOOK
            yield World(server, host)
    finally:
        await server.close()


async def test_a_pull_request_is_reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        pull = await world.opened()
        said = await world.says(pull, "Not ready to merge")
        assert "`shop/coupons.py:8` secret" in said
        assert "live-4f9c2e7a1b" not in said
        (review,) = world.github.reviews(pull)
        assert review.state == "CHANGES_REQUESTED"
        assert {(one.path, one.line) for one in world.github.review_comments(pull)} == {
            ("shop/checkout.py", 8),
            ("shop/coupons.py", 8),
            ("shop/coupons.py", 16),
            ("shop/coupons.py", 17),
        }
        assert world.checks(pull) == [("pr-reviewer", "failure")]


async def test_what_was_said_is_not_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        pull = await world.opened()
        await world.says(pull, "Not ready to merge")
        worse = {**story.CHANGE, "shop/cart.py": "print(1)\n"}
        await world.server.push(pull.number, worse, "Print")
        assert "5 problems, 4 of them as before" in await world.says(pull, "Not ready", 2)
        _, second = world.github.reviews(pull)
        new = [one for one in world.github.review_comments(pull) if one.review == second.id]
        assert [(one.path, one.line) for one in new] == [("shop/cart.py", 1)]
        await world.server.push(pull.number, {**story.FIX, "shop/cart.py": "one = 1\n"}, "Fix")
        assert "What I found before is gone" in await world.says(pull, "Nothing found", 3)
        assert len(world.github.reviews(pull)) == 2
        assert world.checks(pull) == [("pr-reviewer", "success")]


async def test_a_question_is_answered_in_the_same_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as world:
        pull = await world.opened()
        await world.says(pull, "Not ready to merge")
        await world.server.comment(pull.number, "@pr-reviewer why is a bare except bad?")
        answer = await world.says(pull, "KeyboardInterrupt", 2)
        assert "`shop/coupons.py:16`" in answer
        await world.server.comment(pull.number, "@pr-reviewer hello")
        await world.says(pull, "offline demo", 3)
        (session,) = await world.rested()
        assert len(session.events("turn.completed")) == 3


async def test_a_question_on_a_line_is_answered_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        pull = await world.opened()
        await world.says(pull, "Not ready to merge")
        (secret,) = [one for one in world.github.review_comments(pull) if "secret" in one.body]
        world.github.user(MEMBER).review_comment(
            pull, secret.path, 8, "@pr-reviewer what is wrong with a token here?", reply_to=secret
        )

        def replies() -> list[str]:
            found = world.github.review_comments(pull)
            bot = [one for one in found if one.author.login == "pr-reviewer[bot]"]
            return [one.body for one in bot if one.reply_to == secret.id]

        await world.github.until(lambda: any("read the repository" in one for one in replies()))
        assert len(replies()) == 1


async def test_the_check_can_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        pull = await world.opened()
        await world.says(pull, "Not ready to merge")
        (check,) = world.github.checks(pull)
        world.github.user(MEMBER).rerun(check)
        assert "4 problems, 4 of them as before" in await world.says(pull, "Not ready", 2)
        assert len(world.github.reviews(pull)) == 1
        assert {conclusion for _, conclusion in world.checks(pull)} == {"failure"}


async def test_the_demo_tells_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        said: list[str] = []
        monkeypatch.setattr("threadline_github.setup.demo.run.typed", nothing)
        playing = asyncio.create_task(play(world.server, said.append))

        def told() -> bool:
            text = "\n".join(said)
            return "Check pr-reviewer" in text and "shop/coupons.py:16:\n" in text

        await world.host.until(told)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        assert said[0].strip() == f"ada opened {REPOSITORY}#1: {story.TITLE}"


async def nothing() -> AsyncIterator[str]:
    for line in list[str]():
        yield line
