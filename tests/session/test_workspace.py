"""Workspaces: which paths are refused, and that no link is followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from threadline.errors import InvalidRequest, WorkspaceUnavailable
from threadline.session.workspace import (
    Seeds,
    check_links,
    decode_files,
    prepare,
    write_files,
)

HOSTILE = [
    "../escape.txt",
    "/tmp/abs.txt",
    "a/../../b.txt",
    "..\\win.txt",
    "C:\\x.txt",
    "a\u0000b.txt",
    "",
    ".",
    "..",
    "a/",
    "a//b",
    "ok/./x.txt",
    ".cursor/settings.json",
    ".Cursor/x",
    "sub/.cursor/x",
    "AGENTS.md",
    "agents.MD",
    "sub/AGENTS.md",
    "A" * 300 + ".txt",
    "/".join(["d" * 200] * 6),
    "CON",
    "aux.txt",
    "dir/LPT1.log",
    "file.txt:stream",
    "line\nbreak",
    "trailing ",
    " leading",
    "dot.",
    "\ud800",
    "what?",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_refuses_all(path: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_files({"ok/x.txt": "fine", path: "data"})


@pytest.mark.parametrize(
    "paths",
    [("a.txt", "A.TXT"), ("é", "e\u0301"), ("ok", "ok/x"), ("Ok", "oK/x"), ("a/b/c", "A/B")],
)
def test_two_paths_that_are_one_on_some_disks_are_refused(paths: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        decode_files(dict.fromkeys(paths, "x"))


def test_content_is_text_or_base64() -> None:
    assert decode_files(None) == {}
    assert decode_files({"a/b.txt": "é", "b.bin": {"base64": "AP8="}}) == {
        "a/b.txt": "é".encode(),
        "b.bin": b"\x00\xff",
    }


@pytest.mark.parametrize(
    "content",
    [None, 7, [], {}, {"base64": "?"}, {"base64": 7}, {"base64": "AA==", "x": 1}, "\ud800"],
)
def test_other_content_is_refused(content: Any) -> None:
    with pytest.raises(InvalidRequest):
        decode_files({"a.txt": content})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    prepare(root, Seeds())
    return root


def test_files_are_written_privately_and_overwritten(root: Path) -> None:
    for data in (b"one, and longer", b"two"):
        assert write_files(root, {"a/b/c.txt": data, "d.txt": data}) == []
    assert (root / "a" / "b" / "c.txt").read_bytes() == b"two"
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600)


def test_links_are_refused_and_never_followed(root: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "victim.txt").write_text("untouched")
    (root / "out").symlink_to(victim)
    (root / "f").symlink_to(tmp_path / "victim.txt")
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    (root / "folder").mkdir()
    files = {"out/x": b"1", "f": b"2", "dangling": b"3", "folder": b"4"}
    for path, data in files.items():
        with pytest.raises(InvalidRequest):
            check_links(root, {path: data})
    assert len(write_files(root, files)) == 4
    assert list(victim.iterdir()) == []
    assert (tmp_path / "victim.txt").read_text() == "untouched"
    assert not (tmp_path / "nowhere").exists()
    check_links(root, {"new/x": b"", "folder/y": b""})


def test_one_bad_file_does_not_keep_the_others_away(root: Path) -> None:
    (root / "file").write_text("x")
    (problem,) = write_files(root, {"file/inside": b"1", "fine": b"2"})
    assert "file/inside" in problem
    assert (root / "fine").read_bytes() == b"2"


def test_a_pipe_does_not_hold_up_the_host(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert len(write_files(root, {"pipe": b"x"})) == 1


def test_seeds_and_skills_are_copied_once(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    (seeds / "notes").mkdir(parents=True)
    (seeds / "notes" / "a.md").write_text("a")
    skill = tmp_path / "triage"
    skill.mkdir()
    (skill / "SKILL.md").write_text("s")
    single = tmp_path / "single.md"
    single.write_text("t")
    root = tmp_path / "state" / "workspace"
    given = Seeds(seeds, {"triage": skill, "single": single})
    prepare(root, given)
    assert (root / "notes" / "a.md").read_text() == "a"
    assert (root / ".cursor" / "skills" / "triage" / "SKILL.md").read_text() == "s"
    assert (root / ".cursor" / "skills" / "single" / "SKILL.md").read_text() == "t"
    (root / "notes" / "a.md").write_text("changed")
    prepare(root, given)
    assert (root / "notes" / "a.md").read_text() == "changed"


def test_a_workspace_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceUnavailable):
        prepare(tmp_path / "file" / "workspace", Seeds())
    with pytest.raises(WorkspaceUnavailable):
        prepare(tmp_path / "workspace", Seeds(tmp_path / "no-seeds"))
