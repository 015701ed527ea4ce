"""The Slack channel."""

__all__: list[str] = []
