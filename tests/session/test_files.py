"""Files that come with deliveries, and the folders that turns and calls work in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from threadline.errors import Forbidden, InvalidRequest
from threadline.harness.base import ToolCall, Turn
from threadline.harness.scripted import Scripted
from threadline.principal import LOCAL, Principal
from threadline.session.core import Services
from threadline.session.workspace import Seeds

if TYPE_CHECKING:
    from tests.session.conftest import MakeHost
    from tests.session.host import Host


async def finish(host: Host) -> None:
    host.tools.held = False
    host.tools.release()
    await host.rest()
    host.check()


def workspace(host: Host) -> Path:
    return host.root / "sessions" / host.session_id() / "workspace"


async def test_files_are_there_when_the_prompt_is_and_when_the_nudge_is(
    make_host: MakeHost,
) -> None:
    seen: list[tuple[str, list[str]]] = []

    async def model(turn: Turn) -> str:
        def look(what: str) -> None:
            seen.append((what, sorted(p.name for p in turn.workspace.iterdir())))

        look(turn.prompt.text)
        turn.step_started()
        await turn.call_tools([ToolCall("c1", "work", {})])
        nudges = await turn.boundary([])
        look("boundary")
        await turn.confirm(nudges, [])
        return "ok"

    host = await make_host(Scripted(model))
    host.tools.held = True
    await host.send("a1", files={"one.txt": b"1"})
    await host.working()
    await host.send("a2", files={"two.txt": b"2"})
    assert not (workspace(host) / "two.txt").exists()
    await finish(host)
    assert seen == [("say a1", ["one.txt"]), ("boundary", ["one.txt", "two.txt"])]
    assert (workspace(host) / "two.txt").read_bytes() == b"2"


async def test_files_survive_a_restart_before_their_prompt(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2", files={"two.txt": b"2"}, admission="preempt")
    await host.kill()
    await host.start()
    await finish(host)
    assert (workspace(host) / "two.txt").read_bytes() == b"2"


async def test_a_link_in_the_workspace_refuses_the_delivery(host: Host, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    await host.send("a1")
    await host.working()
    (workspace(host) / "out").symlink_to(victim)
    (workspace(host) / "f").symlink_to(tmp_path / "victim.txt")
    for path in ("out/x", "f"):
        with pytest.raises(InvalidRequest):
            await host.send("a2", files={"fine.txt": b"1", path: b"2"})
    assert host.core.store.delivery("a2") == []
    await finish(host)
    assert list(victim.iterdir()) == []
    await host.core.delete(host.session_id())
    assert victim.is_dir()


async def test_a_link_made_meanwhile_is_not_followed_and_the_prompt_says_so(
    host: Host, tmp_path: Path
) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2", files={"f": b"2"})
    (workspace(host) / "f").symlink_to(tmp_path / "victim.txt")
    await host.stop()
    await finish(host)
    assert not (tmp_path / "victim.txt").exists()
    history = [m for c in host.core.store.checkpoints(host.session_id()) for m in c.messages]
    assert any("could not be written" in str(m.get("content")) for m in history)


async def test_a_stranger_learns_nothing_of_a_workspace(host: Host) -> None:
    await host.send("a1")
    await host.working()
    (workspace(host) / "f").symlink_to("elsewhere")
    for files in ({"f": b""}, {"g": b""}):
        request = host.request(
            "x", by=Principal("user", "bob"), session_id=host.session_id(), files=files
        )
        with pytest.raises(Forbidden):
            await host.core.send(request)


async def test_an_id_that_is_none_leads_nowhere(host: Host) -> None:
    from threadline.errors import NotFound

    for name in ("../../etc", "/etc", "ses_none"):
        request = host.request("x", session_id=name, files={"passwd": b""})
        with pytest.raises(NotFound):
            await host.core.send(request)


async def test_a_session_may_have_a_folder_of_its_own_choice(
    make_host: MakeHost, tmp_path: Path
) -> None:
    chosen, other, local = tmp_path / "chosen", tmp_path / "other", tmp_path / "local"
    for folder in (chosen, other, local):
        folder.mkdir()
    seen: list[Path] = []

    async def model(turn: Turn) -> str:
        seen.append(turn.workspace)
        return "ok"

    host = await make_host(Scripted(model), local_cwd=local)
    await host.send("a1", cwd=str(chosen), files={"f": b"1"})
    await host.rest()
    await host.send("a2", cwd=str(other))
    await host.rest()
    await host.send("a3")
    await host.send("b1", "b")
    await host.rest()
    assert seen == [chosen, other, chosen, local]
    assert (chosen / "f").read_bytes() == b"1"


async def test_links_are_refused_in_a_chosen_folder_too(
    make_host: MakeHost, tmp_path: Path
) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    (chosen / "out").symlink_to(tmp_path)
    host = await make_host()
    with pytest.raises(InvalidRequest):
        await host.send("a1", cwd=str(chosen), files={"out/x": b"1"})
    assert host.core.store.sessions() == []


async def test_a_workspace_that_cannot_be_made_fails_the_turn(
    make_host: MakeHost, tmp_path: Path
) -> None:
    host = await make_host(seeds=Seeds(tmp_path / "no-seeds"))
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.ends() == ["workspace_unavailable"]


async def test_a_broken_history_fails_the_turn_and_not_the_session(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await make_host()
    await host.send("a1")
    await host.rest()

    def unreadable(session_id: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(host.core.store, "checkpoints", unreadable)
        await host.send("a2")
        await host.rest()
    assert host.ends() == ["completed", "internal_error"]
    await host.send("a3")
    await host.rest()
    host.check()
    assert host.ends()[-1] == "completed"


async def test_a_direct_call_works_in_the_sessions_folder(host: Host) -> None:
    await host.send("a1")
    await finish(host)
    seen: list[Path | None] = []
    run = host.tools.run

    async def running(call: ToolCall, context: object) -> object:
        seen.append(context.workspace)  # type: ignore[attr-defined]
        return await run(call, context)  # type: ignore[arg-type]

    host.tools.run = running  # type: ignore[method-assign, assignment]
    await host.core.call_tool("work", {}, LOCAL, host.session_id())
    host.tools.writes = {"work"}
    await host.core.call_tool("work", {}, LOCAL)
    assert seen[0] == workspace(host)
    assert seen[1] is not None
    assert not seen[1].exists()


def test_services_have_defaults() -> None:
    fields = Services.__dataclass_fields__
    assert fields["settle_seconds"].default == 10.0
    assert fields["on_restart"].default == "resume"
