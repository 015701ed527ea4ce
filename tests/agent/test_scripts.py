"""Script tools: placed in the workspace, run there, and held to what the session says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from threadline.agent.scripts import with_catalog
from threadline.agent.tools import tool
from threadline.errors import ProjectError
from threadline.harness.scripted import Call, Say, Scripted
from threadline.project import Project, load_project
from threadline.testing import HostSession, TestHost

HEAD = "from __future__ import annotations\nimport os\nfrom threadline import ToolContext, tool\n"
FILES = {
    "agent.py": "from threadline import Agent\nagent = Agent(name='Scripts')\n",
    "instructions.md": "Run scripts.",
    "lib/words.py": "def shout(text: str) -> str:\n    return text.upper()\n",
    "tools/shout.py": HEAD
    + """
from lib.words import shout as loud

@tool(execution="agent")
def shout(text: str, ctx: ToolContext) -> dict[str, object]:
    '''Say it loud.'''
    print("this is no answer")
    secret = os.environ.get("SCRIPT_SECRET")
    return {"said": loud(text), "cwd": os.getcwd(), "secret": secret, "now": ctx.now().isoformat()}
""",
    "tools/save.py": HEAD
    + """
@tool(execution="agent", effect="write", dry_run={"saved": False})
async def save(name: str, ctx: ToolContext) -> dict[str, bool]:
    '''Save a file.'''
    (ctx.workspace / name).write_text("saved")
    return {"saved": True}
""",
    "tools/odd.py": HEAD
    + """
import subprocess, sys, time

@tool(execution="agent", timeout=2)
async def odd(how: str, ctx: ToolContext) -> str:
    '''Do something odd.'''
    if how == "kv":
        await ctx.kv.get("x")
    if how == "raise":
        raise ValueError("no luck")
    if how == "exit":
        os._exit(3)
    if how == "much":
        return "x" * 20_000_000
    if how == "hang":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        time.sleep(600)
    return how
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "scripts"
    for name, text in FILES.items():
        path = root / "agent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def loaded(root: Path, *calls: Call) -> Project:
    from dataclasses import replace

    project = load_project(root)
    harness = Scripted([*calls, Say("Done.")])
    return replace(project, agent=replace(project.agent, harness=harness))


def by_hand(workspace: Path, tool: str, *arguments: str, stdin: str = "") -> Any:
    """Run a script as a model with a shell does, by what the catalog says."""
    script = str(workspace / ".threadline" / "tools" / tool)
    return subprocess.run(
        [script, *arguments], input=stdin, capture_output=True, check=False, text=True
    )


async def result_of(session: HostSession) -> dict[str, Any]:
    data: dict[str, Any] = (await session.event("action.result"))["data"]
    return data


async def test_the_model_runs_a_script_in_its_workspace(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPT_SECRET", "s3cret")
    async with TestHost(lambda: loaded(project, Call("shout", {"text": "hi"}))) as host:
        session = await host.start_session("go")
        await session.rest()
        data = await result_of(session)
        workspace = host.root / "sessions" / session.id / "workspace"
        assert data["output"]["said"] == "HI"
        assert data["output"]["cwd"] == str(workspace)
        assert data["output"]["secret"] is None
        notes = (workspace / "AGENTS.md").read_text()
        assert "- `shout` (read): Say it loud." in notes
        told = json.loads((workspace / ".threadline" / "session.json").read_text())
        assert told["sessionId"] == session.id
        done = by_hand(workspace, "shout", '{"text": "again"}')
        assert json.loads(done.stdout)["said"] == "AGAIN"
        assert "this is no answer" in done.stderr
        wrong = by_hand(workspace, "shout", stdin='{"texts": 1}')
        assert wrong.returncode == 1
        assert json.loads(wrong.stdout)["error"] == "invalid_input"


async def test_a_dry_run_holds_however_a_script_is_started(project: Path) -> None:
    async with TestHost(lambda: loaded(project, Call("save", {"name": "a"}))) as host:
        session = await host.start_session("go", dryRun=True)
        await session.rest()
        data = await result_of(session)
        assert (data["output"], data["dryRun"]) == ({"saved": False}, True)
        workspace = host.root / "sessions" / session.id / "workspace"
        done = by_hand(workspace, "save", '{"name": "b"}')
        assert json.loads(done.stdout) == {"saved": False}
        assert not (workspace / "a").exists()
        assert not (workspace / "b").exists()
        called = await host.post("/v1/tools/save", json={"input": {"name": "c"}, "dryRun": True})
        assert called.json()["result"] == {"saved": False}
        called = await host.post("/v1/tools/save", json={"input": {"name": "c"}})
        assert called.json()["result"] == {"saved": True}


async def test_a_script_runs_as_of_the_sessions_time(project: Path) -> None:
    async with TestHost(lambda: loaded(project, Call("shout", {"text": "x"}))) as host:
        session = await host.start_session("go", asOf="2026-01-31T12:00:00Z")
        await session.rest()
        assert (await result_of(session))["output"]["now"] == "2026-01-31T12:00:00+00:00"


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("kv", "tool_failed", "ctx.kv is the host's"),
        ("raise", "tool_failed", "no luck"),
        ("exit", "tool_failed", "ended with 3"),
        ("much", "tool_failed", "printed more than"),
        ("hang", "tool_timeout", "did not answer within 2 seconds"),
    ],
)
async def test_a_script_that_goes_wrong_says_so(
    project: Path, how: str, code: str, said: str
) -> None:
    async with TestHost(lambda: loaded(project)) as host:
        called = (await host.post("/v1/tools/odd", json={"input": {"how": how}})).json()
        assert called["error"] == code
        assert said in called["message"]


async def test_it_says_what_it_is(project: Path) -> None:
    async with TestHost(lambda: loaded(project)) as host:
        shown = (await host.get("/v1/tools/save")).json()
        assert (shown["execution"], shown["effect"]) == ("agent", "write")
        refused = await host.post(
            "/v1/session", json={"message": "x", "workspaceFiles": {".threadline/tools/save": "x"}}
        )
        assert refused.status == 400


@tool(execution="agent")
def lonely() -> str:
    """Has no file of its own in a project."""
    return "x"


def test_a_script_needs_a_file_in_the_project(project: Path) -> None:
    (project / "agent" / "agent.py").write_text(
        "from threadline import Agent, tool\n"
        '@tool(execution="agent")\ndef lonely() -> str:\n    return "x"\n'
        "agent = Agent(name='Scripts', tools=[lonely])\n"
    )
    with pytest.raises(ProjectError, match="needs a file of its own"):
        load_project(project)


def test_the_catalog_replaces_itself_and_nothing_else() -> None:
    first = with_catalog("# Notes\n\nMine.\n", [lonely])
    assert first.startswith("# Notes\n\nMine.\n\n<!-- threadline tools -->")
    assert with_catalog(first, [lonely]) == first
    assert "lonely" not in with_catalog(first, [])
