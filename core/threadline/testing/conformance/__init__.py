"""Proves what a channel promises: tokens, dedupe, admission, access, durability, replies.

::

    class TicketsKit(ChannelKit):
        def channel(self) -> Channel:
            return make_tickets_channel()

        def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
            body = {"ticket": conversation, "text": text, "event": delivery_id}
            return signed_request("secret", body, path="/events")

    async def test_it_keeps_its_promises() -> None:
        report = await channel_conformance(TicketsKit())
        print(report)
        assert report.passed
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from threadline.testing.conformance import access, delivery, hostile, identity, replies
from threadline.testing.conformance.kit import ChannelKit
from threadline.testing.conformance.report import Report, Result, Verdict
from threadline.testing.conformance.stage import Check, Names, NotApplicable, Stage, needs
from threadline.testing.faults import Crashed

__all__ = ["channel_checks", "channel_conformance"]

CHECK_SECONDS = 30.0
_ERRORS = 5
_CHECKS: Sequence[Check] = (
    *identity.CHECKS,
    *delivery.CHECKS,
    *access.CHECKS,
    *replies.CHECKS,
    *hostile.CHECKS,
)


def channel_checks() -> Mapping[str, str]:
    """Return what each check proves, by its id, in the order in which they run."""
    return {one.id: one.title for one in _CHECKS}


async def channel_conformance(
    kit: ChannelKit, *, only: Collection[str] = (), patience: float = 5.0
) -> Report:
    """Run the checks, or ``only`` those with these ids, on the kit's channel; return the report.

    Each check has a host of its own on loopback, with a manual clock; the laws of the log are
    checked after each. A check that fails never keeps the others from running; ``patience`` is how
    many real seconds one waits for what does not come. Raises ValueError for an id that no check
    has.
    """
    if unknown := set(only) - channel_checks().keys():
        raise ValueError(f"There is no check {', '.join(sorted(unknown))}.")
    run = _Run(kit, Names(), patience)
    await kit.open()
    try:
        chosen = [one for one in _CHECKS if not only or one.id in only]
        results = [await _result(run, one) for one in chosen]
    finally:
        await kit.close()
    return Report(kit.channel_id, results)


@dataclass(frozen=True, slots=True)
class _Run:
    """What all checks of a run share."""

    kit: ChannelKit
    names: Names
    patience: float


async def _result(run: _Run, one: Check) -> Result:
    began = time.monotonic()
    with capture_logs() as log:
        verdict, detail = await _verdict(run, one)
    if verdict == "failed":
        detail = "\n".join([detail, *_errors(log)])
    return Result(one.id, one.title, verdict, detail, time.monotonic() - began)


async def _verdict(run: _Run, one: Check) -> tuple[Verdict, str]:
    """Run one check; whatever it raises is its verdict."""
    try:
        needs(run.kit, one)
        async with asyncio.timeout(CHECK_SECONDS):
            await _play(run, one)
    except NotApplicable as reason:
        return "not applicable", str(reason)
    except AssertionError as failure:
        return "failed", str(failure).strip()
    except TimeoutError:
        return "failed", f"It did not end within {CHECK_SECONDS:g} s."
    except (Exception, Crashed) as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


async def _play(run: _Run, one: Check) -> None:
    with tempfile.TemporaryDirectory(prefix="threadline-conformance-") as folder:
        stage = Stage(run.kit, run.names, Path(folder), run.patience)
        async with stage.host:
            try:
                await one.run(stage)
                await stage.rest()
                stage.host.check_laws()
            finally:
                stage.harness.release()


def _errors(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the host logged as errors, each once; not what the check's own crashes did."""
    found = [
        f"The host logged {entry['event']}: {str(entry.get('error', ''))[:200]}"
        for entry in log
        if entry.get("log_level") == "error" and "Crashed" not in str(entry.get("error"))
    ]
    return list(dict.fromkeys(found))[:_ERRORS]
