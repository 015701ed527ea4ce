"""What all tests share."""

from __future__ import annotations

import pytest
import structlog

pytest.register_assert_rewrite("tests.session.host", "tests.store.conformance")

# Rendering tracebacks with their locals takes longer than the tests that provoke them.
structlog.configure(
    processors=[structlog.processors.add_log_level, structlog.processors.KeyValueRenderer()]
)
