"""The document against the running host: whatever is asked, the answer is a documented one.

Schemathesis makes the requests. ``FUZZ_EXAMPLES`` is how many it makes up for each operation.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kill.host import HostProcess

pytestmark = pytest.mark.real

PROJECT = Path(__file__).parent / "fuzzed" / "project"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
# A chat session's stream has no end, and a client that has learned a session's id would wait for
# it: these operations are asked by a client that has learned nothing.
STREAMS = ("/v1/session/{sessionId}/stream", "/v1/channels/desk/log/{sessionId}")
LEAST = 10_000


def fuzz(url: str, folder: Path, *options: str) -> int:
    """Run schemathesis; return how many requests it made, all of which were answered well."""
    command = [
        *(str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/v1/openapi.json"),
        *("-H", "Authorization: Bearer desk", "--phases", "examples,coverage,fuzzing"),
        *("--max-examples", os.environ.get("FUZZ_EXAMPLES", "450"), "--workers", "2"),
        *("--request-timeout", "30", "--checks", ",".join(CHECKS), "--continue-on-failure"),
        *("--suppress-health-check", "all", "--no-color", *options),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    generated = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
    assert generated is not None, done.stdout[-4000:]
    made, passed = (int(number.replace(",", "")) for number in generated.groups())
    assert made == passed, done.stdout[-8000:]
    return made


@pytest.mark.timeout(900)
async def test_no_answer_is_undocumented(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="installed by make test-real")
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    host = HostProcess(tmp_path, project=project, environment={"DESK_TOKEN": "desk"})
    host._command = [part for part in host._command if part not in ("--no-playground", "--no-docs")]
    await host.start()
    await host.ready()
    try:
        apart = [option for path in STREAMS for option in ("--exclude-path", path)]
        only = [option for path in STREAMS for option in ("--include-path", path)]
        made = fuzz(host.url, tmp_path, *apart) + fuzz(host.url, tmp_path, *only)
        await host.ready()
    finally:
        code = await host.terminate()
    assert code == 0, host.tail()
    print(f"{made} requests were made, and every answer is documented")
    assert made >= LEAST
