"""``python -m tests.benchmarks [ROW…]``: rows 1 to 9 as ratios of this very run."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from tests.benchmarks import footprint, slack, streams, turns
from tests.benchmarks.process import pin_load
from tests.benchmarks.result import Plan, Result, table

ROWS = {
    "1": turns.latency,
    "2": turns.throughput,
    "3": streams.stream,
    "4": streams.replay,
    "5": streams.appends,
    "6": turns.model,
    "7": slack.events,
    "8": footprint.footprint,
    "9": streams.followers,
}


async def run(rows: list[str], plan: Plan) -> list[Result]:
    """Measure the rows, one after the other."""
    results = []
    for row in rows:
        print(f"row {row} …", file=sys.stderr, flush=True)
        found = await ROWS[row](plan)
        results += found
        print("\n".join(str(result) for result in found), file=sys.stderr, flush=True)
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all of them")
    parser.add_argument(
        "--quick", action="store_true", help="two short rounds: a check, no figures"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    # So that the servers are ended too when this is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pin_load()
    plan = Plan(2, 0.1) if options.quick else Plan(max(1, options.rounds), 1.0)
    results = asyncio.run(run(options.rows or list(ROWS), plan))
    print(table(results))
    if options.json:
        text = json.dumps([result.to_wire() for result in results], ensure_ascii=False, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
