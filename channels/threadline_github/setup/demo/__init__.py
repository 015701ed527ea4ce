"""A GitHub on this machine with an agent in it, for people without an App."""

from __future__ import annotations
