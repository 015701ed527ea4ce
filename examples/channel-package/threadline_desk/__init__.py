"""A threadline channel for a help desk: signed webhooks in, one conversation for each ticket."""

from threadline_desk.channel import DeskChannel

__all__ = ["DeskChannel"]
