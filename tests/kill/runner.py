"""Serve the project of the kill test without the command line."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from threadline.host.app import Host, Options
from threadline.host.logs import LogBook, configure
from threadline.host.serve import serve
from threadline.project import load_project


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-root", type=Path, required=True)
    arguments = parser.parse_args()
    book = LogBook()
    configure(book)
    options = Options(mode="single", port=arguments.port, state_root=arguments.state_root, dev=True)

    async def run() -> None:
        await serve(Host([load_project(arguments.project)], options, book=book))

    asyncio.run(run())


if __name__ == "__main__":
    main()
