"""``serve`` and ``dev`` as processes: ready, drained, ended at once, reloaded."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from threadline.cli.dev import wanted
from threadline.cli.serve import curl_lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli, Start


def fetch(url: str) -> Any:
    """Return the JSON at an address."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def test_ready_then_a_signal_drains_and_ends_with_0(start: Start, oncall: str) -> None:
    host = start("serve", oncall, "--port", "0", "--json")
    ready = host.ready()
    agent = ready["agents"][0]
    assert agent["slug"] == "oncall"
    assert ready["port"] > 0
    assert fetch(agent["url"] + "/v1/info")["slug"] == "oncall"
    host.signal(signal.SIGTERM)
    assert host.end() == 0
    assert "Traceback" not in host.output


def test_a_second_signal_ends_it_at_once(start: Start, oncall: str) -> None:
    host = start("serve", oncall, "--port", "0", "--json", ONCALL_PACE="1000")
    url = host.ready()["agents"][0]["url"]
    body = json.dumps({"message": "investigate checkout"}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + "/v1/session", body, headers)
    with urllib.request.urlopen(request, timeout=30):
        host.signal(signal.SIGTERM)
    host.until("host.draining")
    host.signal(signal.SIGTERM)
    assert host.end() == 128 + signal.SIGTERM


def test_what_it_prints_can_be_pasted(start: Start, oncall: str) -> None:
    host = start("serve", oncall, "--port", "0")
    assert "/oncall/playground" in host.until("/playground")
    first = host.until("R=$(curl")
    lines = [first, host.line(), host.line()]
    host.until("Ctrl-C")
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    # The stream is read for ten seconds; here for as many as the turn takes.
    for seconds in (3, 10, 30):
        script = "".join(lines).replace("-m 10", f"-m {seconds}")
        done = subprocess.run(
            ["sh"], input=script, capture_output=True, text=True, timeout=60, check=False
        )
        started, *events, follow_up = done.stdout.splitlines()
        if "session.waiting" in events[-1]:
            break
    assert json.loads(started)["ok"]
    assert json.loads(events[0])["type"] == "session.started"
    assert json.loads(events[-1])["type"] == "session.waiting"
    assert json.loads(follow_up)["sessionId"] == json.loads(started)["sessionId"]


def test_a_bearer_token_is_asked_for_and_never_printed(start: Start, cli: Cli, oncall: str) -> None:
    host = start("serve", oncall, "--port", "0", "--bearer-token", "s3cret-token")
    host.until("Ctrl-C")
    assert "s3cret-token" not in host.output
    refused = cli("session", "list", oncall)
    assert refused.returncode == 1
    assert "--bearer-token" in refused.stderr
    assert cli("session", "list", oncall, "--bearer-token", "s3cret-token").returncode == 0


def test_curl_lines_name_the_token_by_its_variable() -> None:
    assert all("$TOKEN" in line for line in curl_lines("http://x/a", ' -H "a: $TOKEN"'))


def test_every_problem_of_every_project_is_printed(cli: Cli, oncall: str, broken: Path) -> None:
    done = cli("serve", oncall, str(broken), str(broken / "none"), "--port", "0")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "instructions.md:1: is empty" in done.stderr
    assert "look.py:1: No module named 'nothing_of_that_name'" in done.stderr
    assert "none:1: there is no such folder." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_or_state_root_in_use_ends_with_3(start: Start, cli: Cli, oncall: str) -> None:
    ready = start("serve", oncall, "--port", "0", "--json").ready()
    again = cli("serve", oncall, "--port", "0")
    assert again.returncode == 3
    assert "in use by another host" in again.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = cli("serve", oncall, "--port", port, "--state-root", ready["agents"][0]["url"])
    assert refused.returncode == 3
    assert "cannot be bound" in refused.stderr


def test_dev_reloads_what_works_and_keeps_what_ran(
    start: Start, broken: Path, tmp_path: Path
) -> None:
    project = tmp_path / "dev"
    broken.rename(project)
    tool = project / "agent" / "tools" / "look.py"
    tool.unlink()
    instructions = project / "agent" / "instructions.md"
    instructions.write_text("Be brief.")
    host = start("dev", str(project), "--port", "0")
    url = host.until("/playground").split()[-1].removesuffix("/playground")
    host.until("Ctrl-C")
    assert fetch(url + "/v1/info")["name"] == "dev"

    instructions.write_text("")
    host.until("Changed: instructions.md")
    assert "is empty" in host.until("instructions.md:1:")
    host.until("the version before it still runs")
    assert fetch(url + "/v1/info")["name"] == "dev"

    instructions.write_text("Be brief and kind.")
    (project / "agent" / "agent.py").write_text(
        "from threadline import Agent\nagent = Agent(name='Second')\n"
    )
    host.until("/playground")
    host.until("Ctrl-C")
    assert fetch(url + "/v1/info")["name"] == "Second"
    host.signal(signal.SIGTERM)
    assert host.end() == 0


def test_what_dev_watches(tmp_path: Path) -> None:
    roots = [tmp_path]
    assert wanted(tmp_path / "agent" / "agent.py", roots, None)
    assert not wanted(tmp_path / ".threadline" / "lock", roots, None)
    assert not wanted(tmp_path / "agent" / "__pycache__" / "a.pyc", roots, None)
    assert not wanted(tmp_path / "agent" / "agent.py~", roots, None)
    assert not wanted(tmp_path / "state" / "lock", roots, tmp_path / "state")


def test_dev_without_the_watcher_names_the_extra(
    cli: Cli, oncall: str, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('not here')\n")
    done = cli("dev", oncall, env=env | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "threadline[reload]" in done.stderr
