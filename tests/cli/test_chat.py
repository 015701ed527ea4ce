"""``chat`` through pipes: it streams, and says what became of a message sent meanwhile."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Start


def test_a_message_through_a_pipe_is_answered(cli: Cli, oncall: str) -> None:
    done = cli("chat", oncall, input="What is the status of checkout?\n")
    assert done.returncode == 0, done.stderr
    assert "→ page_status service=checkout" in done.stdout
    assert re.search(r"✓ page_status \(\d+ ms\)", done.stdout)
    assert "**checkout** is **degraded**" in done.stdout


def test_a_message_while_the_agent_works_joins_the_turn(start: Start, oncall: str) -> None:
    chat = start("chat", oncall, "--message", "Investigate checkout", ONCALL_PACE="1")
    chat.until("→ page_status service=checkout")
    chat.type("and is billing ok?")
    assert "and is billing ok?" in chat.until("[added to the running turn")
    assert chat.end() == 0
    assert "**billing** is **operational**" in chat.output


def test_an_exclamation_mark_interrupts(start: Start, oncall: str) -> None:
    chat = start("chat", oncall, "--message", "Investigate checkout", ONCALL_PACE="1")
    chat.until("→ page_status service=checkout")
    chat.type("!Is search ok?")
    chat.until("[interrupted]")
    assert chat.end() == 0
    assert "**search** is" in chat.output


def test_stop_new_and_an_unknown_command(start: Start, oncall: str) -> None:
    chat = start("chat", oncall, "--message", "Investigate checkout", ONCALL_PACE="10")
    chat.until("→ page_status")
    chat.type("/stop")
    chat.until("[stopped]")
    chat.type("/nonsense")
    chat.until("/help lists them")
    chat.type("/help")
    chat.until("/quit")
    chat.type("/new")
    chat.until("[a new conversation]")
    chat.type("/stop")
    chat.until("[nothing runs]")
    chat.type("/quit")
    assert chat.end() == 0


def test_a_chat_outlives_its_host(start: Start, oncall: str) -> None:
    host = start("serve", oncall, "--port", "0", "--json")
    ready = host.ready()
    chat = start("chat", oncall, "--message", "What is the status of checkout?")
    chat.until("**checkout** is")
    host.signal(signal.SIGTERM)
    assert host.end() == 0
    chat.until("[connection lost; trying again]")
    chat.type("and is billing ok?")
    start("serve", oncall, "--port", str(ready["port"]), "--json").ready()
    chat.until("**billing** is")
    assert chat.end() == 0
    assert "[connected again]" in chat.output
    assert chat.output.count("**checkout** is") == 1


def test_another_command_finds_the_chats_own_host(start: Start, cli: Cli, oncall: str) -> None:
    chat = start("chat", oncall)
    chat.type("/help")
    chat.until("/quit")
    done = cli("run", oncall, "--message", "hello")
    assert done.returncode == 0, done.stderr
    assert chat.end() == 0


def test_a_refused_message_is_said_and_ends_with_1(start: Start, cli: Cli, oncall: str) -> None:
    url = start("serve", oncall, "--port", "0", "--json").ready()["agents"][0]["url"]
    done = cli("chat", "--url", url, "--session", "ses_none", "--token", "x", input="hello\n")
    assert done.returncode == 1
    assert "There is no session" in done.stdout + done.stderr


def test_ctrl_c_leaves_cleanly(start: Start, oncall: str) -> None:
    chat = start("chat", oncall)
    chat.type("/help")
    chat.until("/quit")
    chat.signal(signal.SIGINT)
    assert chat.end() == 130
    assert "Traceback" not in chat.output
