"""A real host and a real browser for the pages.

``THREADLINE_PLAYGROUND_URL`` names the page of a host that runs already, to test that one instead.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 30
STOP_SECONDS = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_alive(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until_alive(process: subprocess.Popen[bytes], url: str, output: Path) -> None:
    """Poll ``/healthz``; fail with the host's own words when it ends or stays silent."""
    deadline = time.monotonic() + START_SECONDS
    while not is_alive(url):
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            state = "is silent" if ended is None else f"ended with {ended}"
            said = output.read_text(errors="replace")[-4000:]
            pytest.fail(f"the host {state}; it said:\n{said}", pytrace=False)
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


@pytest.fixture(scope="session")
def playground_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The playground page of the on-call example, served by a process of its own."""
    running = os.environ.get("THREADLINE_PLAYGROUND_URL")
    if running:
        yield running
        return
    place = tmp_path_factory.mktemp("playground")
    output = place / "host.log"
    port = free_port()
    command = [sys.executable, "-m", "threadline.cli.main", "serve", "examples/oncall"]
    command += ["--port", str(port), "--state-root", str(place / "state")]
    with output.open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_alive(process, f"http://127.0.0.1:{port}/healthz", output)
            yield f"http://127.0.0.1:{port}/oncall/playground"
        finally:
            end(process)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module; skips when a part of it is missing.

    Playwright's sync API keeps an event loop running in this thread for as long as it is open, so
    it has to be closed before any asyncio test of another module starts.
    """
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install -y chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), headless=True, args=CHROMIUM_ARGS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A fresh tab; fails the test when the page raised or broke its content policy."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(20_000)
    tab = context.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "console",
        lambda said: (
            problems.append(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    yield tab
    context.close()
    assert problems == []
