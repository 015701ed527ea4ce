"""A call that waits for a person: shown where somebody looks, decided from where they are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Start


@pytest.mark.parametrize(
    ("typed", "said", "answer"),
    [
        ("/approve", "was approved by", "**checkout** was restarted"),
        ("/deny not before noon", ": not before noon]", "denied this call: not before noon"),
    ],
)
def test_chat_asks_and_the_answer_decides(
    start: Start, oncall: str, typed: str, said: str, answer: str
) -> None:
    chat = start("chat", oncall, "--message", "Restart checkout")
    waits = chat.until("waits for an approval")
    assert "restart_service service=checkout" in waits
    assert "/approve or /deny" in waits
    chat.type(typed)
    chat.until(said)
    chat.until(answer)
    chat.type("/approve")
    chat.until("[nothing waits for an approval]")
    assert chat.end() == 0


def test_run_says_which_command_decides(start: Start, cli: Cli, oncall: str) -> None:
    run = start("run", oncall, "--message", "Restart checkout")
    run.until("waits for an approval")
    command = run.until("threadline session approve").split()
    listed = json.loads(cli("session", "list", oncall, "--json").stdout)
    assert [session["status"] for session in listed["sessions"]] == ["parked"]
    decided = cli(*command[1:], "--reason", "go ahead", "--json")
    assert decided.returncode == 0, decided.stderr
    assert json.loads(decided.stdout)["decision"] == "approved"
    assert run.end() == 0
    assert "was restarted" in run.output


def test_whoever_comes_later_is_told(start: Start, cli: Cli, oncall: str) -> None:
    host = start("serve", oncall, "--port", "0", "--json")
    host.ready()
    run = start("run", oncall, "--message", "Restart checkout")
    session, call = re.findall(r"(ses_\w+) (\S+) ", run.until("threadline session approve"))[0]
    assert cli("session", "deny", session, call, oncall).stdout == "denied\n"
    assert run.end() == 0
    again = cli("session", "approve", session, call, oncall)
    assert again.returncode == 1
    assert "it was denied by local developer" in again.stderr
    unknown = cli("session", "approve", session, "call_none", oncall)
    assert unknown.returncode == 1
    assert "waits for an approval" in unknown.stderr


def test_without_a_host_nothing_would_go_on(cli: Cli, oncall: str) -> None:
    done = cli("session", "approve", "ses_x", "call_x", oncall)
    assert done.returncode == 1
    assert "No host runs on this state root" in done.stderr


def test_a_dry_run_asks_nobody(cli: Cli, oncall: str) -> None:
    done = cli("run", oncall, "--message", "Restart checkout", "--dry-run")
    assert done.returncode == 0, done.stderr
    (_, call) = json.loads(done.stdout)["toolCalls"]
    assert call["output"]["restarted"] is False
    wrong = cli("run", oncall, "--message", "x", "--dry-run", "--session", "a", "--token", "b")
    assert wrong.returncode == 2
    assert "belong to a session" in wrong.stderr


def test_a_direct_call_takes_a_time(cli: Cli, oncall: str) -> None:
    asked = ("call", "page_status", oncall, "-i", '{"service": "checkout"}')
    done = cli(*asked, "--as-of", "2026-01-31T12:00:00+01:00")
    assert json.loads(done.stdout)["checkedAt"] == "2026-01-31T11:00:00+00:00"
    assert "must be" in cli(*asked, "--as-of", "yesterday").stderr
