"""How fast one core encodes events and appends them to many files with write()."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import orjson


def main() -> None:
    """Print events a second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", type=int)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--events", type=int, default=50)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    with tempfile.TemporaryDirectory(prefix="threadline-bench-") as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        handles = [os.open(Path(folder) / str(n), flags, 0o600) for n in range(options.files)]
        began = time.perf_counter()
        for index in range(options.events):
            for handle in handles:
                os.write(handle, line(index))
        elapsed = time.perf_counter() - began
        for handle in handles:
            os.close(handle)
    print(options.files * options.events / elapsed)


def line(index: int) -> bytes:
    """Encode one event."""
    event = {
        "type": "message.appended",
        "index": index,
        "sessionId": "ses_0123456789abcdefghijkl",
        "turnId": "turn_0123456789abcdefghijkl",
        "at": "2026-01-01T00:00:00.000Z",
        "data": {"messageId": f"m{index & 1}", "delta": "twenty bytes of text"},
    }
    return orjson.dumps(event) + b"\n"


if __name__ == "__main__":
    main()
