"""``session`` as a process: with a host, without one, and after one that was killed."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli, Start


@pytest.fixture
def made(cli: Cli, oncall: str) -> str:
    """A session that ran one turn."""
    done = cli("run", oncall, "--message", "hello")
    found: str = json.loads(done.stdout)["sessionId"]
    return found


def listed(cli: Cli, oncall: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("session", "list", oncall, "--json").stdout)[
        "sessions"
    ]
    return found


@pytest.mark.parametrize("hosted", [True, False])
def test_list_get_stop_delete(start: Start, cli: Cli, oncall: str, made: str, hosted: bool) -> None:
    if hosted:
        start("serve", oncall, "--port", "0", "--json").ready()
    [session] = listed(cli, oncall)
    assert (session["sessionId"], session["status"]) == (made, "waiting")
    assert session["principal"]["kind"] == "local"
    table = cli("session", "list", oncall).stdout.splitlines()
    assert table[0].split() == ["SESSION", "STATUS", "CHANNEL", "MODE", "CREATED", "TITLE"]
    assert table[1].startswith(made)
    got = json.loads(cli("session", "get", made, oncall).stdout)
    assert (got["sessionId"], got["status"]) == (made, "completed")
    assert cli("session", "stop", made, oncall).stdout == "nothing was running\n"
    deleted = cli("session", "delete", made, oncall, "--json")
    assert json.loads(deleted.stdout) == {"ok": True, "sessionId": made, "deleted": True}
    assert listed(cli, oncall) == []
    for verb in ("get", "stop", "delete"):
        gone = cli("session", verb, made, oncall)
        assert gone.returncode == 1
        assert "There is no session" in gone.stderr


def test_looking_makes_no_state_root(cli: Cli, oncall: str, state: Path) -> None:
    assert listed(cli, oncall) == []
    assert cli("session", "get", "ses_none", oncall).returncode == 1
    assert not state.exists()


def test_stop_reaches_the_running_host(start: Start, cli: Cli, oncall: str) -> None:
    start("serve", oncall, "--port", "0", "--json", ONCALL_PACE="1000").ready()
    turn = start("run", oncall, "--message", "investigate checkout")
    while not (sessions := listed(cli, oncall)):
        assert turn.process.poll() is None
    stopped = cli("session", "stop", sessions[0]["sessionId"], oncall)
    assert stopped.stdout == "stopped\n"
    assert turn.end() == 1
    assert '"status": "cancelled"' in turn.output


def test_what_a_killed_host_left_is_shown_and_can_be_stopped(
    start: Start, cli: Cli, oncall: str, state: Path
) -> None:
    turn = start("run", oncall, "--message", "investigate checkout", ONCALL_PACE="1000")
    while not any(b"turn.started" in log.read_bytes() for log in state.rglob("events.ndjson")):
        assert turn.process.poll() is None
    turn.signal(signal.SIGKILL)
    turn.end()
    [session] = listed(cli, oncall)
    assert session["status"] == "interrupted"
    stopped = cli("session", "stop", session["sessionId"], oncall)
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    got = json.loads(cli("session", "get", session["sessionId"], oncall).stdout)
    assert got["status"] == "cancelled"
    assert listed(cli, oncall)[0]["status"] == "waiting"
