"""Files of the pull request's checkout, and none outside it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DIFF", "text_of"]

DIFF = ".threadline/pull-request.diff"
_BYTES = 2_000_000


def text_of(workspace: Path | None, path: str) -> str:
    """Return a file's text; raises ValueError when there is none to be had."""
    if workspace is None:
        raise ValueError("There is no workspace, so there is no checkout.")
    root = workspace.resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root) or ".git" in file.relative_to(root).parts:
        raise ValueError(f"{path} is not part of the checkout.")
    if not file.is_file():
        raise ValueError(f"There is no file {path} in the checkout.")
    if file.stat().st_size > _BYTES:
        raise ValueError(f"{path} is larger than two megabytes.")
    return file.read_text("utf-8", "replace")
