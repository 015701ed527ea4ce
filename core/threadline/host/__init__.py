"""The process that serves agents over HTTP."""
