"""GitHub, as the environment says; what takes minutes there takes moments here."""

from __future__ import annotations

import os

from threadline_github import GitHubChannel
from threadline_github.inbound import sweep
from threadline_github.outbound import working

sweep.SECONDS = 1.0
working._FIRST = 0.05

channel = GitHubChannel(check="agent", worktree=os.environ.get("KILL_WORKTREE") == "1")
