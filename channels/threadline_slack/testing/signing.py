"""Slack's signature over the raw body; pure. docs.slack.dev/authentication/verifying-requests."""

from __future__ import annotations

from threadline.testing.inbound import slack_signature

__all__ = ["signed"]


def signed(secret: str, body: bytes, timestamp: int) -> dict[str, str]:
    """Return the headers that a request from Slack has."""
    return {
        "X-Slack-Request-Timestamp": str(timestamp),
        "X-Slack-Signature": slack_signature(secret, body, timestamp),
        "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
    }
