"""The channel as a whole: what comes in, in which order, and what becomes of it."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.channels.github.world import HOOK, World, deliver, served

from threadline import Context
from threadline.errors import ProjectError
from threadline.project import Project
from threadline.testing import Gated
from threadline_github import GitHubChannel
from threadline_github.inbound.decide import decide

TOKEN = "pr:octo-fixture/widget#1"


def opened(world: World, **options: Any) -> Any:
    """Open a pull request as a person."""
    return world.github.user("dev-one").open_pull(title="Add retry", **options)


async def again(world: World) -> None:
    """Start the host again, and tell GitHub where it is."""
    await world.host.start()
    world.github.app.webhook_url = world.host.url + HOOK


def changed(folder: Path) -> bytes:
    """Return what git says was changed in a working folder."""
    words = ["git", "status", "--porcelain"]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True).stdout


def parts(session: Any) -> list[list[str]]:
    """Return what each turn was asked, by its triggers."""
    return [
        [part["sender"]["attributes"]["trigger"] for part in one["data"]["parts"]]
        for one in session.events("message.received")
    ]


async def test_a_storm_of_pushes_is_one_turn_on_the_newest_commit() -> None:
    harness = Gated(calls=1, hold=["call"])
    async with served(harness) as world:
        pull = opened(world)
        await harness.gates["call"].reached()
        for number in range(5):
            world.github.user("dev-one").push(pull, files={"a.py": ("", f"a = {number}\n")})
        await world.github.settled()
        world.github.user("dev-two").comment(pull, "@agent-fixture and the tests?")
        await world.github.settled()
        harness.release()
        session = world.session(TOKEN)
        await session.rest()
        assert parts(session) == [["opened"], ["synchronize"] * 5 + ["mention"]]
        assert not session.events("nudge.delivered")
        told = "\n".join(session.events("message.received")[1]["data"]["context"])
        assert f"Its head is {pull.head}" in told
        assert "+a = 4" in told
        world.host.check_laws()


async def test_what_people_say_steers() -> None:
    harness = Gated(calls=1, hold=["call"])
    async with served(harness) as world:
        pull = opened(world)
        await harness.gates["call"].reached()
        world.github.user("dev-two").comment(pull, "@agent-fixture mind the tests")
        await world.github.settled()
        session = world.session(TOKEN)
        await world.host.until(lambda: world.host.agent().core.prepared(session.id))
        harness.release()
        await session.rest()
        (nudge,) = session.events("nudge.delivered")
        assert nudge["data"]["sender"]["attributes"]["trigger"] == "mention"
        assert parts(session) == [["opened"]]


@pytest.mark.parametrize("words", ["stop", "@agent-fixture, stop!"])
async def test_a_comment_stops(words: str) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, on=["opened", "synchronize", "comment", "mention"]) as world:
        pull = opened(world)
        await harness.gates["answer"].reached()
        world.github.user("dev-one").push(pull, files={"a.py": ("", "a = 1\n")})
        await world.github.settled()
        world.github.user("dev-two").comment(pull, words)
        session = world.session(TOKEN)
        await session.event("deliveries.cleared")
        await session.rest()
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"
        assert len(harness.prompts) == 1
        (stop,) = world.github.deliveries("issue_comment", "created")[-1:]
        world.github.user("dev-two").comment(pull, "@agent-fixture go on")
        await harness.gates["answer"].reached(2)
        assert (await deliver(world, "issue_comment", stop.payload, 7)).ok
        harness.release()
        await session.rest()
        assert len(session.events("turn.failed")) == 1
        world.host.check_laws()


async def test_a_stop_needs_no_rule() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        pull = opened(world)
        await harness.gates["answer"].reached()
        world.github.user("stranger").comment(pull, "stop")
        await world.github.settled()
        session = world.session(TOKEN)
        assert session.status == "running"
        world.github.user("dev-two").comment(pull, "Stop!")
        await session.rest()
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"


async def test_a_stop_that_was_missed_spares_what_was_asked_behind_it() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, working=False) as world:
        pull = opened(world)
        await harness.gates["answer"].reached()
        world.github.webhooks.lose(1, when=lambda one: one.event == "issue_comment")
        world.github.user("dev-two").comment(pull, "stop")
        await world.github.settled()
        await world.clock.elapse(2)
        world.github.user("dev-two").comment(pull, "@agent-fixture what is it?")
        await world.github.settled()
        session = world.session(TOKEN)
        await world.host.until(lambda: world.host.agent().core.prepared(session.id))
        await world.in_time(lambda: session.events("turn.failed"), step=5)
        harness.release()
        await session.rest()
        assert parts(session) == [["opened"], ["mention"]]
        assert not session.events("deliveries.cleared")
        world.host.check_laws()


async def test_others_go_on_while_a_long_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []

    def noted(event: str, payload: Any, *more: Any) -> Any:
        if "why?" in str(payload.get("comment")):
            readers.append(threading.current_thread())
        return decide(event, payload, *more)

    async with served() as world:
        pull = opened(world)
        await world.github.settled()
        monkeypatch.setattr("threadline_github.inbound.receive.decide", noted)
        world.github.user("dev-two").comment(pull, "@agent-fixture " + "why? " * 1_000)
        await world.github.until(lambda: readers)
        assert threading.current_thread() not in readers


async def test_words_that_no_log_holds_are_not_lost() -> None:
    async with served() as world:
        pull = opened(world)
        await world.github.settled()
        comment = world.github.user("dev-two").comment(pull, "@agent-fixture what?")
        await world.github.settled()
        payload = world.github.deliveries("issue_comment", "created")[-1].payload
        payload["comment"] |= {"body": "@agent-fixture a\0b", "id": comment.id + 1}
        assert (await deliver(world, "issue_comment", payload, 5)).status == 202


async def test_what_a_host_missed_is_taken_when_it_is_back() -> None:
    async with served() as world:
        pull = opened(world)
        await world.github.settled()
        await world.session(TOKEN).rest()
        await world.host.stop()
        world.github.user("dev-two").comment(pull, "@agent-fixture still there?")
        await world.github.settled()
        (missed,) = world.github.deliveries("issue_comment", "created")[-1:]
        assert missed.status_code != 202
        await again(world)
        session = world.session(TOKEN)
        await world.in_time(lambda: len(session.events("message.received")) == 2, step=5)
        await session.rest()
        assert session.events("message.received")[1]["data"]["deliveryIds"] == [missed.guid]
        body, event = missed.payload, "issue_comment"
        assert (await deliver(world, event, body, 9)).ok
        await session.rest()
        assert len(session.events("message.received")) == 2


async def test_nothing_is_taken_before_the_bot_knows_itself() -> None:
    """What mentions it could not be told from what does not; GitHub shows it as failed."""

    def away(github: Any) -> None:
        github.fail("*", "*", 502, times=None)

    async with served(arrange=away) as world:
        opened(world)
        await world.github.settled()
        (delivery,) = world.github.deliveries("pull_request")
        assert delivery.status_code == 503
        world.github.heal()
        await world.in_time(lambda: world.channel.hub.me.login is not None)
        assert (await deliver(world, "pull_request", delivery.payload)).status == 202


async def test_while_github_is_away_the_host_starts_and_takes_what_comes() -> None:
    async with served() as world:
        opened(world)
        await world.github.settled()
        payload = world.github.deliveries("pull_request")[-1].payload
        await world.host.stop()
        world.github.fail("*", "*", 502, times=None)
        await again(world)
        assert (await deliver(world, "pull_request", payload, 3)).ok


@pytest.mark.parametrize("event", ["ping", "star", "deployment_status", "something_new"])
async def test_what_starts_nothing_is_answered(event: str) -> None:
    async with served() as world:
        answer = await deliver(world, event, {"zen": "Keep it simple.", "hook_id": 1})
        assert answer.status == 200
        assert answer.json()["deliveries"] == []
        assert answer.json()["ignored"]


async def test_what_is_not_signed_is_refused() -> None:
    async with served() as world:
        assert (await deliver(world, "ping", {}, secret="wrong")).status == 401
        answer = await world.host.post(HOOK, body=b"{}", headers={"x-github-event": "ping"})
        assert answer.status == 401


async def test_a_delivery_has_an_event_and_an_id() -> None:
    async with served() as world:
        from threadline.testing import signed_request

        one = signed_request("github-webhook-secret-for-tests", b"{}", scheme="github")
        answer = await world.host.post(HOOK, body=one.body, headers=dict(one.headers))
        assert answer.status == 400
        assert "X-GitHub-Delivery" in answer.json()["message"]


async def test_the_code_is_there_while_the_pull_request_is_open(tmp_path: Path) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, worktree=True) as world:
        repository = world.github.repository()
        world.github.back(repository, tmp_path / "widget.git")
        pull = opened(world, files={"src/a.py": ("a = 1\n", "a = 2\n")})
        await harness.gates["answer"].reached()
        (session,) = world.host.sessions()
        folder = Path(world.host.agent().store.session(session.id).cwd)
        assert (folder / "src/a.py").read_text() == "a = 2\n"
        assert "+a = 2" in (folder / ".threadline/pull-request.diff").read_text()
        assert changed(folder) == b""
        world.github.user("dev-one").push(pull, files={"src/a.py": ("a = 1\n", "a = 3\n")})
        await world.github.settled()
        assert (folder / "src/a.py").read_text() == "a = 2\n"
        harness.release("answer")
        await harness.gates["answer"].reached(2)
        harness.hold("answer")
        await session.rest()
        assert (folder / "src/a.py").read_text() == "a = 3\n"
        world.github.user("dev-two").comment(pull, "@agent-fixture why?")
        await harness.gates["answer"].reached(3)
        world.github.user("dev-one").close(pull)
        await world.github.settled()
        assert folder.is_dir()
        harness.release("answer")
        await session.rest()
        await world.github.until(lambda: not folder.exists())


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="on= has oppened; it may have "):
        GitHubChannel(on=["oppened", "mention"])


async def test_without_secrets_the_host_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from threadline import Agent
    from threadline.host.app import Host, Options

    for name in ("GITHUB_WEBHOOK_SECRET", "GITHUB_TOKEN", "GITHUB_APP_ID"):
        monkeypatch.delenv(name, raising=False)
    agent = Agent(name="it", instructions="Go.", channels={"github": GitHubChannel()})
    host = Host([Project.of(agent, slug="it")], Options(mode="single", state_root=tmp_path))
    with pytest.raises(ProjectError, match="GITHUB_WEBHOOK_SECRET is not set"):
        await host.start()
    await host.close()


async def test_an_app_that_was_installed_anew_goes_on() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, working=False) as world:
        pull = opened(world)
        await harness.gates["answer"].reached()
        (old,) = world.github.app.installations
        world.github.uninstall(old)
        new = world.github.install(old.account)
        harness.release()
        await world.github.until(lambda: len(world.github.visible(pull)) == 1)
        call = world.github.calls("POST", "/repos/*/issues/*/comments")[-1]
        assert call.status == 201
        assert new.id != old.id


async def test_a_pull_request_whose_end_was_missed_leaves_nothing_behind(tmp_path: Path) -> None:
    async with served(worktree=True) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        pull = opened(world, files={"src/a.py": ("a = 1\n", "a = 2\n")})
        await world.github.settled()
        session = world.session(TOKEN)
        await session.rest()
        (folder,) = world.host.agent().store.folder("github").glob("*/pull-1")
        world.github.webhooks.lose(1, when=lambda one: one.action == "closed")
        world.github.user("dev-one").close(pull)
        await world.github.settled()
        world.github.user("dev-two").comment(pull, "@agent-fixture why?")
        await world.github.settled()
        await session.rest()
        await world.github.until(lambda: not folder.exists())


async def test_the_code_of_one_that_is_open_again_stays(tmp_path: Path) -> None:
    """Whoever opens it again, and whether that starts a turn or not."""
    async with served(worktree=True, on=["opened", "mention"]) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        pull = opened(world, files={"src/a.py": ("a = 1\n", "a = 2\n")})
        await world.github.settled()
        session = world.session(TOKEN)
        await session.rest()
        (folder,) = world.host.agent().store.folder("github").glob("*/pull-1")
        world.github.user("dev-one").close(pull)
        await world.github.until(lambda: not folder.exists())
        await world.clock.elapse(1)
        world.github.user("dev-one").reopen(pull)
        world.github.user("dev-two").comment(pull, "@agent-fixture go on")
        await world.github.settled()
        await session.rest()
        await world.host.until(lambda: world.host.agent().dispatcher.caught_up(session.id))
        assert (folder / "src/a.py").read_text() == "a = 2\n"


async def test_what_was_said_of_a_repository_never_goes_to_another_with_its_name() -> None:
    """It was renamed, which was never told, and another one has its name."""
    async with served(Gated(), working=False) as world:
        github, first = world.github, world.github.repository()
        issue = world.github.user("dev-one").open_issue(title="One", body="@agent-fixture look")
        await github.settled()
        token = f"issue:octo-fixture/widget#{issue.number}"
        await world.session(token).rest()
        github.webhooks.lose(1, when=lambda one: one.event == "repository")
        github.rename(first, "gadget")
        second = github.add_repository("octo-fixture/widget")
        payload = github.deliveries("issues")[-1].payload
        payload["repository"] |= {"id": second.id, "updated_at": "2027-01-01T00:00:00Z"}
        payload["issue"] |= {"id": 4711}
        assert (await deliver(world, "issues", payload, 5)).status == 202
        ctx = Context(world.host.agent().runtimes["github"])
        thread = await world.channel.hub.names.thread(ctx, token)
        assert thread is not None
        assert (thread.repository.id, thread.repository.name) == (first.id, "")
        path = f"/issues/{issue.number}/comments"
        hub = world.channel.hub
        await hub.request(ctx, thread.repository, "POST", path, {"body": "late"})
        assert "late" in github.visible(issue)
        assert (await hub.names.now(ctx, thread.repository)).name == "octo-fixture/gadget"


async def test_one_that_is_closed_while_it_is_read_is_closed(tmp_path: Path) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, worktree=True) as world:
        world.github.back(world.github.repository(), tmp_path / "widget.git")
        gate = world.github.hold("GET", "/repos/*/pulls/1/reviews")
        pull = opened(world, files={"src/a.py": ("a = 1\n", "a = 2\n")})
        await world.github.until(lambda: gate.arrived)
        world.github.user("dev-one").close(pull)
        await world.github.settled()
        gate.release()
        await harness.gates["answer"].reached()
        (folder,) = world.host.agent().store.folder("github").glob("*/pull-1")
        assert (folder / "src/a.py").exists()
        harness.release()
        await world.session(TOKEN).rest()
        await world.github.until(lambda: not folder.exists())


async def closed_with_a_folder(world: World, folder: Path) -> Any:
    """Have a pull request reviewed and closed; return what was delivered when it opened."""
    world.github.back(world.github.repository(), folder)
    pull = opened(world, files={"src/a.py": ("a = 1\n", "a = 2\n")})
    await world.github.settled()
    await world.session(TOKEN).rest()
    world.github.user("dev-one").close(pull)
    await world.github.settled()
    (delivery,) = world.github.deliveries("pull_request", "opened")
    return delivery


async def test_a_late_copy_makes_no_folder_of_a_closed_pull_request(tmp_path: Path) -> None:
    async with served(worktree=True) as world:
        delivery = await closed_with_a_folder(world, tmp_path / "widget.git")
        folder = world.host.agent().store.folder("github")
        await world.github.until(lambda: not [*folder.glob("*/pull-1")])
        assert (await deliver(world, "pull_request", delivery.payload, 9)).ok
        await world.github.until(lambda: not [*folder.glob("*/pull-1")])
        assert len(world.session(TOKEN).events("message.received")) == 1


async def test_what_a_process_could_not_remove_the_next_one_does(tmp_path: Path) -> None:
    async with served(worktree=True) as world:
        await closed_with_a_folder(world, tmp_path / "widget.git")
        folder = world.host.agent().store.folder("github")
        await world.github.until(lambda: not [*folder.glob("*/pull-1")])
        await world.host.stop()
        left = folder / str(world.github.repository().id) / "pull-1" / "src"
        left.mkdir(parents=True)
        await again(world)
        await world.github.until(lambda: not left.exists())
