"""The library is imported by the first request, in a thread; without it the host goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.channels.mcp.talking import raw
from tests.channels.mcp.talking import request as message
from tests.host.serving import Served

import threadline_mcp.channel

ROOT = Path(__file__).parents[3]
SERVE = "import sys; from threadline.cli.main import main; sys.argv = {argv!r}; main()"
# A finder that says of the package what Python says where it is not installed.
MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mcp", "mcp_types"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)


@pytest.mark.parametrize(
    "code",
    [
        "import threadline",
        "import threadline_mcp",
        "from threadline import Agent, Channel, Context",
        "import threadline.host.serve",
        "from threadline.channel.installed import installed_channels as c\n"
        "assert {'mcp', 'mcp-tools'} <= {t.name for t in c() if t.problem is None}",
        "from threadline.cli.main import run\nrun(['--help'])",
        "from threadline.cli.main import run\nrun(['serve', '--help'])",
    ],
)
def test_nothing_imports_the_library_beforehand(code: str) -> None:
    report = "\nimport sys\nprint([m for m in ('mcp', 'mcp_types') if m in sys.modules])"
    assert python(code + report).stdout.splitlines()[-1] == "[]"


@contextmanager
def host(tmp_path: Path, *options: str, before: str = "") -> Iterator[tuple[str, Path]]:
    """Serve the on-call example in a process of its own; yields its address and its stderr."""
    log = tmp_path / "stderr"
    argv = ["threadline", "serve", "examples/oncall", "--port", "0", "--json"]
    argv += ["--state-root", str(tmp_path / "state")]
    command = [sys.executable, *options, "-c", before + SERVE.format(argv=argv)]
    with (
        log.open("wb") as err,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=err,
            env=os.environ | {"ONCALL_PACE": "0"},
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"]) + "/oncall", log
        finally:
            process.terminate()
            process.wait(20)


def post(url: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Send JSON; return the status and the decoded answer."""
    sent = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def imported(log: Path) -> set[str]:
    """Return the modules that ``-X importtime`` has told of."""
    lines = log.read_text(errors="replace").splitlines()
    return {line.split("|")[-1].strip() for line in lines if line.startswith("import time:")}


def test_a_serving_host_imports_it_at_the_first_request(tmp_path: Path) -> None:
    with host(tmp_path, "-X", "importtime") as (url, log):
        with urllib.request.urlopen(f"{url}/v1/info", timeout=30) as answer:
            assert {"mcp", "mcp-tools"} <= {c["id"] for c in json.load(answer)["channels"]}
        assert post(f"{url}/v1/session", {"message": "hi"})[0] == 200
        assert "threadline_mcp.channel" in imported(log)
        assert not {"mcp", "mcp_types"} & imported(log)
        body, headers = message("tools/list")
        status, answer = post(f"{url}/v1/mcp", body, headers)
        assert (status, answer["result"]["tools"][0]["name"]) == (200, "ask")
        assert {"mcp", "mcp_types"} <= imported(log)


def test_without_the_library_the_host_says_what_to_install(tmp_path: Path) -> None:
    with host(tmp_path, before=MISSING) as (url, log):
        body, headers = message("tools/list", id="a")
        for path in ("/v1/mcp", "/v1/mcp/tools", "/v1/mcp"):
            status, answer = post(url + path, body, headers)
            assert status == 501
            assert answer["id"] == "a"
            assert "pip install 'threadline[mcp]'" in answer["error"]["message"]
        status, answer = post(f"{url}/v1/session", {"message": "hi"})
        assert (status, answer["admitted"]) == (200, "started")
        assert "mcp.missing" in log.read_text()


async def test_the_import_leaves_the_event_loop_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    load = threadline_mcp.channel.importlib.import_module

    def watched(name: str) -> Any:
        threads.append(threading.current_thread())
        return load(name)

    monkeypatch.setattr(threadline_mcp.channel.importlib, "import_module", watched)
    assert (await raw(served, "tools/list")).status == 200
    assert (await raw(served, "tools/list")).status == 200
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
