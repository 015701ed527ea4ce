"""``run``, ``call``, ``validate`` and ``info`` as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from threadline.cli.exits import UsageError
from threadline.cli.run import workspace_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli, Start

ASK = ("--message", "What is the status of checkout?")


def traces(state: Path) -> list[Path]:
    return sorted(state.rglob("traces/*.ndjson"))


def test_run_prints_its_turn_and_keeps_its_trace(cli: Cli, oncall: str, state: Path) -> None:
    done = cli("run", oncall, *ASK)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert list(summary) == ["sessionId", "status", "reply", "toolCalls", "usage"]
    assert summary["status"] == "completed"
    assert "**checkout** is **degraded**" in summary["reply"]
    assert [call["toolName"] for call in summary["toolCalls"]] == ["page_status"]
    assert summary["usage"]["requests"] == 2
    [trace] = traces(state)
    assert trace.stat().st_mode & 0o777 == 0o600
    for again in (
        cli("trajectory", "--events", str(trace)),
        cli("session", "get", "--file", str(trace)),
        cli("session", "get", summary["sessionId"], oncall),
    ):
        assert json.loads(again.stdout) == summary
    assert not list(state.parent.glob("examples"))


def test_run_twice_makes_two_sessions(cli: Cli, oncall: str, state: Path) -> None:
    first, second = cli("run", oncall, *ASK), cli("run", oncall, *ASK, "--text")
    assert (first.returncode, second.returncode) == (0, 0)
    assert second.stdout.startswith("- **checkout** is")
    assert len(traces(state)) == 2


def test_run_uses_the_host_that_runs_on_the_state_root(
    start: Start, cli: Cli, oncall: str, state: Path
) -> None:
    host = start("serve", oncall, "--port", "0", "--json")
    url = host.ready()["agents"][0]["url"]
    by_lock, by_url = cli("run", oncall, *ASK), cli("run", "--url", url, *ASK)
    assert (by_lock.returncode, by_url.returncode) == (0, 0)
    listed = json.loads(cli("session", "list", "--url", url, "--json").stdout)["sessions"]
    told = [json.loads(done.stdout)["sessionId"] for done in (by_url, by_lock)]
    assert [session["sessionId"] for session in listed] == told
    assert [trace.stem for trace in traces(state)] == told[1:]


def test_run_continues_a_session(start: Start, cli: Cli, oncall: str) -> None:
    chat = start("serve", oncall, "--port", "0", "--json")
    url = chat.ready()["agents"][0]["url"]
    import urllib.request

    request = urllib.request.Request(
        url + "/v1/session",
        json.dumps({"message": "hello"}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        made = json.load(answer)
    which = ("--session", made["sessionId"], "--token", made["continuationToken"])
    done = cli("run", oncall, *ASK, *which)
    summary = json.loads(done.stdout)
    assert (summary["sessionId"], summary["status"]) == (made["sessionId"], "completed")
    assert len(summary["toolCalls"]) == 1
    stale = cli("run", oncall, *ASK, *which)
    assert stale.returncode == 1
    assert "token" in stale.stderr


def test_a_failed_turn_ends_with_1_and_its_reason(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bare" / "agent").mkdir(parents=True)
    (tmp_path / "bare" / "agent" / "instructions.md").write_text("Be brief.")
    done = cli("run", str(tmp_path / "bare"), *ASK)
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["reply"]) == ("failed", None)
    assert summary["error"]["code"] == "model_not_configured"
    assert "model_not_configured" in done.stderr


def test_run_stops_what_takes_too_long(cli: Cli, oncall: str, env: dict[str, str]) -> None:
    slow = env | {"ONCALL_PACE": "1000"}
    done = cli("run", oncall, "--message", "investigate", "--timeout", "0.5", env=slow)
    assert done.returncode == 1
    assert "did not end within 0.5 s" in done.stderr
    listed = json.loads(cli("session", "list", oncall, "--json").stdout)["sessions"]
    assert [session["status"] for session in listed] == ["waiting"]
    got = json.loads(cli("session", "get", listed[0]["sessionId"], oncall).stdout)
    assert got["status"] == "cancelled"


def test_ctrl_c_stops_the_turn(start: Start, cli: Cli, oncall: str, state: Path) -> None:
    turn = start("run", oncall, "--message", "investigate", ONCALL_PACE="1000")
    logs = iter(lambda: list(state.rglob("events.ndjson")), None)
    while not any(b"turn.started" in log.read_bytes() for log in next(logs)):
        assert turn.process.poll() is None
    turn.signal(signal.SIGINT)
    assert turn.end() == 130
    assert "Traceback" not in turn.output
    [session] = json.loads(cli("session", "list", oncall, "--json").stdout)["sessions"]
    got = json.loads(cli("session", "get", session["sessionId"], oncall).stdout)
    assert got["error"]["code"] == "stopped"


def test_workspace_files_are_text_or_base64(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ü")
    (tmp_path / "b.bin").write_bytes(b"\xff\x00")
    files = workspace_files([f"in/a=={tmp_path}/a.txt".replace("==", "="), f"b={tmp_path}/b.bin"])
    assert files == {"in/a": "ü", "b": {"base64": "/wA="}}
    with pytest.raises(UsageError, match="cannot be read"):
        workspace_files([f"a={tmp_path}/none"])


def test_nobody_there_ends_with_3(cli: Cli) -> None:
    done = cli("run", "--url", "http://127.0.0.1:9/oncall", *ASK)
    assert done.returncode == 3
    assert "No host answers at http://127.0.0.1:9/oncall" in done.stderr


def test_call_runs_a_tool_without_a_host(cli: Cli, oncall: str) -> None:
    done = cli("call", "page_status", oncall, "--input", '{"service": "checkout"}')
    assert done.returncode == 0
    assert json.loads(done.stdout)["state"] == "degraded"
    bad = cli("call", "page_status", oncall, "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["error"] == "invalid_input"
    unknown = cli("call", "nothing", oncall)
    assert unknown.returncode == 1
    assert "page_status" in unknown.stderr


def test_call_asks_the_running_host(start: Start, cli: Cli, oncall: str) -> None:
    start("serve", oncall, "--port", "0", "--json").ready()
    done = cli("call", "page_status", oncall, "--input", '{"service": "checkout"}', "--json")
    assert json.loads(done.stdout)["result"]["service"] == "checkout"
    assert cli("call", "page_status", oncall, "--json").returncode == 1


def test_what_a_project_prints_does_not_reach_stdout(cli: Cli, tmp_path: Path) -> None:
    tools = tmp_path / "loud" / "agent" / "tools"
    tools.mkdir(parents=True)
    (tools.parent / "instructions.md").write_text("Be brief.")
    (tools / "shout.py").write_text(
        "from threadline import tool\n"
        "print('loading')\n"
        "@tool\n"
        "async def shout() -> str:\n"
        '    """Shout."""\n'
        "    print('running')\n"
        "    return 'done'\n"
    )
    done = cli("call", "shout", str(tools.parents[1]))
    assert done.stdout == "done\n"
    assert "loading" in done.stderr
    assert "running" in done.stderr
    assert json.loads(cli("info", str(tools.parents[1]), "--json").stdout)["slug"] == "loud"


def test_validate_prints_every_problem(cli: Cli, oncall: str, broken: Path) -> None:
    assert cli("validate", oncall).returncode == 0
    done = cli("validate", oncall, str(broken))
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2
    assert all(line.startswith(str(broken)) for line in done.stdout.splitlines())
    told = json.loads(cli("validate", oncall, str(broken), "--json").stdout)
    assert not told["ok"]
    assert len(told["problems"]) == 2
    assert [project["slug"] for project in told["projects"]] == ["oncall"]


def test_info_says_what_the_host_says(start: Start, cli: Cli, oncall: str) -> None:
    here = json.loads(cli("info", oncall, "--json").stdout)
    url = start("serve", oncall, "--port", "0", "--json").ready()["agents"][0]["url"]
    assert json.loads(cli("info", "--url", url, "--json").stdout) == here
    text = cli("info", oncall).stdout
    assert "page_status" in text
    assert "POST   /v1/session\n" in text


@pytest.mark.parametrize("line", ["info {} --json", "validate {}", "run {} -m hi", "--help"])
def test_a_reader_that_goes_away_is_no_error(line: str, oncall: str, env: dict[str, str]) -> None:
    process: Any = subprocess.Popen(
        [sys.executable, "-m", "threadline.cli.main", *line.format(oncall).split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) in (141, 1)  # 1 is how the help's own writer ends
    process.stderr.close()
