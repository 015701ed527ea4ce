"""Counts outside of the process what calls did; a line is there as soon as it is written."""

from __future__ import annotations

import os
import time

__all__ = ["count"]


def count(tool: str, call_id: str) -> None:
    """Begin, take a moment, end."""
    handle = os.open(os.environ["KILL_COUNTER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"begin {tool} {call_id}\n".encode())
        time.sleep(0.03)
        os.write(handle, f"end {tool} {call_id}\n".encode())
    finally:
        os.close(handle)
