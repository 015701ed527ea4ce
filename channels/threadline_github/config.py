"""What a bot needs to know of GitHub, by environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from threadline.errors import ProjectError

__all__ = ["API_URL", "Config"]

API_URL = "https://api.github.com"
_NAMES = (
    "GITHUB_WEBHOOK_SECRET",
    "GITHUB_TOKEN",
    "GITHUB_APP_ID",
    "GITHUB_APP_PRIVATE_KEY",
    "GITHUB_API_URL",
)


@dataclass(frozen=True, slots=True)
class Config:
    """Secrets and addresses: a token, or an App's id with its private key in PEM.

    ``api_url`` has no slash at its end.
    """

    webhook_secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    app_id: str | None = None
    private_key: str | None = field(default=None, repr=False)
    api_url: str = API_URL

    @classmethod
    def read(cls, environ: Mapping[str, str], prefix: str = "") -> Config:
        """Read the variables, each with the prefix of this bot; raises ProjectError."""
        secret, token, app, key, url = (environ.get(prefix + name, "").strip() for name in _NAMES)
        names = [prefix + name for name in _NAMES]
        problems = []
        if not secret:
            problems.append(
                f"{names[0]} is not set. It is the secret of the webhook; without it no delivery "
                "could be trusted."
            )
        if bool(app) != bool(key):
            missing = names[3] if app else names[2]
            problems.append(f"{missing} is not set. An App needs its id and its private key.")
        if token and app:
            problems.append(f"Set {names[1]}, or {names[2]} with {names[3]}, not both.")
        if not token and not app and not key:
            problems.append(
                f"Neither {names[1]} nor {names[2]} is set. Set a token, or an App's id with "
                f"{names[3]}."
            )
        if app and not app.isdecimal():
            problems.append(f"{names[2]} is no number.")
        if url and not url.startswith(("https://", "http://")):
            problems.append(f"{names[4]} is no address: {url!r}.")
        pem = _pem(key, names[3], problems) if key else None
        if problems:
            raise ProjectError(problems)
        return cls(secret, token or None, app or None, pem, url.rstrip("/") or API_URL)


def _pem(key: str, name: str, problems: list[str]) -> str | None:
    r"""Return the key, given itself or by a file's name; newlines may be written as ``\\n``.

    What was given is not repeated in a problem: it may be a key after all.
    """
    text = key.replace("\\n", "\n")
    if "-----BEGIN" not in text:
        try:
            text = Path(key).read_text("utf-8")
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
            problems.append(f"{name} is neither a key in PEM nor a file to read: {why}.")
            return None
    if "PRIVATE KEY-----" not in text:
        problems.append(f"{name} holds no private key in PEM.")
        return None
    return text
