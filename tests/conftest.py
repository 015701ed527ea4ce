"""What all tests share."""

from __future__ import annotations

import os

import pytest
import structlog
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.session.host", "tests.store.conformance")

# Rendering tracebacks with their locals takes longer than the tests that provoke them.
structlog.configure(
    processors=[structlog.processors.add_log_level, structlog.processors.KeyValueRenderer()]
)

settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
