"""Channel types of installed packages: found by their entry point, shown by ``info``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from threadline.channel import installed
from threadline.channel.installed import ChannelType, channel_types, installed_channels

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

PACKAGE = Path(__file__).parents[2] / "examples" / "channel-package"
OURS = ChannelType("http", "threadline_http:HttpChannel", "threadline")


def install(folder: Path, name: str, entry_points: str) -> None:
    """Make a distribution visible to whoever has the folder on ``sys.path``, without pip."""
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[threadline.channels]\n{entry_points}\n")


def offered(package: Path) -> str:
    """Return the entry points of a package's pyproject.toml, as a wheel has them."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    group = project["entry-points"][installed.GROUP]
    return "\n".join(f"{name} = {value}" for name, value in group.items())


@pytest.fixture
def site(tmp_path: Path, env: dict[str, str]) -> Path:
    """A folder that the command has on its path, as site-packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    env["PYTHONPATH"] = os.pathsep.join([str(folder), str(PACKAGE)])
    return folder


def listed(cli: Cli, project: str) -> dict[str, dict[str, str]]:
    """Return what ``info --json`` says of each package's offer."""
    done = cli("info", project, "--json")
    assert done.returncode == 0, done.stderr
    types = json.loads(done.stdout)["channelTypes"]
    assert [type_["name"] for type_ in types] == sorted(type_["name"] for type_ in types)
    return {type_["value"]: type_ for type_ in types}


def test_the_example_package_is_listed(cli: Cli, site: Path, oncall: str) -> None:
    install(site, "threadline-desk", offered(PACKAGE))
    assert listed(cli, oncall)["threadline_desk:DeskChannel"] == {
        "name": "desk",
        "value": "threadline_desk:DeskChannel",
        "distribution": "threadline-desk",
        "version": "1.2",
    }
    text = cli("info", oncall).stdout
    assert "  desk  threadline-desk  1.2  threadline_desk:DeskChannel\n" in text
    assert "  http  threadline  " in text


def test_the_example_package_passes_its_own_tests(env: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "package")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path / "package",
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_project_uses_the_example_package(cli: Cli, site: Path, tmp_path: Path) -> None:
    project = tmp_path / "desk-agent"
    (project / "agent" / "channels").mkdir(parents=True)
    (project / "agent" / "instructions.md").write_text("Be brief.")
    shown = re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.M | re.S)
    (project / "agent" / "channels" / "desk.py").write_text(shown[0])
    found = json.loads(cli("info", str(project), "--json").stdout)["channels"]
    assert [route["path"] for route in found[0]["routes"]] == [
        "/v1/channels/desk/comments",
        "/v1/channels/desk/tickets/{number}",
    ]


def test_a_broken_entry_point_is_reported_and_breaks_nothing(
    cli: Cli, site: Path, oncall: str
) -> None:
    install(site, "acme-broken", "broken = broken:x")
    (site / "broken.py").write_text("print('loading')\nraise SystemExit(3)\n")
    install(site, "acme-http", "http = threadline_desk:DeskChannel")
    types = listed(cli, oncall)
    assert types["broken:x"]["problem"] == "cannot be imported: SystemExit: 3"
    assert types["threadline_desk:DeskChannel"]["problem"] == (
        "the name is taken by threadline: give the entry point another name."
    )
    assert "problem" not in types[OURS.value]
    text = cli("info", oncall).stdout
    assert "  broken  acme-broken  1.2  broken:x  problem: cannot be imported: " in text
    assert cli("run", oncall, "--message", "What is the status of checkout?").returncode == 0


@pytest.mark.parametrize(
    ("value", "code", "problem"),
    [
        ("gone_x:Channel", "", "cannot be imported: ModuleNotFoundError: No module named 'gone_x'"),
        ("{}:Gone", "", "cannot be imported: AttributeError: "),
        ("{}:x", "raise RuntimeError('no\\nluck')", "cannot be imported: RuntimeError: no luck"),
        ("{}:x", "x = 7", "names int: it must name a subclass of Channel"),
        ("{}:x", "class x: pass", "names the class x: it must name a subclass of Channel"),
        ("not a module!", "", "is written as 'not a module!'"),
    ],
)
def test_what_is_wrong_with_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, code: str, problem: str
) -> None:
    module = f"acme_{tmp_path.name}"
    value = value.format(module)
    (tmp_path / f"{module}.py").write_text(code)
    install(tmp_path, "acme-broken", f"broken = {value}")
    monkeypatch.syspath_prepend(tmp_path)
    broken = next(type_ for type_ in installed_channels() if type_.name == "broken")
    assert (broken.value, broken.distribution, broken.version) == (value, "acme-broken", "1.2")
    assert broken.problem is not None
    assert broken.problem.startswith(problem)


def test_a_function_that_makes_a_channel_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme-made", "made = threadline.auth:bearer")
    monkeypatch.syspath_prepend(tmp_path)
    assert [t.problem for t in installed_channels() if t.name == "made"] == [None]


def test_types_are_found_without_being_imported() -> None:
    assert channel_types()["http"].value == OURS.value
    found = {t.name: t for t in installed_channels()}
    assert (found["http"].value, found["http"].distribution) == (OURS.value, "threadline")
    assert {t.problem for t in found.values() if t.distribution == "threadline"} == {None}
