"""GitHub: each pull request is a conversation. Secrets come from the environment."""

from threadline_github import GitHubChannel

channel = GitHubChannel(check="pr-reviewer")
