"""FakeGitHub's diffs, reviews, comments on lines and check runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from threadline.testing import ManualClock
from threadline_github.client import DIFF, Client, GitHubRefused
from threadline_github.config import Config
from threadline_github.testing import FakeGitHub, Pull
from threadline_github.testing.diffs import hunk_at, patches, written
from threadline_github.workspace.diff import parse

WIDGET = "/repos/octo-fixture/widget"
REVIEWS, LINES = f"{WIDGET}/pulls/1/reviews", f"{WIDGET}/pulls/1/comments"
RUNS = f"{WIDGET}/check-runs"
APP = 4401
TALL = "".join(f"line {number}\n" for number in range(1, 61))
FILES = {
    "src/tall.py": (TALL, TALL.replace("line 10\n", "ten\n").replace("line 50\n", "")),
    "src/new.py": (None, "one\ntwo\n"),
    "src/old.py": ("gone\n", None),
    "README.md": ("no newline", "no newline either"),
}


@pytest.fixture
async def github() -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=ManualClock()) as running:
        yield running


@pytest.fixture
async def client(github: FakeGitHub) -> AsyncIterator[Client]:
    made = Client(Config.read(github.environ), github.clock)
    yield made
    await made.close()


@pytest.fixture
def pull(github: FakeGitHub) -> Pull:
    return github.user("dev-one").open_pull(files=FILES)


async def call(client: Client, method: str, path: str, data: Any = None) -> Any:
    return await client.request(method, path, data, installation=APP)


async def refused(client: Client, path: str, data: Any, method: str = "POST") -> str:
    with pytest.raises(GitHubRefused) as caught:
        await call(client, method, path, data)
    assert caught.value.github_status == 422
    return str(caught.value)


# Diffs


def test_a_diff_is_read_as_the_channel_reads_it() -> None:
    diff = written(FILES)
    ours, theirs = patches(diff), parse(diff)
    assert [one.path for one in ours] == [one.path for one in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.additions, mine.deletions) == (other.added, other.removed)
        assert set(mine.right) == other.right
        assert set(mine.left) == other.left
    assert "\\ No newline at end of file" in diff


def test_only_a_newline_ends_a_line() -> None:
    diff = written({"a.txt": ("one\r\ntwo\x0c\u2028\n", "one\r\n@@ -1 +1 @@\x0c\u2028\n")})
    [patch] = patches(diff)
    assert (sorted(patch.right), sorted(patch.left)) == ([1, 2], [1, 2])
    assert len(patch.hunks) == 1


def test_the_hunk_up_to_a_line() -> None:
    diff = written(FILES)
    hunk = hunk_at(diff, "src/tall.py", 10, "RIGHT")
    assert hunk == "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+ten"
    assert hunk_at(diff, "src/tall.py", 30, "RIGHT") is None
    assert hunk_at(diff, "src/none.py", 1, "RIGHT") is None
    assert hunk_at(diff, "src/old.py", 1, "LEFT") == "@@ -1 +0,0 @@\n-gone"


async def test_files_and_diff_of_a_pull_request(client: Client, pull: Pull) -> None:
    files = await client.pages(f"{WIDGET}/pulls/1/files", installation=APP)
    assert {one["filename"]: one["status"] for one in files} == {
        "README.md": "modified",
        "src/new.py": "added",
        "src/old.py": "removed",
        "src/tall.py": "modified",
    }
    assert files[1]["patch"] == "@@ -0,0 +1,2 @@\n+one\n+two"
    whole = await call(client, "GET", f"{WIDGET}/pulls/1")
    assert (whole["changed_files"], whole["additions"], whole["deletions"]) == (4, 4, 4)
    text = await client.request("GET", f"{WIDGET}/pulls/1", installation=APP, accept=DIFF)
    assert text == pull.diff


async def test_a_given_diff_stands_as_it_is(github: FakeGitHub) -> None:
    renamed = (
        "diff --git a/old.py b/new.py\nsimilarity index 100%\nrename from old.py\n"
        "rename to new.py\n"
    )
    pull = github.user("dev-one").open_pull(diff=renamed)
    [patch] = patches(pull.diff)
    assert (patch.path, patch.previous, patch.status) == ("new.py", "old.py", "renamed")


async def test_a_diff_of_an_older_commit(github: FakeGitHub, client: Client, pull: Pull) -> None:
    before, was = pull.head, pull.diff
    github.user("dev-one").push(pull, files={"src/new.py": ("one\ntwo\n", "three\n")})
    assert "+three" in pull.diff
    assert "-gone" in pull.diff  # what was changed before is part of it still
    path = f"{WIDGET}/compare/{pull.base_sha}...{before}"
    assert await client.request("GET", path, installation=APP, accept=DIFF) == was
    after = f"{WIDGET}/compare/{pull.base_sha}...{pull.head}"
    assert len((await call(client, "GET", after))["files"]) == 4
    github.user("dev-one").push(pull, files={"a.py": (None, "a\n")}, force=True)
    assert [one.path for one in patches(pull.diff)] == ["a.py"]


async def test_too_many_lines(github: FakeGitHub, client: Client) -> None:
    long = "x\n" * 20_001
    github.user("dev-one").open_pull(files={"long.txt": (None, long)})
    with pytest.raises(GitHubRefused) as caught:
        await client.request("GET", f"{WIDGET}/pulls/1", installation=APP, accept=DIFF)
    assert caught.value.github_status == 406


async def test_forks(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-two").open_pull(fork=True)
    found = await call(client, "GET", f"{WIDGET}/pulls/1")
    assert found["head"]["repo"]["full_name"] == "dev-two/widget"
    assert found["head"]["repo"]["fork"] is True
    assert found["head"]["label"] == "dev-two:retry"
    github.user("dev-two").delete_fork(pull)
    found = await call(client, "GET", f"{WIDGET}/pulls/1")
    assert found["head"]["repo"] is None
    assert found["base"]["repo"]["id"] == 900100


# Reviews


async def test_a_review_with_comments(github: FakeGitHub, client: Client, pull: Pull) -> None:
    comments = [
        {"path": "src/tall.py", "line": 10, "body": "ten?"},
        {"path": "src/tall.py", "line": 10, "side": "LEFT", "body": "was better"},
        {"path": "src/new.py", "start_line": 1, "line": 2, "side": "RIGHT", "body": "both"},
    ]
    body = {"commit_id": pull.head, "event": "COMMENT", "body": "see", "comments": comments}
    made = await call(client, "POST", REVIEWS, body)
    assert (made["state"], made["commit_id"]) == ("COMMENTED", pull.head)
    [review] = github.reviews(pull)
    assert (review.body, review.author.login) == ("see", "agent-fixture[bot]")
    found = github.review_comments(pull)
    assert [(one.line, one.side) for one in found] == [(10, "RIGHT"), (10, "LEFT"), (2, "RIGHT")]
    assert {one.review for one in found} == {review.id}
    listed = await client.pages(f"{REVIEWS}/{review.id}/comments", installation=APP)
    assert [one["body"] for one in listed] == ["ten?", "was better", "both"]
    assert listed[2]["start_line"] == 1
    again = await client.pages(REVIEWS, installation=APP)
    assert [one["id"] for one in again] == [review.id]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"path": "src/tall.py", "line": 30}, "Line could not be resolved"),
        ({"path": "src/old.py", "line": 1}, "Line could not be resolved"),
        ({"path": "src/new.py", "line": 1, "side": "LEFT"}, "Line could not be resolved"),
        ({"path": "src/none.py", "line": 1}, "Path could not be resolved"),
        ({"path": "src/new.py", "line": 1, "start_line": 2}, "must precede the end line"),
        ({"path": "src/tall.py", "line": 51, "start_line": 9}, "part of the same hunk"),
        ({"path": "src/new.py"}, "line must be an integer"),
        ({"path": "src/new.py", "line": 1, "body": ""}, "body can't be blank"),
        ({"path": "src/new.py", "line": 1, "body": "x" * 65_537}, "too long"),
        ({"line": 1}, "wasn't supplied"),
    ],
)
async def test_one_bad_comment_spoils_the_review(
    github: FakeGitHub, client: Client, pull: Pull, where: Any, words: str
) -> None:
    good = {"path": "src/new.py", "line": 1, "body": "good"}
    body = {"event": "COMMENT", "body": "x", "comments": [good, {"body": "bad", **where}]}
    assert words in await refused(client, REVIEWS, body)
    assert github.reviews(pull) == []
    assert github.review_comments(pull) == []


async def test_lines_are_those_of_the_commit(
    github: FakeGitHub, client: Client, pull: Pull
) -> None:
    before = pull.head
    github.user("dev-one").push(pull, files={"src/new.py": (None, "only\n")})
    comment = {"path": "src/new.py", "line": 2, "body": "x"}
    body = {"event": "COMMENT", "body": "x", "comments": [comment]}
    await refused(client, REVIEWS, body)
    await call(client, "POST", REVIEWS, {**body, "commit_id": before})
    [shown] = await client.pages(LINES, installation=APP)
    assert (shown["line"], shown["original_line"]) == (None, 2)
    assert (shown["commit_id"], shown["original_commit_id"]) == (pull.head, before)
    assert "commit_id" in await refused(client, REVIEWS, {**body, "commit_id": "f" * 40})


async def test_ones_own_pull_request(github: FakeGitHub, client: Client) -> None:
    github.user("agent-fixture[bot]").open_pull()
    for event, words in (("APPROVE", "Can not approve"), ("REQUEST_CHANGES", "request changes")):
        said = await refused(client, REVIEWS, {"event": event, "body": "x"})
        assert words in said
        assert "your own pull request" in said
    await call(client, "POST", REVIEWS, {"event": "COMMENT", "body": "x"})


async def test_reviews_say_something(github: FakeGitHub, client: Client, pull: Pull) -> None:
    for body in (
        {"event": "COMMENT"},
        {"event": "REQUEST_CHANGES"},
        {"event": "SHRUG", "body": "x"},
        {"event": "COMMENT", "body": "x" * 65_537},
    ):
        await refused(client, REVIEWS, body)
    await call(client, "POST", REVIEWS, {"event": "APPROVE"})
    pending = await call(client, "POST", REVIEWS, {})
    assert pending["state"] == "PENDING"
    assert "submitted_at" not in pending
    assert [one.state for one in github.reviews(pull)] == ["APPROVED", "PENDING"]
    path = f"{REVIEWS}/{pull.reviews[0].id}"
    await call(client, "PUT", path, {"body": "fine"})
    assert (await call(client, "GET", path))["body"] == "fine"
    await call(client, "PUT", f"{path}/dismissals", {"message": "no"})
    assert pull.reviews[0].state == "DISMISSED"


async def test_a_thread_on_a_line(github: FakeGitHub, client: Client, pull: Pull) -> None:
    first = github.user("dev-two").review_comment(pull, "src/new.py", 2, "why?")
    made = await call(client, "POST", f"{LINES}/{first.id}/replies", {"body": "because"})
    assert made["in_reply_to_id"] == first.id
    assert (made["path"], made["line"]) == ("src/new.py", 2)
    assert made["diff_hunk"] == "@@ -0,0 +1,2 @@\n+one\n+two"
    answer = github.user("dev-two").review_comment(pull, text="ah", reply_to=first)
    assert answer.reply_to == first.id
    await refused(client, f"{LINES}/{answer.id}/replies", {"body": "x"})
    other = await call(client, "POST", LINES, {"body": "too", "in_reply_to": first.id})
    assert other["in_reply_to_id"] == first.id
    path = f"{WIDGET}/pulls/comments/{made['id']}"
    await call(client, "PATCH", path, {"body": "since"})
    assert [one.body for one in github.review_comments(pull)] == ["why?", "since", "ah", "too"]
    await call(client, "DELETE", path)
    with pytest.raises(GitHubRefused):
        await call(client, "GET", path)
    assert github.reviews(pull) == []  # none of them was a review


async def test_a_comment_on_a_line_or_a_file(
    github: FakeGitHub, client: Client, pull: Pull
) -> None:
    body = {"body": "x", "commit_id": pull.head, "path": "src/new.py"}
    await call(client, "POST", LINES, {**body, "line": 1, "side": "RIGHT"})
    await call(client, "POST", LINES, {**body, "subject_type": "file"})
    assert [one.line for one in github.review_comments(pull)] == [1, None]
    assert "Line could not" in await refused(client, LINES, {**body, "line": 9})
    assert "commit_id" in await refused(client, LINES, {"body": "x", "path": "src/new.py"})


# Check runs


def check(pull: Pull, **more: Any) -> dict[str, Any]:
    return {"name": "agent", "head_sha": pull.head, **more}


def note(line: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "path": "src/new.py",
        "start_line": line,
        "end_line": line,
        "annotation_level": "warning",
        "message": "m",
        **more,
    }


async def test_a_check_from_its_beginning_to_its_end(
    github: FakeGitHub, client: Client, pull: Pull
) -> None:
    body = check(pull, status="in_progress", external_id="t1")
    made = await call(client, "POST", RUNS, body)
    assert (made["status"], made["conclusion"]) == ("in_progress", None)
    assert made["pull_requests"][0]["number"] == 1
    assert made["app"]["id"] == 2201
    path = f"{RUNS}/{made['id']}"
    for count in (50, 3):
        output = {"title": "T", "summary": "S", "annotations": [note()] * count}
        await call(client, "PATCH", path, {"output": output})
    await call(client, "PATCH", path, {"conclusion": "failure"})
    [run] = github.checks(pull)
    assert (run.status, run.conclusion, run.external_id) == ("completed", "failure", "t1")
    assert (run.title, len(run.annotations)) == ("T", 53)
    assert len(await client.pages(f"{path}/annotations", installation=APP)) == 53
    found = await call(client, "GET", path)
    assert found["output"]["annotations_count"] == 53
    await call(client, "PATCH", path, {"status": "in_progress"})
    assert run.conclusion is None


async def test_checks_are_found_by_commit_and_name(
    github: FakeGitHub, client: Client, pull: Pull
) -> None:
    for name in ("agent", "agent", "lint"):
        await call(client, "POST", RUNS, check(pull, name=name))
    github.user("dev-one").fail_check(pull, "ci")
    for ref in (pull.head, "retry", "pull/1/head"):
        runs = f"{WIDGET}/commits/{ref}/check-runs"
        found = await client.pages(runs, installation=APP)
        assert sorted(one["name"] for one in found) == ["agent", "ci", "lint"]
        every = await client.pages(f"{runs}?filter=all&check_name=agent", installation=APP)
        assert len(every) == 2
        mine = await client.pages(f"{runs}?app_id=2201", installation=APP)
        assert len(mine) == 2
    none = f"{WIDGET}/commits/{'f' * 40}/check-runs"
    assert "No commit found" in await refused(client, none, None, "GET")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"head_sha": "f" * 40}, "No commit found"),
        ({"name": ""}, "wasn't supplied"),
        ({"status": "completed"}, "conclusion"),
        ({"conclusion": "fine"}, "not a member"),
        ({"output": {"summary": "S"}}, "title"),
        ({"output": {"title": "T", "summary": "S" * 65_536}}, "characters are allowed"),
        (
            {"output": {"title": "T", "summary": "S", "annotations": [note()] * 51}},
            "No more than 50 items are allowed; 51 were supplied.",
        ),
        (
            {"output": {"title": "T", "summary": "S", "annotations": [note(message="")]}},
            "message",
        ),
        (
            {
                "output": {
                    "title": "T",
                    "summary": "S",
                    "annotations": [note(annotation_level="bad")],
                }
            },
            "not a member",
        ),
        (
            {"actions": [{"label": "x" * 21, "description": "d", "identifier": "i"}]},
            "at most 20",
        ),
        (
            {"actions": [{"label": "x", "description": "d", "identifier": "i"}] * 4},
            "No more than 3 items",
        ),
    ],
)
async def test_a_check_that_is_not_taken(
    github: FakeGitHub, client: Client, pull: Pull, more: Any, words: str
) -> None:
    assert words in await refused(client, RUNS, check(pull, **more))
    assert github.checks(pull) == []


async def test_only_its_app_changes_a_check(github: FakeGitHub, client: Client, pull: Pull) -> None:
    run = github.user("dev-one").fail_check(pull)
    person = Client(
        Config("s", token=github.personal_token("dev-one"), api_url=github.api_url), github.clock
    )
    for who, method, path in (
        (client, "PATCH", f"{RUNS}/{run.id}"),
        (person, "POST", RUNS),
    ):
        with pytest.raises(GitHubRefused) as caught:
            await call(who, method, path, check(pull))
        assert caught.value.github_status == 403
    await person.close()


async def test_a_check_on_a_forks_commit_names_no_pull_request(
    github: FakeGitHub, client: Client
) -> None:
    pull = github.user("dev-two").open_pull(fork=True)
    made = await call(client, "POST", RUNS, check(pull))
    assert made["pull_requests"] == []
