"""Every example in the README and the documentation runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from threadline_http.channel import StartSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TUTORIALS = {"testing-your-channel.md", "writing-a-channel.md"}  # see test_tutorials.py
# mcp.md has a test of its own too: test_mcp.py.
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
_LINK = re.compile(r"\]\((?!https?:|#|/)([^)#]+)")


def _blocks(language: str, skip: Collection[str] = ()) -> list[Any]:
    return [
        pytest.param(match.group(2), id=f"{page.name}-{number}")
        for page in PAGES
        for number, match in enumerate(_BLOCK.finditer(page.read_text("utf-8")))
        if match.group(1) == language and page.name not in skip
    ]


@pytest.mark.parametrize("code", _blocks("python", TUTORIALS))
def test_python(code: str) -> None:
    """A block of Python runs as a module of its own."""
    exec(compile(code, "<example>", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("text", _blocks("json", {"artifacts.md", "delivery-ledger.md", "mcp.md"}))
def test_json_bodies_are_valid(text: str) -> None:
    """A body that the documentation shows is one that the route takes."""
    StartSession.model_validate(json.loads(text))


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """A relative link names a file."""
    for target in _LINK.findall(document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The on-call example on a free port; yields the address that the pages call :3000."""
    state = tmp_path_factory.mktemp("state")
    command = [sys.executable, "-m", "threadline.cli.main", "serve", "examples/oncall"]
    command += ["--port", "0", "--state-root", str(state), "--json"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env=os.environ | {"ONCALL_PACE": "0"},
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.parametrize("script", _blocks("sh", {"mcp.md"}))
def test_shell(script: str, host: str) -> None:
    """A block of shell works when it is pasted."""
    run = subprocess.run(
        ["sh", "-eu", "-c", script.replace("http://127.0.0.1:3000", host)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert json.loads(run.stdout)["ok"] is True
