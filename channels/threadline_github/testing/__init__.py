"""Test doubles for GitHub. ``FakeGitHub`` speaks to real clients, and to git."""

from __future__ import annotations

from threadline_github.testing.api import Call
from threadline_github.testing.faults import Fault, Gate
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
    "Check",
    "Comment",
    "Delivery",
    "FakeGitHub",
    "Fault",
    "Gate",
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
