"""Test doubles for GitHub. ``FakeGitHub`` speaks to real clients, and to git."""

from __future__ import annotations

from threadline.testing.gates import CallGate
from threadline_github.testing.api import Call
from threadline_github.testing.faults import Fault
from threadline_github.testing.github import FakeGitHub
from threadline_github.testing.model import (
    Account,
    App,
    Check,
    Comment,
    Hook,
    Installation,
    Issue,
    Pull,
    Repository,
    Review,
    ReviewComment,
    Token,
)
from threadline_github.testing.people import Person
from threadline_github.testing.seeding import DEFAULTS
from threadline_github.testing.webhooks import Delivery

__all__ = [
    "DEFAULTS",
    "Account",
    "App",
    "Call",
    "CallGate",
    "Check",
    "Comment",
    "Delivery",
    "FakeGitHub",
    "Fault",
    "Hook",
    "Installation",
    "Issue",
    "Person",
    "Pull",
    "Repository",
    "Review",
    "ReviewComment",
    "Token",
]
