"""Text in and out: what Slack sends as words, and Markdown as what Slack shows; no I/O."""
